"""Settings of the policy `het`."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError

EVICTIONS = ("lru", "lfu", "lfu_pinned")
_PIN_AFTER = 10


@dataclass(frozen=True)
class HetSettings:
    """How stale rows may be, and which leave a full cache."""

    staleness: int = 100
    """A trainer goes on reading its copy of a row as long as that misses no more than this many updates that others
    have added, and keeps back as many of its own before it adds them; with 0 every look-up sees all updates of the
    batches before."""
    eviction: str = "lru"
    """Which rows leave a cache that is full: `lru`, those used longest ago; `lfu`, those used in the fewest batches
    since they came; `lfu_pinned`, the same, but rows used in `pin_after` batches stay."""
    pin_after: int = _PIN_AFTER
    """For `lfu_pinned`: the number of batches that use a row before it stays."""

    def __post_init__(self) -> None:
        """Refuse what there is not."""
        if self.staleness < 0:
            raise SettingError("staleness", self.staleness, "use 0 or more updates")
        if self.eviction not in EVICTIONS:
            raise SettingError("eviction", self.eviction, f"use one of {', '.join(EVICTIONS)}")
        if self.pin_after < 2:
            raise SettingError("pin_after", self.pin_after, "use 2 or more batches: all rows would stay")
        if self.pin_after != _PIN_AFTER and self.eviction != "lfu_pinned":
            cure = (
                f"has no effect with eviction = {self.eviction!r}: leave it out, or set policy.eviction to lfu_pinned"
            )
            raise SettingError("pin_after", self.pin_after, cure)
