"""Exceptions whose message names what is wrong and how to cure it.

Every error that a user can cause derives from `BagpipeError`; the command line prints its text alone,
without a traceback. Anything else is a defect and is shown in full.
"""


class BagpipeError(Exception):
    """Base of all errors that are expected to reach a user."""


class ConfigError(BagpipeError):
    """A configuration file, an override or a combination of settings is wrong."""


class DataError(BagpipeError):
    """Input rows or a shard directory are malformed, damaged, incomplete or do not fit the configuration."""


class CheckpointError(BagpipeError):
    """A checkpoint is missing, damaged, incomplete or does not fit what it is used with."""


class CapacityError(BagpipeError):
    """Something does not fit: the row cache, a server's memory, a disk."""


class ConsistencyError(BagpipeError):
    """What must be equal is not: a row's version and the plan's (`debug.verify_rows`), or trainers' dense weights."""


class WaitTimeoutError(BagpipeError):
    """A wait on another rank or thread outlasted its limit; the message names what was waited for."""

    @classmethod
    def after(cls, timeout_s: float, what: str) -> "WaitTimeoutError":
        """The error of a wait for `what` that is over after `timeout_s`."""
        return cls(
            f"waited {timeout_s:.0f} s for {what}: a rank is stopped, or the network is down or far too slow "
            "(train.timeout_s sets the limit)"
        )


class OutputError(BagpipeError):
    """A file of the output folder cannot be written: a disk that is full or read-only, missing permissions."""


class DivergenceError(BagpipeError):
    """The loss, a row, a dense weight or a prediction is NaN or infinite."""


class FileError(BagpipeError):
    """The system refuses a file or a folder, or it is not of the kind that is wanted."""
