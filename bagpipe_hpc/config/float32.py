"""Numbers of a configuration that rows and weights are computed with: in float32. Standard library only."""

from bagpipe_hpc.config.doors import SettingError

LARGEST_BELOW_1 = 1 - 2.0**-24
"""The largest float32 below 1; a decay that is rounded to 1 never forgets."""
_SMALLEST, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
_POSITIVE = "a number above 0 that float32 can hold, 1.2e-38 to 3.4e+38"


def require_positive(key: str, value: float, otherwise: str = "") -> None:
    """Check that a number is above 0, and as float32 is still above 0 and finite.

    Args:
        key: the setting.
        value: the number.
        otherwise: what else it might be, for the message.

    Raises:
        SettingError: it is not.
    """
    if not _SMALLEST <= value <= _LARGEST:
        raise SettingError(key, value, f"use {otherwise}{_POSITIVE}")


def require_decay(key: str, value: float) -> None:
    """Check that a running mean can be multiplied by a number in each step: it is from 0 to below 1.

    Raises:
        SettingError: it is not.
    """
    if not 0 <= value <= LARGEST_BELOW_1:
        raise SettingError(key, value, f"use a number from 0 to below 1, {LARGEST_BELOW_1:.8f} (the largest float32)")


def require_not_negative(key: str, value: float) -> None:
    """Check that a number is 0 or more, and stays finite as float32.

    Raises:
        SettingError: it is not.
    """
    if not 0 <= value <= _LARGEST:
        raise SettingError(key, value, "use 0, or a number above it that float32 can hold")


def is_float32(value: float) -> bool:
    """Whether a number stays finite as float32; it may be so small that it becomes 0."""
    return -_LARGEST <= value <= _LARGEST
