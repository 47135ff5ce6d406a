"""A checkpoint is scored in the slices that it was evaluated in when it was trained, whoever takes them."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.schedule import Segment, SegmentKind, scoring_segment
from bagpipe_hpc.plan.slices import dealt_whole, slice_bounds

sizes = st.tuples(st.integers(1, 60), st.integers(1, 12), st.integers(1, 5))
"""Samples, batch size, trainers of the training."""


def segment_for(samples: int, batch_size: int, trained_by: int, trainers: int) -> Segment:
    return scoring_segment(SegmentKind.EVALUATE, "test", samples, batch_size, (30, 2), trainers, trained_by)


def slices_in_training(samples: int, batch_size: int, trained_by: int) -> list[tuple[int, int]]:
    """First sample, and one after the last, of each slice that is not empty."""
    found = []
    for first in range(0, samples, batch_size):
        bounds = slice_bounds(min(batch_size, samples - first), trained_by)
        found += [(first + begin, first + end) for begin, end in pairwise(bounds) if begin < end]
    return found


@given(sizes, st.integers(1, 5))
def test_other_trainers_take_the_slices_of_then_in_turn(size: tuple[int, int, int], trainers: int) -> None:
    samples, batch_size, trained_by = size
    segment = segment_for(samples, batch_size, trained_by, trainers)
    batches = [segment.sample_range(batch) for batch in range(segment.batches)]
    if trainers != trained_by:
        assert batches == slices_in_training(samples, batch_size, trained_by)
        return
    assert batches == slices_in_training(samples, batch_size, 1)
    assert segment.slices == 0


@given(sizes)
def test_a_scoring_segment_trains_nothing_and_saves_nothing(size: tuple[int, int, int]) -> None:
    segment = segment_for(*size, trainers=2)
    assert not any((segment.is_training, segment.checkpoint, segment.is_judged, segment.may_end))
    assert (segment.first_step, segment.last_step, segment.epoch) == (30, 30, 2)


def test_whole_batches_go_to_trainers_in_turn() -> None:
    slicing = dealt_whole(3)
    owners = []
    for samples in (4, 1, 2, 4):
        slices = slicing(Bags.one_hot(np.zeros((samples, 2), dtype=np.int64)))
        given_to = [slices.of_trainer(trainer) for trainer in range(3)]
        owners.append([[] if own is None else own.tolist() for own in given_to])
    assert owners == [[[0, 1, 2, 3], [], []], [[], [0], []], [[], [], [0, 1]], [[0, 1, 2, 3], [], []]]
