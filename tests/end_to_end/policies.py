"""A policy that changes what it can: the order of samples, and who gets which, some trainers none."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.sample_order import SampleOrder
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.policy import Assignment, TrainingRows


class EvenFirst(SampleOrder):
    """Each block comes twice: the samples with an even number first, then, at the end, the others, backwards."""

    def blocks(self) -> NDArray[np.int64]:
        blocks = super().blocks()
        return np.concatenate((blocks * 2, blocks[::-1] * 2 + 1))

    def block_range(self, block: int) -> tuple[int, int]:
        return super().block_range(block // 2)

    def block_samples(self, block: int) -> int:
        first, last = self.block_range(block)
        return (last - first + 1 - block % 2) // 2

    def inside_block(self, block: int) -> NDArray[np.int64]:
        first, last = self.block_range(block)
        return np.arange(block % 2, last - first, 2)[:: -1 if block % 2 else 1]


class Interleaved(LookaheadPolicy):
    """Trainers take turns, backwards; every third batch of a segment is the last trainer's alone."""

    @classmethod
    def order(cls, settings: Any, default: SampleOrder, training: TrainingRows) -> SampleOrder:  # noqa: ARG003
        return EvenFirst(default.rows, default.block_rows, default.seed, default.epoch, default.shuffle)

    def assignment(self) -> Assignment:
        trainers, batches = self.facts.trainers, 0

        def share_out(rows: Bags) -> list[NDArray[np.int64]]:
            nonlocal batches
            batches += 1
            everything = np.arange(rows.samples)
            if batches % 3 == 0:
                return [everything[:0]] * (trainers - 1) + [everything]
            return [everything[trainer::trainers][::-1] for trainer in range(trainers)]

        return share_out
