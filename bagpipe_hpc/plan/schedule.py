"""The run as a list of segments that every rank derives alone from the configuration and the data's size. Pure.

A segment is a run of consecutive batches at whose end every row is back on its server and every cache is empty: the
training steps up to the next evaluation or checkpoint, an evaluation, or a prediction of samples without labels.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from bagpipe_hpc.config.schema import TrainConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.slices import slice_bounds
from bagpipe_hpc.terminal import counted

_MOST_SEGMENTS = 100_000


class SegmentKind(Enum):
    """What the batches of a segment are for."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"


@dataclass(frozen=True)
class Segment:
    """Consecutive batches of one epoch.

    Attributes:
        kind: training, evaluation or prediction.
        epoch: epoch of the training samples, from 0; an evaluation carries the epoch that it follows.
        first_batch: position of the first batch in its epoch.
        batches: number of batches; those that are trained on may be fewer where the policy leaves samples out.
        first_step: training steps done before this segment.
        samples: samples of the split that the batches are cut from.
        batch_size: samples of a batch; the last batch of an epoch may be smaller.
        checkpoint: whether a checkpoint is written at the segment's end.
        is_judged: whether it is an evaluation that is compared with others, which all are of the same samples.
        may_end: whether training may end after it, for want of a better one: the oracle waits for the trainers' word.
        split: `train` or `test`: which samples are evaluated or predicted; training is on those of `train`.
        slices: each batch of `batch_size` samples is cut into so many slices, and these are the batches of the segment:
            one trainer has each of them. 0: batches are whole, and all trainers share each of them.
        shows_rows: whether the policy is shown rows when the segment has ended (`Policy.watched`).
        is_heard: whether it is an evaluation by which the policy orders the samples that are left (`Policy.hears`).
        heard: those of before the segment, in their order; the order of its samples goes by them.
    """

    kind: SegmentKind
    epoch: int
    first_batch: int
    batches: int
    first_step: int
    samples: int
    batch_size: int
    checkpoint: bool
    is_judged: bool = False
    may_end: bool = False
    split: str = "test"
    slices: int = 0
    shows_rows: bool = False
    is_heard: bool = False
    heard: tuple[Heard, ...] = ()

    @property
    def is_training(self) -> bool:
        """Whether rows and weights are updated."""
        return self.kind is SegmentKind.TRAIN

    @property
    def last_step(self) -> int:
        """Training steps done when the segment has ended, with those that were passed over."""
        return self.first_step + (self.batches if self.is_training else 0)

    def passed_over(self, batches: int) -> str:
        """What is to be said where the samples that stay make so many batches; empty if these are all."""
        if batches == self.batches:
            return ""
        steps = f"steps {self.first_step + batches + 1} to {self.last_step} are passed over"
        return f"{steps}: the samples that are not left out fill {batches} of {self.batches} batches"

    def sample_range(self, batch: int) -> tuple[int, int]:
        """Positions of a batch (from 0 in this segment) in the epoch's order: the first, and one after the last."""
        slices = self.slices or 1
        number, part = divmod(batch, slices)
        first = (self.first_batch + number) * self.batch_size
        bounds = slice_bounds(min(self.batch_size, self.samples - first), slices)
        return first + bounds[part], first + bounds[part + 1]


def build_schedule(
    config: TrainConfig,
    train_samples: int,
    test_samples: int,
    steps_done: int = 0,
    data_step: int = 0,
    shown_before: Sequence[int] = (),
    *,
    hears: bool = False,
) -> list[Segment]:
    """All segments of a run in order, or those that are left of it.

    Args:
        config: length of the run, and where it is cut.
        train_samples: samples of the training split.
        test_samples: samples of the test split.
        steps_done: steps of the checkpoint that the run goes on from. An evaluation at that step comes after the
            checkpoint, so it is one of the segments that are left.
        data_step: how many of them were on earlier rows. The length of the run and where it is cut count from there.
        shown_before: batches of an epoch, from 1, before which a segment ends and the policy is shown rows.
        hears: whether the policy orders samples by evaluations, which are compared then.

    Raises:
        ConfigError: there is nothing to train on, the checkpoint is beyond the run's end, or there are too many
            segments.
    """
    if train_samples < 1:
        raise ConfigError("the data has no training rows: prepare more rows, or a smaller --test-fraction")
    batches_per_epoch, total_steps = _lengths(config, train_samples)
    _require_countable(config, batches_per_epoch, total_steps)
    _require_comparable(config, test_samples)
    if hears:
        _require_heard(config, test_samples)
    if steps_done - data_step > total_steps:
        raise ConfigError(
            f"the checkpoint is of step {steps_done}, and the run ends with step {data_step + total_steps}: set a "
            "larger train.epochs or train.max_steps, or resume from an earlier checkpoint"
        )
    make = _Segments(config, train_samples, test_samples, batches_per_epoch, total_steps, shown_before, hears)
    schedule = make.evaluations_after(steps_done - data_step)
    cuts = _cuts(config, batches_per_epoch, test_samples)
    for first, last in _training_spans(steps_done - data_step, total_steps, cuts, batches_per_epoch, shown_before):
        schedule += [make.training(first, last), *make.evaluations_after(last)]
    return [replace(segment, first_step=data_step + segment.first_step) for segment in schedule]


class _Segments(NamedTuple):
    """Makes the segments of a run, whose steps count from the first on its rows; arguments as for `build_schedule`."""

    config: TrainConfig
    train_samples: int
    test_samples: int
    batches_per_epoch: int
    total_steps: int
    shown_before: Sequence[int]
    hears: bool

    def training(self, first: int, last: int) -> Segment:
        """The steps behind `first` up to `last`, all of one epoch."""
        config = self.config
        epoch, first_batch = divmod(first, self.batches_per_epoch)
        due = bool(config.checkpoint_every_steps) and last % config.checkpoint_every_steps == 0
        return Segment(
            kind=SegmentKind.TRAIN,
            epoch=epoch,
            first_batch=first_batch,
            batches=last - first,
            first_step=first,
            samples=self.train_samples,
            batch_size=config.batch_size,
            checkpoint=due or (config.checkpoint_at_end and last == self.total_steps),
            shows_rows=last < self.total_steps and last % self.batches_per_epoch in self.shown_before,
        )

    def evaluations_after(self, step: int) -> list[Segment]:
        """Those that are due behind a step: of all test rows, of those by which evaluations are compared, or both."""
        config = self.config
        epoch_ends = step > 0 and (step % self.batches_per_epoch == 0 or step == self.total_steps)
        is_due = step > 0 and config.evaluate_every_steps > 0 and step % config.evaluate_every_steps == 0
        if not ((epoch_ends or is_due) and config.evaluate and self.test_samples):
            return []
        compares = config.keep_best or config.stop_after > 0 or self.hears
        judged = judged_samples(config, self.test_samples)
        sizes = [self.test_samples] if epoch_ends else [judged]
        if epoch_ends and compares and judged != self.test_samples:
            sizes.append(judged)  # last, since training may end after it
        return [self._evaluation(step, samples, is_judged=samples == judged) for samples in sizes]

    def _evaluation(self, step: int, samples: int, *, is_judged: bool) -> Segment:
        goes_on = step < self.total_steps
        return Segment(
            kind=SegmentKind.EVALUATE,
            epoch=(step - 1) // self.batches_per_epoch,
            first_batch=0,
            batches=-(-samples // self.config.batch_size),
            first_step=step,
            samples=samples,
            batch_size=self.config.batch_size,
            checkpoint=False,
            is_judged=is_judged,
            may_end=is_judged and self.config.stop_after > 0 and goes_on,
            is_heard=is_judged and self.hears and goes_on,
        )


def ends_segment(config: TrainConfig, train_samples: int, test_samples: int, step: int) -> bool:
    """Whether a segment ends with a step on the run's rows, apart from those that end to show the policy rows."""
    batches_per_epoch, total_steps = _lengths(config, train_samples)
    every = _cuts(config, batches_per_epoch, test_samples)
    return step == total_steps or any(step % steps == 0 for steps in every if steps)


def scoring_segment(
    kind: SegmentKind,
    split: str,
    samples: int,
    batch_size: int,
    trained: tuple[int, int],
    trainers: int,
    trained_by: int,
) -> Segment:
    """The one segment of a run that scores a checkpoint, in the slices that evaluations in training had.

    A row of a matrix product may depend, in its last bit, on how many rows there are. So the same logits come from the
    same slices alone. Where there are as many trainers as then, they share batches as then; other numbers of trainers
    take the slices of then one by one.

    Args:
        kind: evaluation or prediction.
        split: `train` or `test`.
        samples: of the split, 1 or more.
        batch_size: of the training.
        trained: steps and epochs that the checkpoint was trained, the epoch from 0.
        trainers: of this run.
        trained_by: as many trainers had evaluated the checkpoint.
    """
    step, epoch = trained
    slices = 0 if trainers == trained_by else min(trained_by, batch_size)
    whole, rest = divmod(samples, batch_size)
    of_batch = slices or 1
    return Segment(
        kind=kind,
        epoch=epoch,
        first_batch=0,
        batches=whole * of_batch + min(rest, of_batch),  # a rest of fewer samples than slices has empty ones at its end
        first_step=step,
        samples=samples,
        batch_size=batch_size,
        checkpoint=False,
        split=split,
        slices=slices,
    )


def without_effect(config: TrainConfig, train_samples: int, test_samples: int) -> list[str]:
    """What the settings ask for and a run of this length does not do, a line each; see `build_schedule`."""
    batches_per_epoch, total_steps = _lengths(config, train_samples)
    remarks = []
    if config.max_steps > config.epochs * batches_per_epoch:
        remarks.append(
            f"train.max_steps = {config.max_steps}: train.epochs = {config.epochs} ends the run sooner, after "
            f"{counted(total_steps, 'step')}; set more epochs to train longer"
        )
    if config.checkpoint_every_steps > total_steps:
        when = "before its end" if config.checkpoint_at_end else "at all (train.checkpoint_at_end = false)"
        remarks.append(
            f"train.checkpoint_every_steps = {config.checkpoint_every_steps}: the run has {total_steps} steps, so it "
            f"writes no checkpoint {when}"
        )
    if config.evaluate_every_steps and not config.evaluate:
        remarks.append(f"train.evaluate_every_steps = {config.evaluate_every_steps}: train.evaluate = false goes first")
    if config.evaluate_every_steps > total_steps:
        remarks.append(
            f"train.evaluate_every_steps = {config.evaluate_every_steps}: the run has {total_steps} steps, so it is "
            "evaluated at the ends of epochs alone"
        )
    if config.evaluate_samples and not config.evaluate_every_steps:
        remarks.append(
            f"train.evaluate_samples = {config.evaluate_samples}: it is for evaluations within an epoch, of which "
            "train.evaluate_every_steps = 0 makes none"
        )
    if config.auc_group and test_samples > config.exact_auc_samples:
        remarks.append(
            f"train.auc_group = {config.auc_group!r}: evaluations of all {test_samples} test rows have no AUC by "
            f"group, since these are more than train.exact_auc_samples = {config.exact_auc_samples}"
        )
    if config.evaluate and not test_samples:
        remarks.append(
            "train.evaluate = true: the data has no test rows, so nothing is evaluated "
            "(bagpipe prepare --test-fraction sets some aside)"
        )
    return remarks


def _cuts(config: TrainConfig, batches_per_epoch: int, test_samples: int) -> list[int]:
    """Multiples of these numbers of steps end a segment; 0 ends none."""
    evaluates_every = config.evaluate_every_steps if config.evaluate and test_samples else 0
    return [batches_per_epoch, config.checkpoint_every_steps, evaluates_every]


def _lengths(config: TrainConfig, train_samples: int) -> tuple[int, int]:
    """Batches of an epoch and steps of the run."""
    batches_per_epoch = -(-train_samples // config.batch_size)
    total_steps = config.epochs * batches_per_epoch
    return batches_per_epoch, min(total_steps, config.max_steps) if config.max_steps else total_steps


def _require_comparable(config: TrainConfig, test_samples: int) -> None:
    """See that evaluations can be compared where the run depends on it."""
    if not (config.keep_best or config.stop_after):
        return
    asked = "train.keep_best = true" if config.keep_best else f"train.stop_after = {config.stop_after}"
    if not test_samples:
        raise ConfigError(f"{asked}: the data has no test rows to evaluate on; set some aside (--test-fraction)")
    if config.best_by == "group_auc" and (samples := judged_samples(config, test_samples)) > config.exact_auc_samples:
        raise ConfigError(
            f"{asked}, train.best_by = 'group_auc': evaluations of {samples} test rows have no AUC by group, which are "
            f"more than train.exact_auc_samples = {config.exact_auc_samples}; set train.evaluate_every_steps and a "
            "smaller train.evaluate_samples"
        )


def _require_heard(config: TrainConfig, test_samples: int) -> None:
    """See that there are evaluations within an epoch, where the policy orders samples by them."""
    if not (config.evaluate and config.evaluate_every_steps and test_samples):
        raise ConfigError(
            f"train.evaluate_every_steps = {config.evaluate_every_steps}, train.evaluate = "
            f"{str(config.evaluate).lower()}, {test_samples} test rows: the policy orders samples by the test loss "
            "within an epoch; set train.evaluate_every_steps=N and keep some test rows, or let its order be fixed"
        )


def _require_countable(config: TrainConfig, batches_per_epoch: int, total_steps: int) -> None:
    epochs = -(-total_steps // batches_per_epoch)
    checkpoints, evaluations = (
        total_steps // every if every else 0 for every in (config.checkpoint_every_steps, config.evaluate_every_steps)
    )
    if epochs + checkpoints + evaluations > _MOST_SEGMENTS:
        raise ConfigError(
            f"train.epochs = {config.epochs}, train.checkpoint_every_steps = {config.checkpoint_every_steps}, "
            f"train.evaluate_every_steps = {config.evaluate_every_steps}: a run of {epochs} epochs, {checkpoints} "
            f"checkpoints and {evaluations} evaluations between; use {_MOST_SEGMENTS} of them together at most: every "
            "rank holds a list of them"
        )


def training_batch_sizes(schedule: Iterable[Segment]) -> list[int]:
    """Samples of each training step of a run, in order."""
    segments = [segment for segment in schedule if segment.is_training]
    ranges = [segment.sample_range(batch) for segment in segments for batch in range(segment.batches)]
    return [last - first for first, last in ranges]


def judged_samples(config: TrainConfig, test_samples: int) -> int:
    """Test rows of evaluations that are compared: those of evaluations within an epoch, where there are any."""
    return min(config.evaluate_samples or test_samples, test_samples) if config.evaluate_every_steps else test_samples


def _training_spans(
    first: int, total_steps: int, every: Sequence[int], epoch: int, within: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Cut the steps from `first` on wherever a multiple of one of `every` is done; 0 cuts nowhere.

    Each epoch, of `epoch` steps, is cut `within` as well, before these steps of it.
    """
    while first < total_steps:
        begin = first - first % epoch
        ends = [*((first // steps + 1) * steps for steps in every if steps), *(begin + step for step in within)]
        last = min([total_steps, *(end for end in ends if end > first)])
        yield first, last
        first = last
