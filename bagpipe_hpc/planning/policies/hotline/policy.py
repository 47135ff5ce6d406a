"""Hotline, `hotline`: samples that touch hot rows alone are computed while the rows of the others are fetched.

Oracle and reference go through the same batches: before a batch, the rows that all trainers hold say which samples are
*popular*; after it, its look-ups are counted (`HotRows`). The planner counts in the same way, so rows are where the
assignment expects them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import Assigned, slice_bounds
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.hotline.hot_rows import HotRows
from bagpipe_hpc.planning.policies.hotline.rules import HotlinePlanner
from bagpipe_hpc.planning.policies.hotline.settings import HotlineSettings
from bagpipe_hpc.planning.policy import Assignment, Policy, RunFacts
from bagpipe_hpc.planning.slots import UNLIMITED
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.terminal import counted


class Hotline(Policy):
    """Gives each trainer two micro-batches: popular samples, and the others (Hotline, ISCA 2024)."""

    has_micro_batches = True
    writes_apart = True

    settings: HotlineSettings

    def __init__(self, settings: Any, facts: RunFacts) -> None:
        super().__init__(settings, facts)
        self._most = self.settings.hot_rows or facts.cache_rows // 2
        if not self._most:
            raise SettingError("policy.hot_rows", 0, "say how many rows are hot, or set cache.rows, of which half are")

    def window(self, wanted: Window) -> Window:  # noqa: ARG002
        """One batch: fetches hide behind the popular samples of the same batch."""
        return Window(1, 1)

    def start_learning(self) -> HotRows:
        """A new object that learns the hot rows of a segment."""
        return HotRows(self.facts.total_rows, self._most, self.settings)

    def planner(self, window: Window, shared_capacity: int = UNLIMITED, private_capacity: int = UNLIMITED) -> Planner:
        """A planner in NumPy."""
        facts = self.facts
        return HotlinePlanner(
            self.start_learning,
            facts.total_rows,
            facts.trainers,
            window,
            shared_capacity,
            private_capacity,
            verify=facts.verify,
            feature_tables=facts.feature_tables,
        )

    def assignment(self) -> Assignment:
        """Popular samples and others, each dealt out evenly."""
        hot = self.start_learning()

        def share_out(rows: Bags) -> list[Assigned] | None:
            popular = self.popular(rows, hot)
            hot.see(rows.values)
            return self.deal(popular) if popular.any() else None

        return share_out

    def popular(self, rows: Bags, hot: HotRows) -> NDArray[np.bool_]:
        """Whether each sample looks up only rows that are held, bool `[n]`."""
        others = rows.sample_of_value[~hot.held[rows.values]]
        popular: NDArray[np.bool_] = np.bincount(others, minlength=rows.samples) == 0
        return popular

    def deal(self, popular: NDArray[np.bool_]) -> list[Assigned]:
        """The samples of each trainer; the totals of both kinds differ by one at most between trainers."""
        trainers = self.facts.trainers
        first, second = np.flatnonzero(popular), np.flatnonzero(~popular)
        bounds = slice_bounds(first.size, trainers)
        ends = [second.size - bound for bound in reversed(slice_bounds(second.size, trainers))]  # larger slices last
        given: list[Assigned] = []
        for trainer in range(trainers):
            early = first[bounds[trainer] : bounds[trainer + 1]]
            late = second[ends[trainer] : ends[trainer + 1]]
            given.append((early, late) if early.size else late)
        return given

    def remark(self, most_batches: int) -> str:
        """Says that no row is ever hot, where segments end before rows are chosen."""
        learning = self.settings.learning_batches
        if not 0 < most_batches <= learning:
            return ""
        return (
            f"policy.learning_batches = {learning}: hot rows are learned anew behind each checkpoint, evaluation and "
            f"end of an epoch, with {counted(most_batches, 'batch')} between these at most, so no row is ever hot; set "
            "fewer"
        )

    def least_bytes(self, window: Window, most_batches: int) -> int:
        """As by default, with the counts of the planner and of the assignment."""
        return super().least_bytes(window, most_batches) + 2 * HotRows.state_bytes(self.facts.total_rows)
