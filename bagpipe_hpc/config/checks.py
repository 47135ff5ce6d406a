"""Checks that sections make of their values. Standard library only, so that mistakes are reported at once."""

from collections.abc import Sequence

from bagpipe_hpc.config.doors import SettingError

MOST_THREADS = 1024
"""Most threads of one process, as many as the largest hosts have cores. A run also checks against its host's cores."""


def require(holds: bool, key: str, value: object, cure: str) -> None:
    """Refuse the value of a setting unless what it needs holds.

    Raises:
        SettingError: it does not.
    """
    if not holds:
        raise SettingError(key, value, cure)


def require_one_of(key: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        SettingError: it is none.
    """
    require(value in choices, key, value, f"use one of {', '.join(choices)}")


def require_threads(key: str, value: int, default: str) -> None:
    """Refuse a number of threads that no process should have.

    Args:
        key: the setting.
        value: its threads; 0 stands for `default`.
        default: what 0 takes, for the message.

    Raises:
        SettingError: they are too many, or below 0.
    """
    require(0 <= value <= MOST_THREADS, key, value, f"use 1 to {MOST_THREADS} threads, or 0 for {default}")
