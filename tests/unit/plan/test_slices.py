"""Slices of a batch: contiguous ones, and those that a policy gives, each sample once."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.slices import BatchSlices, slice_bounds, slice_samples


def of(*assigned: list[int], samples: int) -> BatchSlices:
    return BatchSlices.of([np.asarray(part, dtype=np.int64) for part in assigned], samples, len(assigned))


@given(st.integers(0, 40), st.integers(1, 7))
def test_samples_of_slices_are_numbered_through_the_batch(samples: int, slices: int) -> None:
    parts = [slice_samples(None, samples, slices, number) for number in range(slices)]
    assert np.concatenate(parts).tolist() == list(range(samples))
    assert [len(part) for part in parts] == np.diff(slice_bounds(samples, slices)).tolist()
    named = slice_samples(np.asarray([5, 0, 3], dtype=np.int32), samples, slices, 0)
    assert (named.dtype, named.tolist()) == (np.int64, [5, 0, 3])


@given(st.permutations(range(9)), st.lists(st.integers(0, 9), min_size=2, max_size=2))
def test_samples_are_those_that_were_given(order: list[int], cuts: list[int]) -> None:
    first, second = sorted(cuts)
    assigned = [order[:first], order[first:second], order[second:]]
    slices = of(*assigned, samples=9)
    bags = Bags.ragged(np.arange(21) * 10, np.asarray([[0, 2], [1, 1], [3, 0]] * 3))
    for part, samples in zip(slices.parts(bags), assigned, strict=True):
        np.testing.assert_array_equal(part.values, bags.values[bags.places(np.asarray(samples, dtype=np.int64))])
        np.testing.assert_array_equal(part.lengths, bags.lengths[samples])
    for trainer, part in enumerate(assigned):
        own = slices.of_trainer(trainer)
        contiguous = list(range(*slice_bounds(9, 3)[trainer : trainer + 2]))
        assert (contiguous if own is None else own.tolist()) == part


def test_the_default_slices_are_recognised() -> None:
    """So that a policy that gives them does not pay for it."""
    assert of([0, 1], [2], samples=3) == BatchSlices.contiguous(3, 2)
    assert of([], [], samples=0) == BatchSlices.contiguous(0, 2)
    for other in (of([0], [1, 2], samples=3), of([1, 0], [2], samples=3)):
        assert other.of_trainer(0) is not None


@pytest.mark.parametrize(
    ("assigned", "what"),
    [
        (([0, 1], [2, 2]), "a sample twice of a batch of 3"),
        (([0, 1], []), "no sample 2 of a batch of 3"),
        (([0, 1, 2], [3]), "sample 3 of a batch of 3"),
        (([0, 1], [2, -1]), "sample -1 of a batch of 3"),
    ],
)
def test_each_sample_goes_to_one_trainer(assigned: tuple[list[int], ...], what: str) -> None:
    with pytest.raises(PlanError, match=f"the policy gives {what}; give each sample to one trainer"):
        of(*assigned, samples=3)


@pytest.mark.parametrize(
    ("assigned", "what"),
    [
        (
            [np.arange(3), np.arange(3)[:, None]],
            r"gives trainer 1 samples as int64 \[3, 1\]: give their numbers",
        ),
        ([np.arange(3), np.arange(1.0)], r"gives trainer 1 samples as float64 \[1\]: give their numbers"),
        ([np.arange(3), (np.arange(1), "ab")], r"gives trainer 1 samples as <U2 \[\]"),
        ((np.arange(3) for _ in range(2)), "gives samples to a generator of trainers, and there are 2"),
    ],
)
def test_what_is_no_assignment_is_refused(assigned: Any, what: str) -> None:
    with pytest.raises(PlanError, match=f"the policy {what}"):
        BatchSlices.of(assigned, 3, 2)


def test_a_trainer_without_micro_batches_has_one_of_no_samples() -> None:
    """Lists of numbers are taken as well, and of all trainers' an array."""
    assert BatchSlices.of(np.arange(4).reshape(2, 2), 4, 2) == BatchSlices.contiguous(4, 2)  # type: ignore[arg-type]
    slices = BatchSlices.of([(), (np.arange(2), [2])], 3, 2)
    assert slices.micro_batches is not None
    assert [sizes.tolist() for sizes in slices.micro_batches] == [[0], [2, 1]]


def test_there_are_as_many_slices_as_trainers() -> None:
    with pytest.raises(PlanError, match="gives samples to 1 trainers, and there are 2"):
        BatchSlices.of([np.arange(3)], 3, 2)
