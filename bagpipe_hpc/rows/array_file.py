"""Files of named arrays: NumPy's `.npz` without pickled objects, read as if a stranger had written them."""

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError, refused

Int64s = NDArray[np.int64]
_read_newer_header = np.lib.format.read_array_header_2_0


@dataclass(frozen=True)
class ArrayFile:
    """A file that is open.

    Attributes:
        path: the file.
        cure: what a user can do about a damaged one.
        members: its arrays, read when they are asked for.
        archive: what they are in.
    """

    path: Path
    cure: str
    members: Mapping[str, NDArray[np.generic]]
    archive: zipfile.ZipFile

    def refuse(self, problem: str) -> NoReturn:
        """Say what is wrong with the file.

        Raises:
            DataError: always.
        """
        raise DataError(f"{self.path}: {problem}; {self.cure}")

    def require_format(self, version: int) -> None:
        """Check that the member `format` is this version.

        Raises:
            DataError: it is not.
        """
        if (found := self.integer("format")) != version:
            self.refuse(f"has format {found} instead of {version}")

    def integers(self, name: str, *shape: int) -> Int64s:
        """A member of numbers that are 0 or more, int64 of this shape.

        Raises:
            DataError: there is no such member, or it is another array.
        """
        found = self._member(name)
        if found.dtype != np.int64 or found.shape != shape or (found.size and found.min() < 0):
            self.refuse(f"{name} must be int64 {list(shape)}, none negative")
        return found.astype(np.int64)

    def integer(self, name: str) -> int:
        """A member that is a single number, 0 or more; errors as for `integers`."""
        return int(self.integers(name))

    def text(self, name: str) -> str:
        """A member that is a text; errors as for `integers`."""
        found = self._member(name)
        if found.dtype.kind != "U" or found.shape != ():
            self.refuse(f"{name} must be a text")
        return str(found)

    def names(self, name: str) -> tuple[str, ...]:
        """A member that is a list of different texts; errors as for `integers`."""
        found = self._member(name)
        if found.dtype.kind != "U" or found.ndim != 1 or np.unique(found).size < found.size:
            self.refuse(f"{name} must be different names")
        return tuple(found.tolist())

    def _member(self, name: str) -> NDArray[np.generic]:
        if name not in self.members:
            self.refuse(f"has no {name}")
        self._require_stored(name)
        return self.members[name]

    def _require_stored(self, name: str) -> None:
        """Check that the archive holds all numbers of an array before memory is taken for them."""
        member = self.archive.getinfo(f"{name}.npy")
        with self.archive.open(member) as stream:
            version = np.lib.format.read_magic(stream)
            read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else _read_newer_header
            shape, _, dtype = read_header(stream)
            stored = member.file_size - stream.tell()
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize != stored:  # NumPy itself refuses objects
            self.refuse(f"{name} is {dtype} {list(shape)} in {stored} bytes")


def are_different(numbers: Int64s) -> bool:
    """Whether none of `numbers [n]` comes twice; for millions of them, `numpy.unique` takes many times as long."""
    ordered = np.sort(numbers)
    return not (ordered[1:] == ordered[:-1]).any()


@contextmanager
def open_arrays(path: Path, kind: str, cure: str) -> Iterator[ArrayFile]:
    """Open a file for the body.

    Args:
        path: the file.
        kind: what it should be, for messages: `a file of statistics`.
        cure: what a user can do about a damaged one.

    Raises:
        DataError: it is damaged or no such file.
        FileError: the system refuses it.
    """
    try:
        with path.open("rb") as stream, np.lib.npyio.NpzFile(stream, allow_pickle=False) as members:
            assert members.zip is not None, "it is open"
            yield ArrayFile(path, cure, members, members.zip)
    except OSError as error:
        if error.filename is None:
            raise DataError(f"{path}: cannot be read ({error}); {cure}") from error
        raise refused(error, path) from error
    except (ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as {kind} ({error}); {cure}") from error
