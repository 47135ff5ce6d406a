"""The settings of `fae`. Standard library only."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError


@dataclass(frozen=True)
class FaeSettings:
    """Batches of hot samples and cold batches in turn (FAE, Adnan et al. 2021)."""

    profile: str = ""
    """File for the hot rows and samples, which is made where it is not there (`bagpipe profile` makes it beforehand); a
    relative name is one in the folder `data.path`. Empty: `hot_rows-N-P-S.h5` there, by `hot_rows`, `sample_percent`
    and `train.seed`."""
    hot_rows: int = 0
    """Most hot rows, those of all tables together. 0: what `cache.rows` leaves beside the rows of a batch, and half of
    it at least; without `cache.rows`, what fits 256 MiB."""
    sample_percent: float = 5.0
    """Share of the training samples whose look-ups tell which rows are hot, in percent, drawn by `train.seed`."""
    share_percent: int = 100
    """Share of the cold samples of an epoch that come before as large a share of the hot ones, and so in turn, in
    percent. 100: all cold ones, then all hot ones."""
    adapt_share: bool = False
    """Whether that share is only the first one (50 in the paper), and adapts to the test loss: halved, to 1 at least,
    where the loss has risen behind hot samples, doubled, to 100 at most, where it fell four times in a row. Hot samples
    then end at evaluations, which `train.evaluate_every_steps` asks for."""
    replay: str = ""
    """Output folder of a run whose decisions are taken over: by which test losses the share adapts; with `slipstream`,
    which rows are stale in each epoch. Empty decides anew."""

    def __post_init__(self) -> None:
        if self.hot_rows < 0:
            raise SettingError("hot_rows", self.hot_rows, "use 1 or more, or 0 for what the cache has room for")
        if not 0 < self.sample_percent <= 100:
            raise SettingError("sample_percent", self.sample_percent, "use a percentage above 0, up to 100")
        if not 1 <= self.share_percent <= 100:
            raise SettingError("share_percent", self.share_percent, "use 1 to 100")
        if self.replay and not self.decides:
            raise SettingError("replay", self.replay, "a run decides nothing with adapt_share = false; leave it out")

    @property
    def decides(self) -> bool:
        """Whether a run makes decisions that another one may take over."""
        return self.adapt_share
