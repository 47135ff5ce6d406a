"""The rows that plans of a run fetch and send, kept because every placement goes through them.

Plans do not depend on where rows lie, so they are made once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.run.run import Run


@dataclass(frozen=True)
class BatchRows:
    """Rows that all trainers together move for a batch, of one group of tables.

    Attributes:
        got: global rows that are fetched, int64; a row comes once for each trainer that fetches it.
        sent: global rows that are put or added, int64.
    """

    got: NDArray[np.int64]
    sent: NDArray[np.int64]


class PlanRows(NamedTuple):
    """Rows of a plan.

    Attributes:
        is_batch: whether it is the plan of a batch; a closing plan only writes back.
        groups: the rows of each group of tables.
    """

    is_batch: bool
    groups: list[BatchRows]

    @property
    def bytes(self) -> int:
        """Memory that they take."""
        return sum(rows.got.nbytes + rows.sent.nbytes for rows in self.groups)


class LookUpCounts:
    """How often the rows of each group of tables are looked up in the batches that are planned.

    Args:
        run: the run of these batches.
    """

    def __init__(self, run: Run) -> None:
        self._groups = run.groups
        self._rows: list[list[NDArray[np.int64]]] = [[] for _ in run.groups]
        self._counts: list[list[NDArray[np.int64]]] = [[] for _ in run.groups]
        self.bytes = 0
        """Bytes that the counts take."""

    def seeing(self, batches: Iterator[Bags]) -> Iterator[Bags]:
        """Count batches and pass them on."""
        for bags in batches:
            for group, rows, counts in zip(self._groups, self._rows, self._counts, strict=True):
                unique, looked_up = np.unique(group.look_ups.of(bags).values, return_counts=True)
                rows.append(unique)
                counts.append(looked_up)
                self.bytes += unique.nbytes + looked_up.nbytes
            yield bags

    def share_of_others(self, pinned: Mapping[str, NDArray[np.int64]]) -> float:
        """Share of the look-ups of other rows than these, which are given by the names of their tables."""
        others = total = 0
        for group, rows, counts in zip(self._groups, self._rows, self._counts, strict=True):
            tables = group.tables.tables
            none = np.empty(0, dtype=np.int64)
            own = [first + pinned.get(name, none) for name, first in zip(tables.names, tables.offsets, strict=False)]
            looked_up = np.concatenate([*counts, none])
            is_other = ~np.isin(np.concatenate([*rows, none]), np.concatenate(own))
            others += int(looked_up[is_other].sum())
            total += int(looked_up.sum())
        return others / total if total else 0.0


def plan_rows(run: Run, trainers: int, most_batches: int | None, look_ups: LookUpCounts) -> list[PlanRows]:
    """The rows of all plans of the training segments.

    Args:
        run: the run.
        trainers: number of trainers T.
        most_batches: most batches to plan; None for all.
        look_ups: counts the look-ups of these batches.

    Raises:
        CapacityError: this host lacks the memory for them.
        ConfigError: as for a run that starts.
    """
    return _kept(_moved(run, trainers, most_batches, look_ups), look_ups)


def _moved(run: Run, trainers: int, most_batches: int | None, look_ups: LookUpCounts) -> Iterator[PlanRows]:
    """The rows of each plan of the training segments, by group of tables."""
    policy = run.policy(trainers)
    need = choose_window(run, trainers)
    planner = policy.planner(need.window, need.groups)
    left = most_batches
    for segment in run.schedule:
        if segment.is_training and left != 0:
            batches = look_ups.seeing(islice(run.batches(segment), left))
            for plan in plan_segment(planner, batches, policy.start_slicing()):
                left = left if left is None or plan.shared.is_closing else left - 1
                yield PlanRows(not plan.shared.is_closing, [_of_group(group) for group in plan.groups])


def _kept(moved: Iterator[PlanRows], look_ups: LookUpCounts) -> list[PlanRows]:
    """The rows of all plans, if this host has the memory for them."""
    free, kept, taken = free_bytes(), [], 0
    for of_plan in moved:
        kept.append(of_plan)
        taken += of_plan.bytes
        if (all_bytes := taken + look_ups.bytes) > free:
            raise CapacityError(
                f"--batches: the rows of {len(kept)} plans and their look-ups take {all_bytes / 1e9:.1f} GB, and "
                f"{free / 1e9:.1f} GB were free; give a smaller number, which is enough to compare"
            )
    return kept


def _of_group(plan: BatchPlan) -> BatchRows:
    parts = plan.trainers
    got = [plan.shared.fetch_rows] * len(parts) + [part.fetch_rows for part in parts]
    sent = [part.write_back_rows for part in parts]
    sent += [part.add_rows for part in parts if part.add_rows is not None]
    return BatchRows(np.concatenate(got), np.concatenate(sent))
