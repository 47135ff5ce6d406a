"""Several records of a run, each of which is told everything."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.telemetry.record import Record
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps


class Records(Record):
    """Hands everything on, in the order of its parts; arguments and errors are theirs."""

    def __init__(self, *parts: Record) -> None:
        self._parts = parts

    def __enter__(self) -> "Records":
        self._opened = ExitStack()
        for part in self._parts:
            self._opened.enter_context(part)
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def resumed(self, step: int, directory: Path, changes: Sequence[str] = ()) -> None:
        """As `Record.resumed`."""
        for part in self._parts:
            part.resumed(step, directory, changes)

    def progress(
        self,
        step: int,
        epoch: int,
        trainers: TrainerSteps,
        loss: float,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """As `Record.progress`."""
        for part in self._parts:
            part.progress(step, epoch, trainers, loss, rates)

    def evaluation(self, step: int, epoch: int, evaluations: Mapping[str, Evaluation], seconds: float) -> None:
        """As `Record.evaluation`."""
        for part in self._parts:
            part.evaluation(step, epoch, evaluations, seconds)

    def scored(self, batches: int, of: int) -> None:
        """As `Record.scored`."""
        for part in self._parts:
            part.scored(batches, of)

    def prediction(self, samples: int, seconds: float) -> None:
        """As `Record.prediction`."""
        for part in self._parts:
            part.prediction(samples, seconds)

    def saving(self, step: int) -> None:
        """As `Record.saving`."""
        for part in self._parts:
            part.saving(step)

    def checkpoint(self, manifest: CheckpointManifest, directory: Path, stood_still_s: float, seconds: float) -> None:
        """As `Record.checkpoint`."""
        for part in self._parts:
            part.checkpoint(manifest, directory, stood_still_s, seconds)

    def summary(self, trainers: list[dict[str, float]], stats: StepStats, details: dict[str, Any]) -> None:
        """As `Record.summary`."""
        for part in self._parts:
            part.summary(trainers, stats, details)

    def stopped(self) -> None:
        """As `Record.stopped`."""
        for part in self._parts:
            part.stopped()
