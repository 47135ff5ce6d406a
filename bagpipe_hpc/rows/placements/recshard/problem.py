"""What RecShard decides, under which constraints, and what a decision costs. Pure.

A table goes to one device, with a share s/S of its accesses in that device's fast memory: the fewest rows with that
share, by the inverse cumulative curve of its accesses (ICDF). The cost is the time of the slowest device for a batch.

Legend: `N` tables, `M` devices, `S` steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SplitTable:
    """A table, as far as RecShard knows it.

    Attributes:
        rows: its rows.
        row_bytes: bytes of a row.
        accesses: look-ups of a batch.
        curve: the fewest rows with the share s/S of its accesses, s = 0 .. S, `[S + 1]`; unused rows are in none.
    """

    rows: int
    row_bytes: int
    accesses: float
    curve: tuple[int, ...]


@dataclass(frozen=True)
class Device:
    """A device's two memories.

    Attributes:
        fast_bytes: most bytes of rows in the fast one.
        slow_bytes: most bytes of rows in the slow one.
        fast_bytes_s: bytes a second that are read from the fast one.
        slow_bytes_s: the same of the slow one.
    """

    fast_bytes: float
    slow_bytes: float
    fast_bytes_s: float
    slow_bytes_s: float


@dataclass(frozen=True)
class Split:
    """A decision.

    Attributes:
        devices: of each table, `[N]`.
        steps: s of each table, `[N]`.
    """

    devices: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """Tables to be split over devices.

    Attributes:
        tables: `[N]`.
        devices: `[M]`.
        keeps_place: whether a row in fast memory keeps its place in slow memory, as rows at trainers keep theirs at the
            servers; the paper's rows leave it.
    """

    tables: tuple[SplitTable, ...]
    devices: tuple[Device, ...]
    keeps_place: bool = False

    @property
    def steps(self) -> int:
        """Number of steps S."""
        return len(self.tables[0].curve) - 1

    def fast_bytes(self, table: int, step: int) -> int:
        """Bytes that a table takes in fast memory."""
        return self.tables[table].curve[step] * self.tables[table].row_bytes

    def slow_bytes(self, table: int, step: int) -> int:
        """Bytes that a table takes in slow memory."""
        all_bytes = self.tables[table].rows * self.tables[table].row_bytes
        return all_bytes if self.keeps_place else all_bytes - self.fast_bytes(table, step)

    def time(self, table: int, device: int, step: int) -> float:
        """Seconds of a device for a table's accesses of a batch."""
        share, chosen = step / self.steps, self.devices[device]
        read = self.tables[table].accesses * self.tables[table].row_bytes
        return read * (share / chosen.fast_bytes_s + (1 - share) / chosen.slow_bytes_s)

    def times(self, split: Split) -> list[float]:
        """Seconds of each device for a batch, `[M]`."""
        found = [0.0] * len(self.devices)
        for table, (device, step) in enumerate(zip(split.devices, split.steps, strict=True)):
            found[device] += self.time(table, device, step)
        return found

    def slowest(self, split: Split) -> float:
        """Seconds of the slowest device: what is minimised."""
        return max(self.times(split))

    def slow_accesses(self, split: Split) -> float:
        """Look-ups of a batch that are to slow memory, as far as steps tell; there may be fewer."""
        return sum(
            table.accesses * (1 - step / self.steps) for table, step in zip(self.tables, split.steps, strict=True)
        )

    def faults(self, split: Split) -> list[str]:
        """The limits that a decision breaks, in words; empty if it can be carried out."""
        found = []
        for device, limits in enumerate(self.devices):
            own = [(table, step) for table, step in enumerate(split.steps) if split.devices[table] == device]
            for kind, taken, limit in (
                ("fast", sum(self.fast_bytes(*one) for one in own), limits.fast_bytes),
                ("slow", sum(self.slow_bytes(*one) for one in own), limits.slow_bytes),
            ):
                if taken > limit:
                    found.append(f"device {device}: {taken} bytes of {kind} memory instead of {limit:.0f} at most")
        if not all(0 <= device < len(self.devices) for device in split.devices):
            found.append(f"devices {split.devices}: there are {len(self.devices)}")
        if not all(0 <= step <= self.steps for step in split.steps):
            found.append(f"steps {split.steps}: there are {self.steps}")
        if not len(split.devices) == len(split.steps) == len(self.tables):
            found.append(f"{len(split.devices)} devices and {len(split.steps)} steps for {len(self.tables)} tables")
        return found


def best_of(problem: Problem, splits: Sequence[Split]) -> Split:
    """The one with the fastest slowest device, then the least time of all, then the first."""
    return min(splits, key=lambda split: (problem.slowest(split), sum(problem.times(split))))
