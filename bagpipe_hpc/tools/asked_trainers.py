"""How many trainers a command may plan for without starting them."""

from collections.abc import Sequence

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.terminal import counted

_FEW = 256
"""Trainers that may always be asked for: planning is fast for so few, even if most have no sample."""


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
