"""Numbers of a configuration that rows and weights are computed with: in float32. Standard library only."""

from bagpipe_hpc.config.doors import SettingError

LARGEST_BELOW_1 = 1 - 2.0**-24
"""The largest float32 below 1; a decay that is rounded to 1 never forgets."""
_SMALLEST, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
_POSITIVE = "a number above 0 that float32 can hold, 1.2e-38 to 3.4e+38"


def require_positive(key: str, value: float, otherwise: str = "") -> None:
    """See that a number is above 0, and stays so, and finite, as float32.

    Args:
        key: the setting.
        value: the number.
        otherwise: what else it might be, for the message.

    Raises:
        SettingError: it does not.
    """
    if not _SMALLEST <= value <= _LARGEST:
        raise SettingError(key, value, f"use {otherwise}{_POSITIVE}")


def is_float32(value: float) -> bool:
    """Whether a number stays finite as float32; one so small that it becomes 0 does."""
    return -_LARGEST <= value <= _LARGEST
