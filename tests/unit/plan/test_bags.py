"""Bags are cut, rearranged and joined as a list of lists of lists would be."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.plan.bags import Bags, joined

Lists = list[list[list[int]]]


def ragged(lists: Lists, features: int) -> Bags:
    """Bags of lists `[sample][feature]`."""
    values = np.array([value for sample in lists for bag in sample for value in bag], dtype=np.int64)
    lengths = np.array([[len(bag) for bag in sample] for sample in lists], dtype=np.int64).reshape(-1, features)
    return Bags.ragged(values, lengths)


def as_lists(found: Bags) -> Lists:
    """Lists `[sample][feature]` of bags."""
    values = iter(found.values.tolist())
    return [[[next(values) for _ in range(length)] for length in sample] for sample in found.lengths.tolist()]


@st.composite
def batches(draw: st.DrawFn, features: int | None = None) -> tuple[Lists, int]:
    """Lists of a batch, and the number of features."""
    features = features or draw(st.integers(1, 4))
    bag = st.lists(st.integers(0, 9), max_size=3)
    return draw(st.lists(st.lists(bag, min_size=features, max_size=features), max_size=6)), features


@given(batches(), st.data())
def test_a_part_is_a_slice_of_samples(batch: tuple[Lists, int], data: st.DataObject) -> None:
    lists, features = batch
    first = data.draw(st.integers(0, len(lists)))
    last = data.draw(st.integers(first, len(lists)))
    part = ragged(lists, features).part(first, last)
    assert as_lists(part) == lists[first:last]
    assert part.samples == last - first


@given(batches(), st.data())
def test_samples_are_taken_in_any_order(batch: tuple[Lists, int], data: st.DataObject) -> None:
    lists, features = batch
    numbers = data.draw(st.lists(st.sampled_from(range(len(lists))), max_size=8)) if lists else []
    taken = ragged(lists, features).take(np.array(numbers, dtype=np.int32))
    assert as_lists(taken) == [lists[number] for number in numbers]


@given(batches(features=2), batches(features=2))
def test_pieces_are_joined(one: tuple[Lists, int], other: tuple[Lists, int]) -> None:
    assert as_lists(joined([ragged(*one), ragged(*other)])) == one[0] + other[0]


@given(batches())
def test_each_value_knows_its_feature_and_its_sample(batch: tuple[Lists, int]) -> None:
    lists, features = batch
    found = ragged(lists, features)
    places = [(sample, feature) for sample, of in enumerate(lists) for feature, bag in enumerate(of) for _ in bag]
    assert list(zip(found.sample_of_value.tolist(), found.columns.tolist(), strict=True)) == places


@given(batches(), st.data())
def test_ids_become_rows_feature_by_feature(batch: tuple[Lists, int], data: st.DataObject) -> None:
    lists, features = batch
    firsts = data.draw(st.lists(st.integers(0, 100), min_size=features, max_size=features))
    rows = [[[value + firsts[f] for value in bag] for f, bag in enumerate(sample)] for sample in lists]
    assert as_lists(ragged(lists, features).plus(np.array(firsts, dtype=np.int64))) == rows


def test_bags_of_one_value_are_a_grid() -> None:
    grid = np.arange(12).reshape(4, 3)
    found = Bags.one_hot(grid)
    assert found.offsets is None
    pieces = {
        "whole": (found, grid),
        "part": (found.part(1, 3), grid[1:3]),
        "taken": (found.take(np.array([3, 0])), grid[[3, 0]]),
        "joined": (joined([found.part(0, 1), found.part(1, 4)]), grid),
    }
    for piece, expected in pieces.values():
        np.testing.assert_array_equal(piece.grid, expected)
    assert found.sample_of_value.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert Bags.ragged(found.values, found.lengths).grid is None
