"""The settings of `fae`. Standard library only."""

from dataclasses import dataclass

from bagpipe_hpc.config.doors import SettingError


@dataclass(frozen=True)
class FaeSettings:
    """Batches of hot samples and cold batches in turn (FAE, Adnan et al. 2021)."""

    profile: str = ""
    """File for the hot rows and samples, which is made if it is missing (`bagpipe profile` makes it beforehand); a
    relative name is one in the folder `data.path`. Empty: `hot_rows-N-P-S.h5` there, by `hot_rows`, `sample_percent`
    and `train.seed`."""
    hot_rows: int = 0
    """The most hot rows, over all tables together. 0: what `cache.rows` leaves beside the rows of a batch, and half of
    it at least; without `cache.rows`, what fits into 256 MiB."""
    sample_percent: float = 5.0
    """Share of the training samples, in percent, whose look-ups tell which rows are hot; drawn by `train.seed`."""
    share_percent: int = 100
    """Share of the cold samples of an epoch, in percent, that come before the same share of the hot ones, and so on in
    turn. 100: all cold samples, then all hot ones."""
    adapt_share: bool = False
    """Whether that share is only the first one (50 in the paper), and adapts to the test loss: halved, to 1 at least,
    if the loss has risen after hot samples; doubled, to 100 at most, if it fell four times in a row. The hot samples of
    a turn then end at an evaluation, which `train.evaluate_every_steps` asks for."""
    replay: str = ""
    """Output folder of a run whose decisions are taken over: the test losses by which the share adapts; with
    `slipstream`, which rows are stale in each epoch. Empty decides anew."""

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
