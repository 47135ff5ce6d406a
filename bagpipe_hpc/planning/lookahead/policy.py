"""The look-ahead policy, `bagpipe`: which of its planners runs, and which tables' state is an array or a hash table."""

import os
from collections.abc import Callable
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.sections.execution import MOST_TRAINERS
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.lookahead.native import NativePlanner
from bagpipe_hpc.planning.lookahead.planner_threads import ThreadShares, default_threads, share_out
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policy import Policy, with_spare
from bagpipe_hpc.planning.sharing_choice import has_homes
from bagpipe_hpc.planning.slots import COPY_AREAS, MOST_SLOTS, UNLIMITED, CacheSlots
from bagpipe_hpc.planning.window import Window

_DENSE_BYTES = 8
"""State of a row in an array over all rows of its table."""
_REFERENCE_BYTES = 12
"""State of a row in the reference planner."""
_HOME_BYTES = 4
"""Of a row whose home is known, there."""
_VERSION_BYTES = 4
"""Of a row whose version is known."""
_NARROW_ROWS = 1 << 16
"""Rows of a table in one batch that an index of 2 bytes can name; or, with homes, uses of them by a trainer."""
_BATCH_BYTES = 64
"""What the window takes for a batch of no samples, at least."""
_BAG_BYTES = 4
"""Of a ragged batch, beside its look-ups."""
_PAIR_BYTES, _COUNT_BYTES = 32, 20
"""Of a pair of trainers where rows have homes, for each batch whose plan is not written; of those, each thread's."""
_SPARSE_BYTES = 46
"""The most that a row in the window takes in a hash table: 16 bytes, more than a third of which are in use."""


class LookaheadPolicy(Policy):
    """Keeps a row as long as a batch of the window uses it (BagPipe, SOSP 2023, section 3).

    For rows that are replicated and for rows with one home it has two planners each, whose plans are the same, byte for
    byte: a native one, and the one in NumPy that it is tested against. `kernels.backend` chooses, and
    `kernels.planner_state` and `planner_threads` are for the native one.
    """

    sharings: ClassVar[tuple[str, ...]] = ("replicated", "home")
    writes_apart = True
    fetches_late = True

    @cached_property
    def is_native(self) -> bool:
        """Whether the native planner runs, or the NumPy one.

        Raises:
            ConfigError: the settings ask for what the implementation that they choose does not have.
        """
        kernels = self.facts.kernels
        is_native = use_native(kernels.backend, "planner")
        if not is_native and kernels.planner_state == "sparse":
            raise ConfigError(
                "kernels.planner_state = 'sparse': only the native planner has it, and the reference one runs; build "
                "the native one (`make setup`) and leave kernels.backend at its default, or use planner_state=auto"
            )
        if is_native and self.facts.trainers > MOST_TRAINERS:
            raise ConfigError(
                f"{self.facts.trainers} trainers: the native planner has {MOST_TRAINERS} at most; use fewer"
            )
        return is_native

    def expected_slots(self, beginning: CacheSlots) -> CacheSlots:
        """As `Policy.expected_slots`; of copies, which cannot come later, as many are reserved as a batch can have."""
        expected = super().expected_slots(beginning)
        if not has_homes(self.facts.sharing):
            return expected
        copies = min(self._most_copies, with_spare(beginning.shared // COPY_AREAS))
        most = max(copies, min(self._most_copies, (MOST_SLOTS - expected.private) // COPY_AREAS))
        return CacheSlots(COPY_AREAS * most, expected.private, COPY_AREAS * (most - copies))

    @property
    def _most_copies(self) -> int:
        """A bound for the copies of a batch, however its samples are given to trainers."""
        facts = self.facts
        knows_features = bool(facts.feature_tables) or facts.tables > 1
        if not (facts.is_one_hot and knows_features):
            return facts.total_rows
        return min(facts.total_rows, int(facts.batch_look_ups.sum()))

    def planner(self, window: Window, shared_capacity: int = UNLIMITED, private_capacity: int = UNLIMITED) -> Planner:
        """A new planner of the implementation that the settings choose."""
        facts = self.facts
        if not self.is_native:
            return self.rule(
                facts.total_rows,
                facts.trainers,
                window,
                shared_capacity,
                private_capacity,
                verify=facts.verify,
                feature_tables=facts.feature_tables,
            )
        return NativePlanner(
            facts.table_offsets,
            facts.trainers,
            window,
            shared_capacity,
            private_capacity,
            feature_tables=facts.feature_tables,
            sparse=self.sparse_tables(window),
            threads=self.thread_shares,
            verify=facts.verify,
            homes=facts.grid if has_homes(facts.sharing) else None,
        )

    @property
    def rule(self) -> Callable[..., Planner]:
        """The planner in NumPy."""
        return partial(HomePlanner, grid=self.facts.grid) if has_homes(self.facts.sharing) else LookaheadPlanner

    @property
    def thread_shares(self) -> ThreadShares:
        """Threads of the native planner."""
        facts = self.facts
        at_homes = has_homes(facts.sharing)
        trainers = facts.trainers if at_homes else 0
        cores = len(os.sched_getaffinity(0))
        threads = facts.kernels.planner_threads or default_threads(int(facts.batch_look_ups.sum()), trainers, cores)
        return share_out(threads, trainers, writes_apart=at_homes and not facts.verify)

    def least_bytes(self, window: Window, most_batches: int) -> int:
        """Memory that a planner takes for sure: arrays over whole tables, and the look-ups of a full window.

        How many a ragged batch has is seen when it is read.
        """
        facts = self.facts
        table_rows = np.diff(facts.table_offsets)
        versions = _VERSION_BYTES if facts.verify else 0
        bags = min(window.lookahead, most_batches) * facts.batch_size * facts.features
        look_ups = bags if facts.is_one_hot else 0
        if not self.is_native:
            index_bytes = 4 if table_rows.sum() < 1 << 31 else 8
            homes = _HOME_BYTES if has_homes(facts.sharing) else 0
            return int(table_rows.sum()) * (_REFERENCE_BYTES + versions + homes) + index_bytes * look_ups
        of_arrays = int(table_rows[~self.sparse_tables(window)].sum()) * (_DENSE_BYTES + versions)
        indices = facts.batch_look_ups if has_homes(facts.sharing) else np.minimum(table_rows, facts.batch_look_ups)
        is_wide = indices.max() > _NARROW_ROWS
        of_look_ups = (4 if is_wide else 2) * look_ups if facts.is_one_hot else _BAG_BYTES * bags
        return of_arrays + of_look_ups + window.lookahead * _BATCH_BYTES + self._bytes_of_pairs

    @property
    def smaller_state(self) -> str:
        """As `Policy.smaller_state`: the native planner's hash tables."""
        return "kernels.planner_state=sparse" if self.is_native and self.facts.kernels.planner_state != "sparse" else ""

    @property
    def _bytes_of_pairs(self) -> int:
        if not has_homes(self.facts.sharing):
            return 0
        threads = self.thread_shares
        return (1 + threads.writing) * self.facts.trainers**2 * (_PAIR_BYTES + _COUNT_BYTES * (1 + threads.deciding))

    def sparse_tables(self, window: Window) -> NDArray[np.bool_]:
        """Of which tables only the rows in the window are kept, bool `[tables]`.

        An array is faster. With `auto` a table has a hash table instead where that is smaller, even if every look-up in
        the window is to another row; of ragged features as many look-ups are expected as there are on average.
        """
        facts = self.facts
        table_rows = np.diff(facts.table_offsets)
        if facts.kernels.planner_state != "auto":
            return np.full(table_rows.shape, facts.kernels.planner_state == "sparse")
        rows_in_window = window.lookahead * facts.batch_look_ups
        sparse: NDArray[np.bool_] = table_rows > rows_in_window * (_SPARSE_BYTES / _DENSE_BYTES)
        return sparse
