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
    """A trainer read a row whose version is not the one that the plan promised (`debug.verify_rows`)."""


class WaitTimeoutError(BagpipeError):
    """A wait on another rank or thread outlasted its limit; the message names what was waited for."""
