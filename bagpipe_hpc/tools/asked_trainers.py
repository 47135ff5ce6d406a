"""How many trainers may be asked about, without any of them."""

from collections.abc import Sequence

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError


def require_samples(trainers: Sequence[int], config: Config, asked_by: str = "--trainers") -> None:
    """See that a batch has a sample for each trainer: planning for thousands that have none takes hours.

    Args:
        trainers: numbers of trainers.
        config: of the run.
        asked_by: what asks for them.

    Raises:
        ConfigError: one of them is too large.
    """
    samples = config.train.batch_size
    if (most := max(trainers)) > samples:
        raise ConfigError(
            f"{asked_by}: asks for {most} trainers, and a batch has {samples} samples (train.batch_size): ask for "
            f"{samples} at most, or use larger batches"
        )
