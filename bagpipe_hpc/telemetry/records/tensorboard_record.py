"""What a run tells, as event files for TensorBoard."""

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.telemetry.records.record import Record
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps

_OF_TESTS = "test/"
_MEASURES = ("auc", "log_loss")


def require_tensorboard() -> None:
    """Check that event files can be written here.

    Raises:
        ConfigError: the package is not installed.
    """
    if find_spec("tensorboard") is None:
        raise ConfigError(
            "train.tensorboard = True: the package tensorboard is not installed here; pip install tensorboard, in the "
            "environment of all hosts, or leave the setting out"
        )


class TensorBoardRecord(Record):
    """Writes scalars to event files in a folder, which is made.

    Args:
        folder: of the files.
        steps_done: of the checkpoint that the run goes on from; what an earlier start told of later steps is dropped.
        has_cache: whether rows come through a cache.
        is_evaluated_again: whether the evaluation of that checkpoint's own step is made again; it is dropped, too.

    Raises:
        ConfigError: the package is not installed.
    """

    def __init__(self, folder: Path, steps_done: int, *, has_cache: bool, is_evaluated_again: bool = False) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an optional package

        self._has_cache = has_cache
        stays = _told_beside_evaluations(folder, steps_done) if is_evaluated_again and folder.is_dir() else {}
        # Readers forget whole steps: what else was told of this one is told once more.
        self._writer = SummaryWriter(str(folder), purge_step=steps_done + (not is_evaluated_again))
        if stays:
            self._add(stays, steps_done)

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def progress(
        self,
        step: int,
        epoch: int,
        trainers: TrainerSteps,
        loss: float,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """Loss, rates, samples/s, and where the first trainer's time goes."""
        first = trainers[0]
        values = {"train/loss": loss, "train/epoch": float(epoch), "speed/samples_per_s": first.samples_per_s}
        values |= {f"train/{name}": rate for name, rate in (rates or {}).items()}
        means = first.per_step()
        times = ("total_ms", "compute_ms", "wait_rows_ms", "wait_reductions_ms")
        values |= {f"speed/{name}": means[name] for name in times}
        if self._has_cache:
            values |= {f"rows/{name}": value for name, value in means.items() if name not in times}
            values["rows/hit_rate"] = first.hit_rate
        self._add(values, step)

    def evaluation(self, step: int, epoch: int, evaluations: Mapping[str, Evaluation], seconds: float) -> None:  # noqa: ARG002
        """The measures of each label."""
        for name, measures in evaluations.items():
            self._add({f"{_OF_TESTS}{name}/{measure}": getattr(measures, measure) for measure in _MEASURES}, step)

    def checkpoint(self, manifest: CheckpointManifest, directory: Path, stood_still_s: float, seconds: float) -> None:  # noqa: ARG002
        """Its size and times."""
        values = {"bytes": float(manifest.total_bytes), "stood_still_s": stood_still_s, "complete_after_s": seconds}
        self._add({f"checkpoint/{name}": value for name, value in values.items()}, manifest.step)

    def _add(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


def _told_beside_evaluations(folder: Path, step: int) -> dict[str, float]:
    """What event files in a folder tell of a step besides evaluations."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415

    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it warns of each start that took steps back
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})  # all of them
    events.Reload()
    return {
        name: event.value
        for name in events.Tags()["scalars"]
        for event in events.Scalars(name)
        if event.step == step and not name.startswith(_OF_TESTS)
    }
