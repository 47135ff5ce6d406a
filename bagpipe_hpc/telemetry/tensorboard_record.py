"""What a run tells, as event files for TensorBoard."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.telemetry.record import Record
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps


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
        first_step: the first step that is not told yet; what an earlier start told of it and later ones is dropped.
        has_cache: whether rows come through a cache.

    Raises:
        ConfigError: the package is not installed.
    """

    def __init__(self, folder: Path, first_step: int, *, has_cache: bool) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an optional package

        self._has_cache = has_cache
        self._writer = SummaryWriter(str(folder), purge_step=first_step)

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
            self._add({f"test/{name}/auc": measures.auc, f"test/{name}/log_loss": measures.log_loss}, step)

    def checkpoint(self, manifest: CheckpointManifest, directory: Path, stood_still_s: float, seconds: float) -> None:  # noqa: ARG002
        """Its size and times."""
        values = {"bytes": float(manifest.total_bytes), "stood_still_s": stood_still_s, "complete_after_s": seconds}
        self._add({f"checkpoint/{name}": value for name, value in values.items()}, manifest.step)

    def _add(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
