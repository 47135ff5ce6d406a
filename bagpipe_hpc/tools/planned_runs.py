"""Runs that commands plan without starting them: their layout, what may be asked of them, what plans cannot know."""

from collections.abc import Sequence
from dataclasses import replace

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.run.feedback.hearing import as_replayed
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.terminal import counted

_FEW = 256
"""Trainers that may always be asked for: planning is fast for so few, even if most have no sample."""


def plain_run(config: Config) -> Run:
    """The run of a configuration from its start, whatever is in its output folder; with the decisions that it replays.

    Raises:
        BagpipeError: as for `prepare_run`.
    """
    return as_replayed(prepare_run(replace(config, train=replace(config.train, resume=""))))


def require_samples(trainers: Sequence[int], config: Config, asked_by: str = "--trainers") -> None:
    """Check that a batch has samples for most trainers: planning for thousands that have none takes hours.

    Args:
        trainers: numbers of trainers.
        config: settings of the run.
        asked_by: the options that ask for them, for the message.

    Raises:
        ConfigError: one of the numbers is too large.
    """
    samples = config.train.batch_size
    if (most := max(trainers)) > max(samples, _FEW):
        raise ConfigError(
            f"{asked_by}: asks for {most} trainers, and a batch has {counted(samples, 'sample')} (train.batch_size): "
            f"ask for {max(samples, _FEW)} at most, or use larger batches"
        )


def run_decisions(run: Run) -> list[str]:
    """What a run decides as it trains, in words; empty where runs move the rows of their plans."""
    decisions = []
    if any(segment.shows_rows for segment in run.schedule):
        decisions.append("leaves samples out as it trains, and takes fewer steps; all are planned here")
    if any(segment.is_heard for segment in run.schedule):
        decisions.append("orders samples by evaluations as it trains; here they come as if these changed nothing")
    if any(segment.may_end for segment in run.schedule):
        decisions.append("may end before its last step, by train.stop_after; all steps are planned here")
    return decisions
