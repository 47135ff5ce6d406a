"""HDF5 files that are created: whole, or an error of the system's after which the process still ends well."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.storage.hdf5_output import create_hdf5

LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from bagpipe_hpc.storage.hdf5_output import create_hdf5

path, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # fails as a full disk does
try:
    with create_hdf5(path) as file:
        for name in "abc":
            file.create_dataset(name, data=np.ones(5000, np.float32), chunks=(100,) if name == "b" else None)
except OSError as error:
    print(error)
"""


def test_a_file_is_what_hdf5_writes(tmp_path: Path) -> None:
    path = tmp_path / "values.h5"
    path.write_bytes(b"x" * 10_000)
    values = np.arange(3000, dtype=np.float32)
    with create_hdf5(path) as file:
        file["values"] = values[:10]
        file["more"] = values
        file.attrs["server"] = 3
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["values"][:], values[:10])
        np.testing.assert_array_equal(file["more"][:], values)
        assert file.attrs["server"] == 3
    assert b"x" * 100 not in path.read_bytes()


@pytest.mark.parametrize("limit", [50, 2_000, 30_000, 59_000])
def test_a_full_disk_is_an_error_and_no_crash(tmp_path: Path, limit: int) -> None:
    """HDF5 by itself ends such a process with SIGSEGV."""
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "values.h5"), str(limit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "[Errno 27] File too large\n"


def test_an_error_of_the_body_is_handed_on(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no number"), create_hdf5(tmp_path / "values.h5"):
        raise TypeError("no number")
