"""The run as a list of segments that every rank derives alone from the configuration and the data's size. Pure.

A segment is a run of consecutive batches at whose end every row is back on its server and every cache is empty: the
training steps up to the next evaluation or checkpoint, or an evaluation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from bagpipe_hpc.config.schema import TrainConfig
from bagpipe_hpc.errors import ConfigError

_MOST_SEGMENTS = 100_000


class SegmentKind(Enum):
    """What the batches of a segment are for."""

    TRAIN = "train"
    EVALUATE = "evaluate"


@dataclass(frozen=True)
class Segment:
    """Consecutive batches of one epoch.

    Attributes:
        kind: training or evaluation.
        epoch: epoch of the training samples, from 0; an evaluation carries the epoch that it follows.
        first_batch: position of the first batch in its epoch.
        batches: number of batches.
        first_step: training steps done before this segment.
        samples: samples of the split that the batches are cut from.
        batch_size: samples of a batch; the last batch of an epoch may be smaller.
        checkpoint: whether a checkpoint is written at the segment's end.
    """

    kind: SegmentKind
    epoch: int
    first_batch: int
    batches: int
    first_step: int
    samples: int
    batch_size: int
    checkpoint: bool

    @property
    def is_training(self) -> bool:
        """Whether rows and weights are updated."""
        return self.kind is SegmentKind.TRAIN

    @property
    def last_step(self) -> int:
        """Training steps done when the segment has ended."""
        return self.first_step + (self.batches if self.is_training else 0)

    def sample_range(self, batch: int) -> tuple[int, int]:
        """Positions of a batch (from 0 in this segment) in the epoch's order: the first, and one after the last."""
        first = (self.first_batch + batch) * self.batch_size
        return first, min(first + self.batch_size, self.samples)


def build_schedule(config: TrainConfig, train_samples: int, test_samples: int, steps_done: int = 0) -> list[Segment]:
    """All segments of a run in order, or those that are left of it.

    Args:
        config: length of the run, and where it is cut.
        train_samples: samples of the training split.
        test_samples: samples of the test split.
        steps_done: steps of the checkpoint that the run goes on from. An evaluation at that step comes after the
            checkpoint, so it is one of the segments that are left.

    Raises:
        ConfigError: there is nothing to train on, the checkpoint is beyond the run's end, or there are too many
            segments.
    """
    if train_samples < 1:
        raise ConfigError("the data has no training rows: prepare more rows, or a smaller --test-fraction")
    batches_per_epoch, total_steps = _lengths(config, train_samples)
    _require_countable(config, batches_per_epoch, total_steps)
    if steps_done > total_steps:
        raise ConfigError(
            f"the checkpoint is of step {steps_done}, and the run ends with step {total_steps}: set a larger "
            "train.epochs or train.max_steps, or resume from an earlier checkpoint"
        )

    def evaluations_after(step: int) -> list[Segment]:
        epoch_ends = step > 0 and (step % batches_per_epoch == 0 or step == total_steps)
        if not (epoch_ends and config.evaluate and test_samples):
            return []
        return [
            Segment(
                kind=SegmentKind.EVALUATE,
                epoch=(step - 1) // batches_per_epoch,
                first_batch=0,
                batches=-(-test_samples // config.batch_size),
                first_step=step,
                samples=test_samples,
                batch_size=config.batch_size,
                checkpoint=False,
            )
        ]

    schedule = evaluations_after(steps_done)
    for first, last in _training_spans(steps_done, total_steps, batches_per_epoch, config.checkpoint_every_steps):
        epoch, first_batch = divmod(first, batches_per_epoch)
        due = bool(config.checkpoint_every_steps) and last % config.checkpoint_every_steps == 0
        training = Segment(
            kind=SegmentKind.TRAIN,
            epoch=epoch,
            first_batch=first_batch,
            batches=last - first,
            first_step=first,
            samples=train_samples,
            batch_size=config.batch_size,
            checkpoint=due or (config.checkpoint_at_end and last == total_steps),
        )
        schedule += [training, *evaluations_after(last)]
    return schedule


def without_effect(config: TrainConfig, train_samples: int, test_samples: int) -> list[str]:
    """What the settings ask for and a run of this length does not do, a line each; see `build_schedule`."""
    batches_per_epoch, total_steps = _lengths(config, train_samples)
    remarks = []
    if config.max_steps > config.epochs * batches_per_epoch:
        remarks.append(
            f"train.max_steps = {config.max_steps}: train.epochs = {config.epochs} ends the run sooner, after "
            f"{total_steps} steps; set more epochs to train longer"
        )
    if config.checkpoint_every_steps > total_steps:
        when = "before its end" if config.checkpoint_at_end else "at all (train.checkpoint_at_end = false)"
        remarks.append(
            f"train.checkpoint_every_steps = {config.checkpoint_every_steps}: the run has {total_steps} steps, so it "
            f"writes no checkpoint {when}"
        )
    if config.evaluate and not test_samples:
        remarks.append(
            "train.evaluate = true: the data has no test rows, so nothing is evaluated "
            "(bagpipe prepare --test-fraction sets some aside)"
        )
    return remarks


def _lengths(config: TrainConfig, train_samples: int) -> tuple[int, int]:
    """Batches of an epoch and steps of the run."""
    batches_per_epoch = -(-train_samples // config.batch_size)
    total_steps = config.epochs * batches_per_epoch
    return batches_per_epoch, min(total_steps, config.max_steps) if config.max_steps else total_steps


def _require_countable(config: TrainConfig, batches_per_epoch: int, total_steps: int) -> None:
    epochs = -(-total_steps // batches_per_epoch)
    checkpoints = total_steps // config.checkpoint_every_steps if config.checkpoint_every_steps else 0
    if epochs + checkpoints > _MOST_SEGMENTS:
        settings = f"train.epochs = {config.epochs}, train.checkpoint_every_steps = {config.checkpoint_every_steps}"
        raise ConfigError(
            f"{settings}: a run of {epochs} epochs and {checkpoints} checkpoints between; use {_MOST_SEGMENTS} of both "
            "together at most: every rank holds a list of them"
        )


def training_batch_sizes(schedule: Iterable[Segment]) -> list[int]:
    """Samples of each training step of a run, in order."""
    segments = [segment for segment in schedule if segment.is_training]
    ranges = [segment.sample_range(batch) for segment in segments for batch in range(segment.batches)]
    return [last - first for first, last in ranges]


def _training_spans(
    first: int, total_steps: int, batches_per_epoch: int, checkpoint_every: int
) -> Iterator[tuple[int, int]]:
    """Cut the steps from `first` on at the ends of epochs and at checkpoints."""
    while first < total_steps:
        last = min(total_steps, (first // batches_per_epoch + 1) * batches_per_epoch)
        if checkpoint_every:
            last = min(last, (first // checkpoint_every + 1) * checkpoint_every)
        yield first, last
        first = last
