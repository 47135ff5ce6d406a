"""The settings of `slipstream`. Standard library only."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings


@dataclass(frozen=True)
class SlipstreamSettings(FaeSettings):
    """As `fae`, without hot samples whose rows have stopped moving (Slipstream, 2024); the others fill batches."""

    drop_percent: float = 30.0
    """Share of the hot samples that are left out after the second snapshot of an epoch, in percent; 0: as `fae`."""
    drop_tolerance: float = 8.0
    """How far from it the share among the judged samples may be, in percent of these; if further, none is left out."""
    first_snapshot: int = 1000
    """Hot batches of an epoch before its first snapshot of the hot rows."""
    between_percent: float = 3.0
    """Hot batches between the two snapshots, in percent of those of an epoch, and one more."""
    judged_percent: float = 0.1
    """Share of the remaining hot batches, in percent, whose samples tell what is stale; drawn by `train.seed`."""
    stale_look_ups: int = 0
    """Look-ups of stale rows that a sample needs to be left out; 0: all of its look-ups."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adapt_share:
            cure = (
                "use false: snapshots are taken at batches that are known before the run, which an adaptive share moves"
            )
            raise SettingError("adapt_share", self.adapt_share, cure)
        if not 0 <= self.drop_percent < 100:
            raise SettingError("drop_percent", self.drop_percent, "use a percentage from 0 to below 100")
        if self.replay and not self.drop_percent:
            raise SettingError("replay", self.replay, "a run decides nothing with drop_percent = 0; leave it out")
        if not 0 < self.drop_tolerance <= 100:
            raise SettingError("drop_tolerance", self.drop_tolerance, "use a percentage above 0, up to 100")
        if self.first_snapshot < 0:
            raise SettingError("first_snapshot", self.first_snapshot, "use 0 or more batches")
        if not 0 <= self.between_percent < 100:
            raise SettingError("between_percent", self.between_percent, "use a percentage from 0 to below 100")
        if not 0 < self.judged_percent <= 100:
            raise SettingError("judged_percent", self.judged_percent, "use a percentage above 0, up to 100")
        if self.stale_look_ups < 0:
            raise SettingError("stale_look_ups", self.stale_look_ups, "use 1 look-up or more, or 0 for all of a sample")

    @property
    def decides(self) -> bool:
        """As `FaeSettings.decides`."""
        return True
