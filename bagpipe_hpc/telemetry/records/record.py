"""The interface by which roles and checkpoints tell what a run does; the base class does nothing with it."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps


class Record:
    """A context manager around a run, on the one rank that tells of it; subclasses override what they tell."""

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *_: object) -> None:
        """The run is over, or has failed."""

    def resumed(self, step: int, directory: Path, changes: Sequence[str] = ()) -> None:
        """The run takes up a checkpoint; what has changed since, as `NAME: THEN -> NOW`."""

    def progress(
        self,
        step: int,
        epoch: int,
        trainers: TrainerSteps,
        loss: float,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """An interval of training is done.

        Args:
            step: steps done.
            epoch: from 0.
            trainers: of the interval, on each trainer.
            loss: mean of the losses of the interval's batches.
            rates: learning rates of the last of them, by their names.
        """

    def evaluation(self, step: int, epoch: int, evaluations: Mapping[str, Evaluation], seconds: float) -> None:
        """An evaluation of each label, by its name, took `seconds`; the first label's is what the run is judged by."""

    def scored(self, batches: int, of: int) -> None:
        """So many batches of an evaluation or a prediction are done."""

    def prediction(self, samples: int, seconds: float) -> None:
        """Logits of so many samples were computed, in `seconds`."""

    def saving(self, step: int) -> None:
        """A checkpoint of a step is being written; `checkpoint` follows when it is complete."""

    def checkpoint(self, manifest: CheckpointManifest, directory: Path, stood_still_s: float, seconds: float) -> None:
        """A checkpoint is complete.

        Args:
            manifest: its manifest.
            directory: where it is.
            stood_still_s: how long training stood still for it.
            seconds: from its announcement to now.
        """

    def summary(self, trainers: list[dict[str, float]], stats: StepStats, details: dict[str, Any]) -> None:
        """The run has come to its end.

        Args:
            trainers: means per step of each trainer (`StepStats.per_step`).
            stats: of this trainer, over the whole run.
            details: further facts.
        """

    def stopped(self) -> None:
        """The run ends early, as it was asked to."""


class Records(Record):
    """Several records, each of which is told everything, in their order; arguments and errors are theirs."""

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
