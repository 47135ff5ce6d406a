"""What HDF5 says of a file that is damaged blames the file; what the system says blames nobody."""

import errno
import os
from pathlib import Path

import pytest

from bagpipe_hpc.errors import CheckpointError, FileError
from bagpipe_hpc.storage.plain_hdf5 import errors_name, open_plain


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_what_the_system_refuses_is_no_damage(number: int) -> None:
    with pytest.raises(FileError, match=rf"rows\.h5: {os.strerror(number)}"), errors_name("rows.h5"):
        raise OSError(number, os.strerror(number))


def test_what_is_no_hdf5_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "rows.h5"
    path.write_bytes(b"no HDF5" * 99)
    with pytest.raises(CheckpointError, match=r"rows\.h5: cannot be read as HDF5"):
        open_plain(path)
