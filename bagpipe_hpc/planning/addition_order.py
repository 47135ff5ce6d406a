"""Puts what several trainers add to a row into a fixed order, so that the sum has the same bits in every run."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bagpipe_hpc.plan.batch_plan import BatchPlan, Int64s, TrainerPlan
from bagpipe_hpc.rows.additions import turns_of


def in_rank_order(plan: BatchPlan) -> BatchPlan:
    """The same plan, but trainers that add to one row do so one after the other, in rank order.

    A trainer adds to a row in round n, where n is the number of lower-ranked trainers that add to the row with this
    group. So each row comes at most once in a round, and there are as many rounds as trainers that add to the row with
    the most.
    """
    return replace(
        plan, trainers=_in_rounds(plan.trainers), others=tuple(in_rank_order(other) for other in plan.others)
    )


def _in_rounds(parts: Sequence[TrainerPlan]) -> Sequence[TrainerPlan]:
    """The parts of all trainers for one group of tables."""
    rows = [np.empty(0, np.int64) if part.add_rows is None else part.add_rows for part in parts]
    turns = turns_of(np.concatenate(rows))
    if not turns.any():
        return parts
    of_parts = np.split(turns, np.cumsum([own.size for own in rows])[:-1])
    rounds = int(turns.max()) + 1
    return tuple(_by_round(part, own, rounds) for part, own in zip(parts, of_parts, strict=True))


def _by_round(part: TrainerPlan, turns: Int64s, rounds: int) -> TrainerPlan:
    """A trainer's part, whose additions are in the order of their rounds."""
    order = np.argsort(turns, kind="stable")
    none = np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32)
    rows, slots, bases = part.additions or none
    return replace(
        part,
        add_rows=rows[order],
        add_slots=slots[order],
        base_slots=bases[order],
        add_rounds=np.bincount(turns, minlength=rounds).astype(np.int32),
    )
