"""What a rank finds around it before it has a role: the GPUs and the memory that it may use.

Torch could count the GPUs, but oracle and servers do without it, so the environment has to say it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.cluster.role_placement import RankPlace

_GPUS_OF_DRIVER = Path("/proc/driver/nvidia/gpus")
_MEGABYTE = 1 << 20
"""Slurm's unit of memory."""
_NO_DEVICE = ("", "-1", "NoDevFiles")
"""CUDA sees none of the GPUs from such an entry of CUDA_VISIBLE_DEVICES on; Slurm wrote the last one."""


@dataclass(frozen=True)
class RankFacts:
    """What one rank knows.

    Attributes:
        visible_gpus: entries of CUDA_VISIBLE_DEVICES; None where it is not set, so that no GPU is hidden.
        allotted_gpus: GPUs of this host that Slurm gave the job; 0 where it does not say. SLURM_JOB_GPUS is not asked:
            srun hands on that of the node where the job's script runs.
        installed_gpus: GPUs that the driver has on this host.
        memory_bytes: memory of this host that the job may use.
    """

    visible_gpus: tuple[str, ...] | None
    allotted_gpus: int
    installed_gpus: int
    memory_bytes: int

    @classmethod
    def here(cls) -> "RankFacts":
        """What this process finds."""
        installed_gpus = len(list(_GPUS_OF_DRIVER.iterdir())) if _GPUS_OF_DRIVER.is_dir() else 0
        return cls.of(os.environ, installed_gpus, free_bytes())

    @classmethod
    def of(cls, environment: Mapping[str, str], installed_gpus: int, free_bytes: int) -> "RankFacts":
        """Read an environment; pure.

        Args:
            environment: of the rank.
            installed_gpus: as in the attributes.
            free_bytes: memory that is free here; the job's share is not more, whatever Slurm says.
        """
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        step_gpus = environment.get("SLURM_STEP_GPUS", "")
        listed = len(step_gpus.split(",")) if step_gpus else 0
        per_core = _number(environment, "SLURM_MEM_PER_CPU") * _number(environment, "SLURM_CPUS_ON_NODE")
        allotted_bytes = (_number(environment, "SLURM_MEM_PER_NODE") or per_core) * _MEGABYTE
        if "SLURM_HET_SIZE" in environment:  # all components have the variables of the first one
            allotted_bytes = 0
        return cls(
            visible_gpus=None if visible is None else _usable(visible),
            allotted_gpus=_number(environment, "SLURM_GPUS_ON_NODE") or listed,
            installed_gpus=installed_gpus,
            memory_bytes=min(allotted_bytes or free_bytes, free_bytes),
        )


def _number(environment: Mapping[str, str], name: str) -> int:
    """A variable's number; 0 where there is none."""
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else 0


def _usable(visible: str) -> tuple[str, ...]:
    entries = [entry.strip() for entry in visible.split(",")]
    return tuple(entries[: next((at for at, entry in enumerate(entries) if entry in _NO_DEVICE), len(entries))])


def rank_places(facts: Sequence[RankFacts], hosts: Sequence[int], *, use_gpus: bool = True) -> list[RankPlace]:
    """The places that the ranks have, from what all of them know; pure.

    A launcher hands the environment of its own host to all others, so CUDA_VISIBLE_DEVICES may speak of that one. Where
    Slurm says of some hosts that they have GPUs, or where some have NVIDIA's driver, the others have none.

    Args:
        facts: of each rank.
        hosts: number of each rank's host.
        use_gpus: whether the run wants any.
    """
    some_have_driver, some_were_allotted = any(f.installed_gpus for f in facts), any(f.allotted_gpus for f in facts)
    gpus, memory_bytes, have_their_own = {}, {}, {}
    for host in set(hosts):
        here = [fact for fact, where in zip(facts, hosts, strict=True) if where == host]
        has_driver = any(fact.installed_gpus for fact in here) or not some_have_driver
        was_allotted = any(fact.allotted_gpus for fact in here) or not some_were_allotted
        gpus[host] = _gpus(here) if use_gpus and has_driver and was_allotted else 0
        have_their_own[host] = _have_their_own(here)
        memory_bytes[host] = min(fact.memory_bytes for fact in here)
    groups: dict[object, int] = {}
    places = []
    for rank, (fact, host) in enumerate(zip(facts, hosts, strict=True)):
        sees = rank if have_their_own[host] else fact.visible_gpus
        group = groups.setdefault((host, sees), rank)
        places.append(RankPlace(host, gpus[host], memory_bytes[host], group))
    return places


def _gpus(ranks: Sequence[RankFacts]) -> int:
    """GPUs of a host that its ranks may use."""
    allotted = max(rank.allotted_gpus for rank in ranks)
    if any(rank.visible_gpus is None for rank in ranks):
        return allotted or max(rank.installed_gpus for rank in ranks)
    if _have_their_own(ranks):
        return min(allotted, sum(bool(rank.visible_gpus) for rank in ranks))
    return len(_seen(ranks))


def _seen(ranks: Sequence[RankFacts]) -> set[str]:
    return {gpu for rank in ranks for gpu in rank.visible_gpus or ()}


def _have_their_own(ranks: Sequence[RankFacts]) -> bool:
    """Whether each rank of a host was given a GPU of its own under the same number, as Slurm does by control groups."""
    allotted = max(rank.allotted_gpus for rank in ranks)
    sees_one = all(rank.visible_gpus is not None and len(rank.visible_gpus) <= 1 for rank in ranks)
    return sees_one and 1 <= len(_seen(ranks)) < min(allotted, len(ranks))
