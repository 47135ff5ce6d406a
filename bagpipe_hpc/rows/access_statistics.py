"""How often training rows look up each row of each table: what placements by statistics know of the tables.

The file is a plain `.npz` of NumPy, without pickled objects (docs/data.md has the format). `bagpipe inspect
--statistics` writes it. Its summary is small and is read at once; the rows in the order of their counts are read table
by table.

Legend: `N` tables, `S` steps of the curve, `U` used rows of a table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.rows.array_file import Int64s, are_different, open_arrays

FORMAT = 1
STEPS = 100
"""Steps S of the inverse cumulative curve (RecShard, ASPLOS 2022)."""
REUSE_LIMITS = tuple(1 << power for power in range(16))
"""Upper bounds of the bins of reuse, 1 to 32,768; the last of the 17 bins has none (AutoShard, KDD 2022)."""
_AGAIN = "write it again with `bagpipe inspect SHARDS --statistics FILE`"
_KIND = "a file of statistics"
_NUMBERS = ("rows", "look_ups", "samples_with", "used")
_SUMMARY = (*_NUMBERS, "curve", "reuse")


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
        """Average look-ups of a sample that has any: the pooling factor."""
        return self.look_ups / max(1, self.samples_with)

    @property
    def sample_look_ups(self) -> float:
        """Average look-ups of all samples: coverage times pooling."""
        return self.look_ups / max(1, self.samples)

    @property
    def reuse_shares(self) -> tuple[float, ...]:
        """Share of the used rows in each bin of reuse, `[17]`; zeros where no row is used."""
        return tuple(rows / max(1, self.used) for rows in self.reuse)

    @classmethod
    def of_counts(cls, name: str, counts: Int64s, samples: int, samples_with: int) -> "TableAccesses":
        """The accesses of a table from the look-ups of each of its rows, `counts`, int64 `[rows]`."""
        falling = np.sort(counts[counts > 0])[::-1]
        bins = np.bincount(np.searchsorted(REUSE_LIMITS, falling), minlength=len(REUSE_LIMITS) + 1)
        curve, total = access_curve(falling, STEPS), int(falling.sum())
        return cls(name, len(counts), samples, total, samples_with, tuple(curve.tolist()), tuple(bins.tolist()))


@dataclass(frozen=True)
class AccessStatistics:
    """What is known of all tables.

    Attributes:
        source: the file, for messages and for reading the rows later.
        data: SHA-256 of the shards that were counted (`ShardManifest.digest`), 64 hexadecimal digits.
        samples: samples that were counted.
        tables: by name, in the order of the data.
    """

    source: Path
    data: str
    samples: int
    tables: Mapping[str, TableAccesses]

    def of(self, name: str, rows: int) -> TableAccesses:
        """The accesses of a table of a run.

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

    def hottest(self, names: Iterable[str]) -> Iterator[tuple[Int64s, Int64s]]:
        """The used rows of tables and their look-ups: most look-ups first, rows with as many by number.

        The file is opened once for all tables: listing what it holds takes longer than reading a table.

        Args:
            names: of the tables.

        Yields:
            Rows and look-ups, int64 `[U]` each, of one table after the other; rows are numbers within the table.

        Raises:
            DataError: the file is damaged, or is another one now.
        """
        numbers = {name: number for number, name in enumerate(self.tables)}
        with open_arrays(self.source, _KIND, _AGAIN) as file:
            for name in names:
                table = self.tables[name]
                rows, counts = (file.integers(f"{kind}/{numbers[name]}", table.used) for kind in ("order", "counts"))
                is_falling = (np.diff(counts) <= 0).all() and counts.sum() == table.look_ups
                if not is_falling or not are_different(rows) or rows.max(initial=0) >= table.rows:
                    file.refuse(f"does not order the rows of table {name!r:.80} by look-ups")
                yield rows, counts


def access_curve(falling: Int64s, steps: int) -> Int64s:
    """The fewest rows on which at least the share s/S of all look-ups fall, for s = 0 .. S.

    Args:
        falling: look-ups of the used rows, falling, int64 `[U]`.
        steps: S, at least 1.

    Returns:
        int64 `[S + 1]`, from 0 to U; computed in whole numbers throughout.
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
    with open_arrays(path, _KIND, _AGAIN) as file:
        file.require_format(FORMAT)
        names, samples = file.names("names"), file.integer("samples")
        widths = {"curve": (STEPS + 1,), "reuse": (len(REUSE_LIMITS) + 1,)}
        found = {name: file.integers(name, len(names), *widths.get(name, ())) for name in _SUMMARY}
        tables = {}
        for number, name in enumerate(names):
            rows, look_ups, samples_with, used = (int(found[kind][number]) for kind in _NUMBERS)
            curve, reuse = (tuple(found[kind][number].tolist()) for kind in ("curve", "reuse"))
            is_curve = curve[0] == 0 and curve[-1] == used and all(low <= high for low, high in pairwise(curve))
            if not (is_curve and sum(reuse) == used <= min(rows, look_ups) and samples_with <= min(samples, look_ups)):
                file.refuse(f"what it says of table {name!r:.80} does not fit together")
            tables[name] = TableAccesses(name, rows, samples, look_ups, samples_with, curve, reuse)
        return AccessStatistics(path, file.text("data"), samples, tables)
