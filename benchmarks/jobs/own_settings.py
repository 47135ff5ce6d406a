"""Settings that a benchmark makes for its runs, and the user's beside them."""

from collections.abc import Iterable

from bagpipe_hpc.errors import ConfigError


def require_free(overrides: Iterable[str], own: Iterable[str]) -> None:
    """See that the user's settings are none of those that a benchmark makes itself: its figures would be mislabelled.

    Args:
        overrides: the user's, each `section.field=value`.
        own: the benchmark's, likewise.

    Raises:
        ConfigError: one is.
    """
    taken = {_key(setting) for setting in own}
    for override in overrides:
        if (key := _key(override)) in taken:
            raise ConfigError(f"--set {override}: the benchmark sets {key} itself; leave it out (see --help)")


def _key(setting: str) -> str:
    return setting.partition("=")[0].strip()
