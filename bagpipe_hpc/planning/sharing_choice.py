"""Where rows live that several trainers use: one choice for all ranks, since plans and trainers must agree.

`cache.sharing` names it, or says `auto`: then each row has one home where there are several trainers, the policy has
planners for that, and trainers compute on CPUs. With `tiered` a policy says for each row who holds it
(`planning/homes/tiers.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

AUTO, HOME, REPLICATED, TIERED = "auto", "home", "replicated", "tiered"


def has_homes(sharing: str) -> bool:
    """Whether rows live at one trainer each, or most of them do."""
    return sharing in (HOME, TIERED)


@dataclass(frozen=True)
class SharingChoice:
    """Where a run's shared rows live.

    Attributes:
        name: a value of `cache.sharing`, never `auto`.
        reason: why, for the log.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        what = {
            HOME: "at one trainer each",
            REPLICATED: "at every trainer that holds any",
            TIERED: "at every trainer, at one of each host, or at one, as the policy says",
        }
        return f"rows live {what.get(self.name, self.name)}: {self.name} ({self.reason})"


def choose_sharing(setting: str, known: Sequence[str], trainers: int, *, on_gpus: bool = False) -> SharingChoice:
    """Choose for all ranks.

    With two trainers on two cores homes are as fast as replicas, and with more trainers caches and sums become smaller
    (benchmarks/notes/2026-11-23-home-at-two-trainers.md). On GPUs homes were not measured yet.

    Args:
        setting: `cache.sharing`.
        known: the values for which the policy has planners.
        trainers: number of trainers.
        on_gpus: whether any trainer computes on a GPU.
    """
    if setting != AUTO:
        return SharingChoice(setting, f"cache.sharing = {setting}")
    if HOME not in known:
        return SharingChoice(known[0], "cache.sharing = auto: the policy plans for nothing else")
    if REPLICATED not in known:
        return SharingChoice(HOME, "cache.sharing = auto: the policy plans for nothing else")
    if trainers == 1:
        return SharingChoice(REPLICATED, "cache.sharing = auto: there is one trainer")
    if on_gpus:
        return SharingChoice(REPLICATED, "cache.sharing = auto: trainers compute on GPUs")
    return SharingChoice(HOME, f"cache.sharing = auto: {trainers} trainers on CPUs")
