"""What all trainers tell of the same steps: the sums of each, in one matrix.

With hundreds of trainers, an object for each, and its text, would take the first trainer as long as a step, and the
others would wait for it.
"""

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.telemetry.step_stats import StepStats

_FIELDS = {field.name: place for place, field in enumerate(fields(StepStats))}
_TYPES = [int if field.type in (int, "int") else float for field in fields(StepStats)]


def steps_as_row(stats: StepStats) -> NDArray[np.float64]:
    """A trainer's sums, of shape `(fields,)`; counts are exact up to 2**53."""
    return np.asarray(astuple(stats), dtype=np.float64)


class TrainerSteps:
    """Sums over the same steps, of each trainer.

    Args:
        rows: float64 of shape `(trainers, fields)`, of each trainer as `steps_as_row` gives it.
    """

    def __init__(self, rows: NDArray[np.float64]) -> None:
        self._rows = rows

    @classmethod
    def of(cls, trainers: Sequence[StepStats]) -> "TrainerSteps":
        """Make it from the sums of each trainer."""
        return cls(np.stack([steps_as_row(own) for own in trainers]))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, trainer: int) -> StepStats:
        sums: list[Any] = [kind(value) for kind, value in zip(_TYPES, self._rows[trainer].tolist(), strict=True)]
        return StepStats(*sums)

    def each(self) -> list[dict[str, float]]:
        """Means per step of each trainer, times in milliseconds."""
        return [self[trainer].per_step() for trainer in range(len(self))]

    def mean(self) -> dict[str, float]:
        """The mean over the trainers of their means per step."""
        return StepStats(*self._rows.mean(axis=0).tolist()).per_step()

    def waited_for(self) -> int:
        """The trainer that waited least for sums over all: the others waited for it."""
        return int(self._of("wait_reductions_s").argmin())

    def newly_resident(self) -> int | None:
        """How many more distinct rows all caches together hold after the steps than before; copies are not counted.

        A row that is absent is fetched once, by one trainer or by all, and one that leaves is written back by one
        trainer.

        Returns:
            The number; None where rows are added to, which may stay, and which several trainers may hold apart.
        """
        if self._of("rows_added").any():
            return None
        return int(self._of("fetched_rows")[0] - self._of("rows_written_back").sum())

    def _of(self, field: str) -> NDArray[np.float64]:
        return self._rows[:, _FIELDS[field]]
