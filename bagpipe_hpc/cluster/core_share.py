"""How many threads each trainer can have, from the cores that the trainers may use. Pure."""

from collections.abc import Mapping, Sequence

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.terminal import counted

_THREADS_A_CORE = 16
"""Most threads a core. It is more than one, so that sums can have the order that they have on a larger host; with
hundreds, the host does nothing else."""


def require_cores(threads: Mapping[str, int], cores: int) -> None:
    """Check that settings do not ask for far more threads than a host has cores.

    Args:
        threads: of one process, by setting.
        cores: of its host.

    Raises:
        ConfigError: one of the settings asks for too many.
    """
    for setting, count in threads.items():
        if count > cores * _THREADS_A_CORE:
            raise ConfigError(
                f"{setting} = {count}: this host has {counted(cores, 'core')}; use {cores * _THREADS_A_CORE} at most, "
                f"{_THREADS_A_CORE} a core"
            )


def threads_each(trainers: Sequence[tuple[int, frozenset[int]]]) -> int:
    """The number of threads that every trainer can have without taking another's core; at least 1.

    All get the least number that `cores_of` gives one of them: it decides how long a step takes, and in which order
    sums are computed.

    Args:
        trainers: of each trainer the number of its host, and the cores that it may use there.
    """
    return max(1, min(cores_of(trainer, trainers) for trainer in trainers))


def cores_of(trainer: tuple[int, frozenset[int]], trainers: Sequence[tuple[int, frozenset[int]]]) -> int:
    """The number of cores that one trainer has: it shares those that it may use evenly with others of its host.

    Args:
        trainer: one of them.
        trainers: as for `threads_each`.
    """
    return len(trainer[1]) // _sharers(trainer, trainers)


def crowding(threads: int, trainers: Sequence[tuple[int, frozenset[int]]]) -> str:
    """What there is to say where trainers of a host have more threads together than cores; empty where none have.

    Args:
        threads: of each trainer.
        trainers: as for `threads_each`.
    """
    places = dict.fromkeys(trainers)  # most have that of others
    fullest = min(places, key=lambda trainer: len(trainer[1]) / _sharers(trainer, trainers))
    sharers, cores = _sharers(fullest, trainers), len(fullest[1])
    if sharers * threads <= cores:
        return ""
    return (
        f"{counted(sharers, 'trainer')} with {counted(threads, 'thread')} each on {counted(cores, 'core')} of a host: "
        "steps take longer than with a core for each thread"
    )


def _sharers(trainer: tuple[int, frozenset[int]], trainers: Sequence[tuple[int, frozenset[int]]]) -> int:
    """How many trainers may use some of the cores of one of them, itself included."""
    host, cores = trainer
    return sum(other_host == host and not cores.isdisjoint(other) for other_host, other in trainers)
