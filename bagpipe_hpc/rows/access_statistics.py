"""How often training rows look up each row of each table: what placements by statistics know of the tables.

The file is a plain `.npz` of NumPy, without pickled objects (docs/data.md has the format). `bagpipe inspect
--statistics` writes it. Its summary is small and is read at once; the rows in the order of their counts are read table
by table.

Legend: `N` tables, `S` steps of the curve, `U` used rows of a table.
"""

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError, refused

FORMAT = 1
STEPS = 100
"""Steps S of the inverse cumulative curve (RecShard, ASPLOS 2022)."""
REUSE_LIMITS = tuple(1 << power for power in range(16))
"""Upper bounds of the bins of reuse, 1 to 32,768; the last of the 17 bins has none (AutoShard, KDD 2022)."""
_AGAIN = "write it again with `bagpipe inspect SHARDS --statistics FILE`"
_SUMMARY = ("rows", "look_ups", "samples_with", "used", "curve", "reuse")

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class TableAccesses:
    """The look-ups of a table in the training rows.

    Attributes:
        name: of the table.
        rows: rows of the table.
        samples: samples that were counted.
        look_ups: number of look-ups; a sample may have several, through one feature or several that share the table.
        samples_with: samples that look up anything in the table.
        curve: ICDF: the fewest rows on which at least the share s/S of the look-ups fall, for s = 0 .. S, `[S + 1]`;
            the first is 0, the last the number of used rows.
        reuse: used rows by number of look-ups n: n <= 1, 1 < n <= 2, 2 < n <= 4, ..., n > 32,768, `[17]`.
    """

    name: str
    rows: int
    samples: int
    look_ups: int
    samples_with: int
    curve: tuple[int, ...]
    reuse: tuple[int, ...]

    @property
    def used(self) -> int:
        """Rows that are looked up at all."""
        return self.curve[-1]

    @property
    def coverage(self) -> float:
        """Share of the samples that look up anything in the table."""
        return self.samples_with / max(1, self.samples)

    @property
    def pooling(self) -> float:
        """Look-ups of a sample that has any: the average pooling factor."""
        return self.look_ups / max(1, self.samples_with)

    @property
    def sample_look_ups(self) -> float:
        """Look-ups of any sample: coverage times pooling."""
        return self.look_ups / max(1, self.samples)

    @property
    def reuse_shares(self) -> tuple[float, ...]:
        """Share of the used rows in each bin of reuse, `[17]`; zeros where no row is used."""
        return tuple(rows / max(1, self.used) for rows in self.reuse)

    @classmethod
    def of_counts(cls, name: str, counts: Int64s, samples: int, samples_with: int) -> "TableAccesses":
        """Those of a table whose rows are looked up so often, int64 `[rows]`."""
        falling = np.sort(counts[counts > 0])[::-1]
        bins = np.bincount(np.searchsorted(REUSE_LIMITS, falling), minlength=len(REUSE_LIMITS) + 1)
        curve, total = access_curve(falling, STEPS), int(falling.sum())
        return cls(name, len(counts), samples, total, samples_with, tuple(curve.tolist()), tuple(bins.tolist()))


@dataclass(frozen=True)
class AccessStatistics:
    """What is known of all tables.

    Attributes:
        source: the file, for messages and for what is read later.
        data: SHA-256 of the shards that were counted (`ShardManifest.digest`), 64 hexadecimal digits.
        samples: samples that were counted.
        tables: by name, in the order of the data.
    """

    source: Path
    data: str
    samples: int
    tables: Mapping[str, TableAccesses]

    def of(self, name: str, rows: int) -> TableAccesses:
        """Those of a table of a run.

        Raises:
            DataError: there is no such table, or it has another number of rows.
        """
        found = self.tables.get(name)
        if found is None:
            raise DataError(f"{self.source}: knows no table {name!r:.80}; {_AGAIN}, of the data that is trained on")
        if found.rows != rows:
            raise DataError(
                f"{self.source}: its table {name!r:.80} has {found.rows} rows, the data's has {rows}; {_AGAIN}, of the "
                "data that is trained on"
            )
        return found

    def hottest(self, name: str) -> tuple[Int64s, Int64s]:
        """The used rows of a table, most look-ups first and by number where they have as many, and their look-ups.

        Returns:
            int64 `[U]` each; rows are numbers within the table.

        Raises:
            DataError: the file is damaged, or is another one now.
        """
        number, table = list(self.tables).index(name), self.tables[name]
        with _open(self.source) as file:
            rows, counts = (_integers(file, f"{kind}/{number}", (table.used,), self.source) for kind in _ORDERED)
        is_order = rows.size == np.unique(rows).size and (np.diff(counts) <= 0).all() and counts.sum() == table.look_ups
        if not is_order or (rows.size and not (rows.min() >= 0 and rows.max() < table.rows)):
            raise DataError(f"{self.source}: does not order the rows of table {name!r:.80} by look-ups; {_AGAIN}")
        return rows, counts


_ORDERED = ("order", "counts")


def access_curve(falling: Int64s, steps: int) -> Int64s:
    """The fewest rows on which at least the share s/S of all look-ups fall, for s = 0 .. S.

    Args:
        falling: look-ups of the used rows, falling, int64 `[U]`.
        steps: S, at least 1.

    Returns:
        int64 `[S + 1]`, in whole numbers throughout: from 0 to U.
    """
    summed = np.cumsum(falling)
    total = int(summed[-1]) if summed.size else 0
    wanted = [-(-total * step // steps) for step in range(steps + 1)]
    curve = np.searchsorted(summed, wanted) + 1
    curve[0] = 0
    found: Int64s = np.minimum(curve, falling.size).astype(np.int64)
    return found


def write_statistics(
    file: IO[bytes], data: str, tables: Sequence[TableAccesses], counts: Sequence[Int64s], samples: int
) -> None:
    """Write a file of statistics.

    Args:
        file: to write to.
        data: SHA-256 of the shards.
        tables: the summary of each table.
        counts: look-ups of each row of each table, int64 `[rows]`.
        samples: samples that were counted.
    """
    members = {
        "format": np.array(FORMAT),
        "data": np.array(data),
        "samples": np.array(samples),
        "names": np.array([table.name for table in tables], dtype=np.str_),
        **{name: np.array([getattr(table, name) for table in tables], dtype=np.int64) for name in _SUMMARY},
    }
    for number, of_rows in enumerate(counts):
        rows = np.flatnonzero(of_rows)
        rows = rows[np.argsort(-of_rows[rows], kind="stable")]
        members |= {f"order/{number}": rows, f"counts/{number}": of_rows[rows]}
    np.savez_compressed(file, allow_pickle=False, **members)


def read_statistics(path: Path) -> AccessStatistics:
    """Read the summary of a file of statistics.

    Raises:
        DataError: it is no such file, or is damaged.
        FileError: the system refuses it.
    """
    with _open(path) as file:
        if (version := int(_integers(file, "format", (), path))) != FORMAT:
            raise DataError(f"{path}: has format {version} instead of {FORMAT}; {_AGAIN}")
        data, names = str(_member(file, "data", path)), _member(file, "names", path)
        if names.dtype.kind != "U" or names.ndim != 1 or len(set(names.tolist())) < names.size:
            raise DataError(f"{path}: names are no different names; {_AGAIN}")
        samples = int(_integers(file, "samples", (), path))
        widths = {"curve": (STEPS + 1,), "reuse": (len(REUSE_LIMITS) + 1,)}
        found = {name: _integers(file, name, (names.size, *widths.get(name, ())), path) for name in _SUMMARY}
    tables = {
        name: TableAccesses(
            name,
            int(found["rows"][number]),
            samples,
            int(found["look_ups"][number]),
            int(found["samples_with"][number]),
            tuple(found["curve"][number].tolist()),
            tuple(found["reuse"][number].tolist()),
        )
        for number, name in enumerate(names.tolist())
    }
    for number, table in enumerate(tables.values()):
        rises = all(first <= last for first, last in pairwise(table.curve))
        if not (rises and table.curve[0] == 0 and found["used"][number] == table.used == sum(table.reuse)):
            raise DataError(f"{path}: what it says of table {table.name!r:.80} does not fit together; {_AGAIN}")
        if not (table.used <= table.rows and table.samples_with <= min(samples, table.look_ups)):
            raise DataError(f"{path}: what it says of table {table.name!r:.80} does not fit together; {_AGAIN}")
    return AccessStatistics(path, data, samples, tables)


@contextmanager
def _open(path: Path) -> Iterator[Mapping[str, NDArray[np.generic]]]:
    try:
        with path.open("rb") as stream, np.lib.npyio.NpzFile(stream, allow_pickle=False) as file:
            yield file
    except OSError as error:
        if error.filename is None:
            raise DataError(f"{path}: cannot be read ({error}); {_AGAIN}") from error
        raise refused(error, path) from error
    except (ValueError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as a file of statistics ({error}); {_AGAIN}") from error


def _member(file: Mapping[str, NDArray[np.generic]], name: str, path: Path) -> NDArray[np.generic]:
    if name not in file:
        raise DataError(f"{path}: is no file of statistics, it has no {name}; {_AGAIN}")
    return file[name]


def _integers(file: Mapping[str, NDArray[np.generic]], name: str, shape: tuple[int, ...], path: Path) -> Int64s:
    """Numbers of a member, none of them negative."""
    found = _member(file, name, path)
    if found.dtype != np.int64 or found.shape != shape or (found.size and found.min() < 0):
        raise DataError(f"{path}: {name} must be int64 {list(shape)}, none negative; {_AGAIN}")
    return found.astype(np.int64)
