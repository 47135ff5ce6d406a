"""HET in plain Python, as its paper has it: lines with a clock, a value, a change and a number of updates.

Values are whole numbers; an update adds what depends on the value that was read, so that what a look-up misses shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Line:
    clock: int
    value: int
    delta: int = 0
    unsent: int = 0
    uses: int = 0
    last_use: int = -1


@dataclass
class Het:
    """Servers and the caches of some trainers.

    Attributes:
        total_rows: whose first values are their numbers.
        trainers: how many.
        bound: s.
        eviction: how lines are chosen that leave.
        most: lines that stay behind a batch; None for any number.
        pin_after: uses after which a row stays, with `lfu_pinned`.
    """

    total_rows: int
    trainers: int
    bound: int
    eviction: str = "lru"
    most: int | None = None
    pin_after: int = 10
    values: list[int] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    held: list[dict[int, Line]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values = list(range(self.total_rows))
        self.clocks = [0] * self.total_rows
        self.held = [{} for _ in range(self.trainers)]

    def step(self, number: int, slices: Sequence[Sequence[int]]) -> tuple[list[set[int]], list[set[int]]]:
        """Train a batch; the rows that each trainer pulls, and those that it pushes.

        Args:
            number: of the batch.
            slices: the look-ups of each trainer.
        """
        pulls: list[set[int]] = [set() for _ in slices]
        for held, rows, pulled in zip(self.held, slices, pulls, strict=True):
            for row in set(rows):
                if row in held and self.clocks[row] - held[row].clock <= self.bound:
                    continue
                line = held.setdefault(row, Line(0, 0))
                line.clock, line.value = self.clocks[row], self.values[row] + line.delta
                pulled.add(row)
        pushes: list[set[int]] = [set() for _ in slices]
        for trainer, (held, rows) in enumerate(zip(self.held, slices, strict=True)):
            read = {row: held[row].value for row in set(rows)}
            for row in rows:
                held[row].value += 1 + read[row] % 7
                held[row].delta += 1 + read[row] % 7
            for row in read:
                line = held[row]
                line.unsent, line.uses, line.last_use = line.unsent + 1, line.uses + 1, number
            leaving = self._leaving(number, held)
            for row in {row for row in read if held[row].unsent > self.bound} | {
                row for row in leaving if held[row].unsent
            }:
                self._push(held[row], row)
                pushes[trainer].add(row)
            for row in leaving:
                del held[row]
        return pulls, pushes

    def end(self) -> list[set[int]]:
        """Push what is left; the rows that each trainer pushes."""
        pushes = [{row for row, line in held.items() if line.unsent} for held in self.held]
        for held, rows in zip(self.held, pushes, strict=True):
            for row in rows:
                self._push(held[row], row)
        return pushes

    def _push(self, line: Line, row: int) -> None:
        self.values[row] += line.delta
        self.clocks[row] += line.unsent
        line.clock += line.unsent
        line.delta = line.unsent = 0

    def _leaving(self, number: int, held: dict[int, Line]) -> list[int]:
        if self.most is None:
            return []
        pinned = {row for row, line in held.items() if self.eviction == "lfu_pinned" and line.uses >= self.pin_after}

        def order(row: int) -> tuple[int, ...]:
            line = held[row]
            uses = 0 if self.eviction == "lru" else line.uses
            return line.last_use == number, uses, line.last_use, row

        return sorted(held.keys() - pinned, key=order)[: max(0, len(held) - self.most)]
