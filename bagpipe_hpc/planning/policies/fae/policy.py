"""FAE (Adnan, Maboud, Mahajan, Nair, PVLDB 15(1), arXiv 2103.00686) as a policy; docs/policies.md has its rules."""

import logging

import numpy as np

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.plan.section_order import Section, SectionOrder
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.fae.adaptive import Epochs, Share
from bagpipe_hpc.planning.policies.fae.order import hot_cold_order, sections
from bagpipe_hpc.planning.policies.fae.planner import WINDOW, HotBlockPlanner
from bagpipe_hpc.planning.policies.fae.profile import make_profile, read_profile
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policy import Policy, RunFacts, TrainingRows
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window

log = logging.getLogger(__name__)


class FaePolicy(Policy):
    """Cold batches and hot ones in turn; the rows of hot ones stay with every trainer while they last."""

    settings: FaeSettings

    orders_sections = True
    writes_apart = True
    order_settings = ("cache.rows",)

    def __init__(self, settings: FaeSettings, facts: RunFacts) -> None:
        super().__init__(settings, facts)
        self._is_hot = np.zeros(facts.total_rows, dtype=np.bool_)
        if facts.training is not None:
            hot = read_profile(settings, facts.training)
            if hot.total_rows != facts.total_rows:
                raise ConfigError(
                    f"model.embedding_dim_of: policies with hot rows want rows of one width; of {hot.total_rows} rows "
                    f"{facts.total_rows} have the same; leave it out"
                )
            if facts.cache_rows and hot.rows.size > facts.cache_rows:
                cure = (
                    f"a trainer's cache holds cache.rows = {facts.cache_rows}; use fewer, or 0 for what it has room for"
                )
                raise SettingError("policy.hot_rows", hot.rows.size, cure)
            self._is_hot[hot.rows] = True

    @classmethod
    def prepare(cls, settings: FaeSettings, training: TrainingRows) -> None:
        """Make the profile, if it does not exist.

        Raises:
            BagpipeError: as for `make_profile`.
        """
        log.info("policy.name: %s", make_profile(settings, training))

    @classmethod
    def order(cls, settings: FaeSettings, default: SampleOrder, training: TrainingRows) -> SectionOrder:
        """Shares of the cold samples and of the hot ones in turn, each kind in the order of `default`.

        Raises:
            BagpipeError: as for `read_profile`.
        """
        hot = read_profile(settings, training)

        def lay_out(cold_samples: int, hot_samples: int) -> list[Section]:
            if not settings.adapt_share:
                return sections(cold_samples, hot_samples, training.batch_size, settings.share_percent)
            epochs = Epochs(cold_samples, hot_samples, training.batch_size, training.evaluated_every)
            turns, _ = epochs.turns(default.epoch, Share(settings.share_percent), training.heard)
            return epochs.sections(turns)

        return hot_cold_order(default, lay_out, hot.are_hot)

    @classmethod
    def hears(cls, settings: FaeSettings) -> bool:
        """True where the share adapts to the test loss."""
        return settings.adapt_share

    @classmethod
    def replays(cls, settings: FaeSettings) -> str:
        """As `Policy.replays`."""
        return settings.replay

    @classmethod
    def decision(cls, settings: FaeSettings, training: TrainingRows) -> str:
        """How the last evaluation changed the share; empty where that evaluation was within a turn."""
        hot = read_profile(settings, training)
        epochs = Epochs(
            hot.sample_count - hot.hot_samples, hot.hot_samples, training.batch_size, training.evaluated_every
        )
        epoch = training.heard[-1].epoch
        before, now = (
            epochs.turns(epoch, Share(settings.share_percent), heard)[1]
            for heard in (training.heard[:-1], training.heard)
        )
        if before == now:
            return ""
        return f"test loss {now.log_loss:.6f}, share {before.percent} % -> {now.percent} %"

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        """Outside a hot block, a batch's rows are fetched only once the batch before it is written back."""
        return WINDOW

    def planner(
        self,
        window: Window,  # noqa: ARG002
        shared_capacity: int = UNLIMITED,
        private_capacity: int = UNLIMITED,
    ) -> Planner:
        """As `Policy.planner`."""
        facts = self.facts
        return HotBlockPlanner(
            self._is_hot,
            facts.trainers,
            shared_capacity,
            private_capacity,
            verify=facts.verify,
            feature_tables=facts.feature_tables,
            any_block=self.settings.adapt_share,
        )

    def least_bytes(self, window: Window, most_batches: int) -> int:
        """As by default, and a byte a row."""
        return super().least_bytes(window, most_batches) + self.facts.total_rows
