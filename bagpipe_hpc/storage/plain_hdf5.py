"""Opens HDF5 files whose datasets lie in them in full and uncompressed; refuses any others.

HDF5 can point a name at another file or promise terabytes that were never written. A checkpoint needs neither, and a
damaged or hostile one must not make its reader open other files or run out of memory.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from bagpipe_hpc.errors import CheckpointError, refused
from bagpipe_hpc.storage.hdf5_attributes import plain_attribute


def open_plain(path: Path) -> h5py.File:
    """Open a file of a checkpoint for reading; the caller closes it.

    Raises:
        CheckpointError: it is absent or is no HDF5 file; the message names it.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: is absent; the checkpoint is incomplete, use another one")
    with errors_name(path):
        # The files never change once a checkpoint is complete, and some parallel file systems refuse locks.
        return h5py.File(path, "r", locking=False)


_OF_THE_SYSTEM = (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EIO, errno.ESTALE)
"""Errors of the system, which do not mean that the file is damaged."""


@contextmanager
def errors_name(path: str | Path) -> Iterator[None]:
    """Turn what HDF5 raises about a damaged file into a `CheckpointError` that names it; put nothing else inside.

    Raises:
        CheckpointError: by the body, about a file that is damaged.
        FileError: the system refuses a file, which may be sound.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _OF_THE_SYSTEM:
            raise refused(error, Path(path)) from None
        raise CheckpointError(f"{path}: cannot be read as HDF5 ({error}); use another checkpoint") from None
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as HDF5 ({error}); use another checkpoint") from None


def plain_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """The dataset of that name, whose every value is stored inside this very file.

    Raises:
        CheckpointError: there is no such dataset, or it is compressed, virtual, in another file or not fully stored.
    """
    with errors_name(file.filename):
        member: h5py.Group | h5py.Dataset = file
        for part in name.split("/"):
            link = member.get(part, getlink=True) if part and isinstance(member, h5py.Group) else None
            if not isinstance(link, h5py.HardLink):
                raise CheckpointError(f"{file.filename}: has no dataset {name}; use another checkpoint")
            member = member[part]
        is_plain = isinstance(member, h5py.Dataset) and _is_stored_in_full(member, file.id.get_filesize())
    if not is_plain:
        raise CheckpointError(
            f"{file.filename}: {name} is no dataset that is stored in full, uncompressed, inside this file; "
            "use another checkpoint"
        )
    return member


def require_attributes(file: h5py.File, expected: dict[str, int]) -> None:
    """Check whole-number attributes of a file.

    Raises:
        CheckpointError: one is absent or has another value.
    """
    for name, value in expected.items():
        with errors_name(file.filename):
            found = plain_attribute(file, name)
        if not isinstance(found, np.integer) or found != value:
            raise CheckpointError(
                f"{file.filename}: attribute {name} = {found!r}: must be {value}, as the manifest says; "
                "use another checkpoint"
            )


def _is_stored_in_full(dataset: h5py.Dataset, file_bytes: int) -> bool:
    if dataset.shape is None or dataset.chunks is not None or dataset.is_virtual or dataset.external:
        return False
    if dataset.id.get_storage_size() != dataset.nbytes:
        return False
    offset = dataset.id.get_offset()  # None where nothing is stored, or inside the dataset's own header
    return dataset.nbytes == 0 or (offset is not None and offset + dataset.nbytes <= file_bytes)
