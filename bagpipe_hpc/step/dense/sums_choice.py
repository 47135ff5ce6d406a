"""What sums the dense gradients of a run: one choice for all trainers, which have to take part in the same way.

`train.dense_sums` names it, or says `auto`: then messages over a grid do with many trainers, else Horovod where its
thread has a core, and messages elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bagpipe_hpc.cluster.core_share import cores_of, threads_each

AUTO = "auto"
GRID_FROM_TRAINERS = 64
"""From so many trainers on `auto` takes the grid. A step of 64 is predicted to reach 93 % of linear speed with it, and
81 % with Horovod (docs/simulate.md)."""


class TrainerCores(NamedTuple):
    """Where a trainer computes.

    Attributes:
        host: number of its host.
        cores: that it may use there.
        threads: of its dense half.
        has_gpu: whether it computes on one.
        has_horovod: whether Horovod is installed there.
        grouped: whether Linux shares its host's cores between sessions (`are_sessions_grouped`).
    """

    host: int
    cores: frozenset[int]
    threads: int
    has_gpu: bool
    has_horovod: bool = True
    grouped: bool = False


@dataclass(frozen=True)
class DenseSumsChoice:
    """What all trainers use.

    Attributes:
        name: as `train.dense_sums` names it.
        reason: for the reader.
        warning: what makes it slow here; empty where nothing is known to.
    """

    name: str
    reason: str
    warning: str = ""

    def __str__(self) -> str:
        return f"sums of dense gradients: {self.name} ({self.reason})"


def choose_dense_sums(setting: str, trainers: Sequence[TrainerCores]) -> DenseSumsChoice:
    """Choose for all trainers.

    Horovod's thread spins while another trainer's is late. Where it takes a core from compute, both come later.

    Args:
        setting: `train.dense_sums`.
        trainers: all of them.
    """
    have_horovod = all(trainer.has_horovod for trainer in trainers)
    if len(trainers) == 1 and (setting == AUTO or not have_horovod):
        return DenseSumsChoice("mpi", "one trainer has nothing to sum")
    if setting != AUTO:
        return DenseSumsChoice(setting, f"train.dense_sums = {setting}", _warning(setting, trainers))
    if have_horovod and all(trainer.has_gpu for trainer in trainers):
        return DenseSumsChoice("horovod", "train.dense_sums = auto: trainers compute on GPUs")
    if len(trainers) >= GRID_FROM_TRAINERS:
        return DenseSumsChoice("grid", f"train.dense_sums = auto: {GRID_FROM_TRAINERS} trainers or more")
    if not have_horovod:
        return DenseSumsChoice("mpi", "train.dense_sums = auto: Horovod is not installed for every trainer")
    share, threads = threads_each([trainer[:2] for trainer in trainers]), max(trainer.threads for trainer in trainers)
    cores = f"train.dense_sums = auto: cores for each trainer: {share}, for its threads: {threads}"
    if share > threads:
        return DenseSumsChoice("horovod", f"{cores}, and one for Horovod's")
    return DenseSumsChoice("mpi", f"{cores}, and none for Horovod's")


def _warning(setting: str, trainers: Sequence[TrainerCores]) -> str:
    """That threads may stand still, where more trainers than cores wait for Horovod's; or that a grid suits so many.

    Horovod's threads wait by yielding, and Linux has been seen to leave threads of other sessions waiting for a core
    meanwhile, 0.3 s and longer, where it shares cores between sessions. Trainers with GPUs have not been measured so.
    """
    places = [trainer[:2] for trainer in trainers]
    on_cores = [trainer for trainer in trainers if not trainer.has_gpu]
    if setting != "horovod" or not on_cores:
        return ""
    if any(trainer.grouped and not cores_of(trainer[:2], places) for trainer in on_cores):
        return (
            "more trainers than cores on a host, Horovod's threads beside them, and Linux shares cores between "
            "sessions (kernel.sched_autogroup_enabled = 1): ranks may stand still for tenths of a second; "
            "train.dense_sums=auto sums by messages there"
        )
    if len(trainers) >= GRID_FROM_TRAINERS:
        return (
            f"{len(trainers)} trainers: sums by Horovod are predicted to make steps longer than sums over a grid do "
            "(docs/simulate.md); train.dense_sums=auto takes a grid"
        )
    return ""
