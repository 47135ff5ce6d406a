"""Creates HDF5 files through a file of Python's, so that a full disk is an `OSError` and HDF5 itself stays whole.

Where the system refuses one of its own writes, HDF5 can no longer close the file, and crashes when the process ends.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py


@contextmanager
def create_hdf5(path: Path) -> Iterator[h5py.File]:
    """Create a file, or replace it, for the body to fill; it is closed afterwards, but not yet forced to the disk.

    Raises:
        OSError: the system refused to write; it has an errno, as for any other file. The file is then of no use.
    """
    with _Output(path, "w+") as output:
        try:
            with h5py.File(output, "w") as file:
                yield file
        finally:
            if output.refused:
                raise output.refused


class _Output(io.FileIO):
    """The file that HDF5 writes to: once a write was refused, it seems to accept all later ones and drops them.

    Attributes:
        refused: the error of that write.
    """

    refused: OSError | None = None

    def write(self, data: memoryview, /) -> int:  # type: ignore[override]
        """Write all of `data`, as HDF5 expects."""
        written = 0
        while self.refused is None and written < len(data):
            try:
                written += super().write(data[written:])
            except OSError as error:
                self.refused = error
        return len(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Cut the file off, or let it grow."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.refused = self.refused or error
            return size or 0
