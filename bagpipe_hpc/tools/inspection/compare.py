"""How far two checkpoints differ, value by value, whatever the number of servers that wrote each.

Differences are taken in float64. Equal means equal in value: zeros of both signs are equal, and infinities of one sign.
A NaN equals nothing, not even a NaN: it differs infinitely, so that diverged runs never pass for equal ones.

Shapes: n rows of a piece, D width of a table, k optimizer state columns.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.progress import LongWork
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.checkpoints.saved_rows import stream_rows
from bagpipe_hpc.tools.text_table import aligned

MUST_AGREE = ("table_rows", "embedding_dim", "widths", "row_optimizer", "row_state_layout")
"""Fields in which two manifests must agree, so that each value has a counterpart."""


@dataclass
class PartDifference:
    """The differences found in one part of two checkpoints.

    Attributes:
        part: what was compared, such as `table 3`.
        largest: largest absolute difference; 0 where there is none, infinity where a NaN is met.
        where: the value that differs most, such as `table 3, id 17, column 2`; empty where none differs.
        differing: number of values that differ.
        values: number of values compared.
    """

    part: str
    largest: float = 0.0
    where: str = ""
    differing: int = 0
    values: int = 0

    def add(self, values: NDArray[Any], others: NDArray[Any], name: Callable[[tuple[int, ...]], str]) -> None:
        """Take in two arrays of one shape.

        Args:
            values: numbers of the first checkpoint, of any shape and type.
            others: those of the second.
            name: turns indices into `values` into the name of that value.
        """
        self.values += values.size
        unequal = values != others
        count = int(np.count_nonzero(unequal))
        if count == 0:
            return
        with np.errstate(invalid="ignore"):
            # long double represents every 64-bit integer exactly.
            differences = values[unequal].astype(np.longdouble) - others[unequal].astype(np.longdouble)
            distances = np.abs(differences).astype(np.float64)
        distances[np.isnan(distances)] = math.inf
        farthest = int(distances.argmax())
        if self.differing == 0 or distances[farthest] > self.largest:
            self.largest = float(distances[farthest])
            place = np.unravel_index(np.flatnonzero(unequal)[farthest], values.shape)
            self.where = name(tuple(int(index) for index in place))
        self.differing += count

    def merge(self, part: "PartDifference") -> None:
        """Add what was found in another part."""
        if part.differing and (self.differing == 0 or part.largest > self.largest):
            self.largest, self.where = part.largest, part.where
        self.differing += part.differing
        self.values += part.values


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes:
        first: directory of one checkpoint.
        second: directory of the other.
        steps: the steps of the two.
        renamed: a table of the first that has another name in the second, and that name; None if there is none.
        tables: differences of the weights of each embedding table, in their order.
        parts: differences of the optimizer state of the rows, the dense weights and the dense optimizer.
    """

    first: Path
    second: Path
    steps: tuple[int, int]
    renamed: tuple[str, str] | None
    tables: tuple[PartDifference, ...] = field(repr=False)
    parts: tuple[PartDifference, ...] = field(repr=False)

    def largest(self) -> float:
        """The largest absolute difference of any part; 0 where all values are equal."""
        return max(part.largest for part in (*self.tables, *self.parts))

    def report(self) -> str:
        """All parts as an aligned table; tables without a difference are counted, not listed."""
        all_tables = PartDifference("embedding tables")
        for table in self.tables:
            all_tables.merge(table)
        rows = [
            ("part", "largest difference", "differing values", "where"),
            _row(all_tables),
            *(_row(table, indent="  ") for table in self.tables if table.differing),
            *(_row(part) for part in self.parts),
        ]
        lines = [f"first   {self.first}", f"second  {self.second}"]
        if self.steps[0] != self.steps[1]:
            lines.append(f"The first is of step {self.steps[0]}, the second of step {self.steps[1]}.")
        if self.renamed:
            name, other = self.renamed
            lines.append(f"Tables were matched by their order: {name} of the first is called {other} in the second.")
        equal = sum(table.differing == 0 for table in self.tables)
        lines += [
            "",
            *aligned(rows),
            "",
            f"{equal} of {len(self.tables)} embedding tables are equal; largest difference {self.largest():.6g}",
        ]
        return "\n".join(lines)


def compare(first: Path, second: Path) -> Comparison:
    """Compare two checkpoints; for a run's output folder, its newest is taken.

    Rows are streamed in pieces, so memory does not grow with the tables; the two dense files are held in full.
    Checksums are not checked: `Checkpoint.verify` does that.

    Raises:
        CheckpointError: one cannot be read, or the two differ in tables, widths, optimizers or dense layers.
    """
    one, other = load_checkpoint(first), load_checkpoint(second)
    for name in MUST_AGREE:
        values = getattr(one.manifest, name), getattr(other.manifest, name)
        if values[0] != values[1]:
            raise _mismatch(one, other, name, *values)
    model, optimizer = _compare_dense(one, other)
    *tables, row_state = _compare_rows(one, other)
    names = zip(one.manifest.table_names, other.manifest.table_names, strict=True)
    return Comparison(
        one.directory,
        other.directory,
        (one.manifest.step, other.manifest.step),
        next((pair for pair in names if pair[0] != pair[1]), None),
        tuple(tables),
        (row_state, model, optimizer),
    )


def _compare_rows(one: Checkpoint, other: Checkpoint) -> list[PartDifference]:
    """Differences of each table's weights, then of all tables' optimizer state."""
    manifest = one.manifest
    tables = [PartDifference(f"table {name}") for name in manifest.table_names]
    state = PartDifference("optimizer state of rows")
    with LongWork("comparing", sum(manifest.table_rows), "rows") as work:
        for number, group in enumerate(manifest.groups):
            dim, step = group.width, stream_rows(manifest.record_columns(group.width))
            bounds = pairwise(group.tables.offsets.tolist())
            with one.open_rows(number) as rows, other.open_rows(number) as other_rows:
                for table, (begin, end) in zip(group.numbers, bounds, strict=True):
                    for start in range(begin, end, step):
                        stop = min(start + step, end)
                        records, other_records = rows.read(start, stop), other_rows.read(start, stop)
                        name = partial(_value_name, manifest.table_names[table], start - begin)
                        tables[table].add(records[:, :dim], other_records[:, :dim], name)
                        state.add(records[:, dim:], other_records[:, dim:], name)
                        work.advance(stop - start)
    return [*tables, state]


def _value_name(table: str, first: int, place: tuple[int, ...]) -> str:
    """The name of a number in a piece of a table's rows whose first row is `first`."""
    return f"table {table}, id {first + place[0]}, column {place[1]}"


def _compare_dense(one: Checkpoint, other: Checkpoint) -> tuple[PartDifference, PartDifference]:
    """Differences of the dense weights and of the dense optimizer's tensors and settings."""
    parts = PartDifference("dense weights"), PartDifference("dense optimizer")
    for part, state, other_state in zip(parts, one.read_dense(), other.read_dense(), strict=True):
        values, other_values = dict(_leaves("", state)), dict(_leaves("", other_state))
        for name in sorted(values.keys() | other_values.keys()):
            kinds = [_kind(leaves[name]) if name in leaves else "absent" for leaves in (values, other_values)]
            if kinds[0] != kinds[1]:
                raise _mismatch(one, other, f"{part.part}: {name}", *kinds)
            part.add(_array(values[name]), _array(other_values[name]), partial(_indexed, name))
    return parts


def _leaves(path: str, node: object) -> Iterator[tuple[str, object]]:
    """Tensors and plain values of a state, each with its path in the state."""
    items: Iterator[tuple[object, object]]
    match node:
        case dict():
            items = iter(node.items())
        case list() | tuple():
            items = iter(enumerate(node))
        case _:
            yield path, node
            return
    for key, item in items:
        yield from _leaves(f"{path}/{key}" if path else str(key), item)


def _kind(value: object) -> str:
    """What must agree so that two values can be subtracted; a value that is not a number must itself agree."""
    match value:
        case torch.Tensor():
            return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        case bool():
            return str(value)
        case int() | float():
            return "number"
    return repr(value)


def _array(value: object) -> NDArray[Any]:
    if isinstance(value, torch.Tensor):
        return (value.to(torch.float64) if value.is_floating_point() else value).numpy()
    return np.asarray(value if isinstance(value, float) or type(value) is int else 0.0, dtype=np.float64)


def _mismatch(one: Checkpoint, other: Checkpoint, name: str, value: object, other_value: object) -> CheckpointError:
    return CheckpointError(
        f"{one.directory} and {other.directory} cannot be compared: {name} is {value} in the first and {other_value} "
        "in the second; compare checkpoints of runs with the same tables, model and optimizers"
    )


def _indexed(name: str, place: tuple[int, ...]) -> str:
    return f"{name}{list(place)}" if place else name


def _row(part: PartDifference, indent: str = "") -> tuple[str, str, str, str]:
    return indent + part.part, f"{part.largest:.6g}", f"{part.differing} of {part.values}", part.where
