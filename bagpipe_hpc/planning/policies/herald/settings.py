"""Settings of the policy `herald`."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError


@dataclass(frozen=True)
class HeraldSettings:
    """Which parts of Herald are used."""

    location_aware: bool = True
    """Give samples to trainers by the rows that these hold; false: contiguous slices."""
    on_demand: bool = True
    """Write a row back only when another trainer reads it next or its slot is needed; false: after each update."""
    telling_features: int = 0
    """Consider only so many features of a sample, those of the largest tables; 0: all features."""

    def __post_init__(self) -> None:
        """Refuse what there is not."""
        if self.telling_features < 0:
            raise SettingError("telling_features", self.telling_features, "use 1 or more features, or 0 for all")
        if self.telling_features and not self.location_aware:
            cure = "has no effect with location_aware = false: leave it out, or set policy.location_aware to true"
            raise SettingError("telling_features", self.telling_features, cure)
