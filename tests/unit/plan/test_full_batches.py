"""Samples that stay make full batches, in their order, and are known by their places in the segment."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan import full_batches as module
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.full_batches import Keep, full_batches, sliced
from bagpipe_hpc.plan.slices import BatchSlices, slice_bounds
from tests.drawing import share_of

Batches = Iterator[tuple[Bags, np.ndarray | None]]
FullBatches = Callable[[Iterable[Bags], Keep], Batches]
Stay = list[list[bool] | None]


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, Stay, list[int]]:
    """Samples of a batch; for each batch who stays, None for all as they are; and how many samples each has."""
    size, count = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    sizes = [size] * (count - 1) + [draw(st.integers(1, size))]
    share = draw(st.sampled_from([0.0, 0.2, 0.7, 1.0]))
    drawn = np.random.default_rng(draw(st.integers(0, 2**32)))
    return size, [None if drawn.random() < 0.2 else (drawn.random(own) < share).tolist() for own in sizes], sizes


def expected(size: int, stay: Stay, sizes: list[int]) -> list[list[int]]:
    """Positions in the segment of each batch's samples, one sample after the other."""
    found, own, position = [], [], 0
    for kept, samples in zip(stay, sizes, strict=True):
        positions = list(range(position, position + samples))
        if kept is None:
            found += [own, positions]
            own = []
        else:
            for number, stays in zip(positions, kept, strict=True):
                own += [number] if stays else []
                if len(own) == size:
                    found.append(own)
                    own = []
        position += samples
    return [batch for batch in [*found, own] if batch] or [[0]]


def cut(sizes: list[int]) -> list[Bags]:
    """Batches whose samples look up their positions, one of them or two."""
    ends = np.cumsum([0, *sizes])
    lengths = 1 + np.arange(ends[-1])[:, np.newaxis] % 2
    whole = Bags.ragged(np.repeat(np.arange(ends[-1]), lengths[:, 0]), lengths)
    return [whole.part(first, last) for first, last in pairwise(ends)]


def keeping(stay: Stay) -> Keep:
    of_batches = iter(stay)

    def keep(_: Bags) -> np.ndarray | None:
        kept = next(of_batches)
        return None if kept is None else np.asarray(kept)

    return keep


def check_batches(tried: FullBatches, size: int, stay: Stay, sizes: list[int]) -> None:
    wanted, batches = expected(size, stay, sizes), cut(sizes)
    found = list(tried(batches, keeping(stay)))
    assert len(found) == len(wanted)
    for place, ((rows, numbers), positions) in enumerate(zip(found, wanted, strict=True)):
        assert np.unique(rows.values).tolist() == positions
        assert rows.samples == len(positions)
        if numbers is None:  # then readers take the whole batch in this place
            assert positions == list(range(place * size, place * size + sizes[place]))
        else:
            assert (numbers + place * size).tolist() == positions


@settings(max_examples=share_of(150), deadline=None)
@given(segments())
def test_batches_are_those_that_one_sample_after_the_other_makes(drawn: tuple[int, Stay, list[int]]) -> None:
    check_batches(full_batches, *drawn)


BY_HAND: list[tuple[int, Stay, list[int]]] = [
    (3, [[True, False, True], [False, True, True], None, [True, False, False], [True, True]], [3, 3, 3, 3, 2]),
    (2, [[False, False], [False, False]], [2, 2]),
    (2, [None, [True, True], [False, True], [True, True]], [2, 2, 2, 2]),
]


def check_all(tried: FullBatches) -> None:
    for case in BY_HAND:
        check_batches(tried, *case)


def test_batches_are_full_but_for_the_last_of_a_run() -> None:
    sizes = [rows.samples for rows, _ in full_batches(cut(BY_HAND[0][2]), keeping(BY_HAND[0][1]))]
    assert sizes == [3, 1, 3, 3]


def leaves_holes(batches: Iterable[Bags], keep: Keep) -> Batches:
    """Batches stay in their places, with fewer samples."""
    for rows in batches:
        yield from full_batches([rows], keep)


def mixes_kinds(batches: Iterable[Bags], keep: Keep) -> Batches:
    """Samples join a batch that stays as it is."""

    def mixing(rows: Bags) -> np.ndarray:
        kept = keep(rows)
        return np.ones(rows.samples, dtype=bool) if kept is None else kept

    return full_batches(batches, mixing)


def counts_from_the_batch(batches: Iterable[Bags], keep: Keep) -> Batches:
    """Samples are counted from the first of the batch itself."""
    return ((rows, None if numbers is None else numbers - numbers[0]) for rows, numbers in full_batches(batches, keep))


def loses_the_rest(batches: Iterable[Bags], keep: Keep) -> Batches:
    """What does not fill a batch is lost."""
    whole = list(batches)
    return iter([one for one in full_batches(whole, keep) if one[0].samples == whole[0].samples])


def numbers_anew(batches: Iterable[Bags], keep: Keep) -> Batches:
    """Samples of a batch are numbered anew."""
    for rows, numbers in full_batches(batches, keep):
        yield rows, None if numbers is None else np.arange(numbers[0], numbers[0] + numbers.size)


def has_no_batch(batches: Iterable[Bags], keep: Keep) -> Batches:
    """A segment may have no batch."""
    whole = list(batches)
    kept = [keep(rows) for rows in whole]
    if all(own is not None and not own.any() for own in kept):
        return iter(())
    of_batches = iter(kept)
    return full_batches(whole, lambda _: next(of_batches))


MUTANTS = (leaves_holes, mixes_kinds, counts_from_the_batch, loses_the_rest, numbers_anew, has_no_batch)


@pytest.mark.parametrize("broken", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(broken: FullBatches) -> None:
    check_all(full_batches)
    with pytest.raises(AssertionError):
        check_all(broken)


def test_nothing_is_done_where_all_stay() -> None:
    batches = cut([4, 4, 3])
    for stay in (keeping([None] * 3), keeping([[True] * 4, [True] * 4, [True] * 3]), None):
        found = list(sliced(batches, lambda rows: BatchSlices.contiguous(rows.samples, 2), stay))
        assert all(rows is own for (rows, _), own in zip(found, batches, strict=True))
        assert all(slices is not None and slices.are_default for _, slices in found)
    assert [slices for _, slices in sliced(batches, None, None)] == [None] * 3


def test_slices_are_of_the_samples_that_stay() -> None:
    """Those of a policy, too, which numbers the samples that it sees."""
    size, stay, sizes = BY_HAND[0]
    backwards = [np.asarray([2]), np.asarray([1, 0])]

    def slicing(rows: Bags) -> BatchSlices:
        return BatchSlices.of(backwards, 3, 2) if rows.samples == 3 else BatchSlices.contiguous(rows.samples, 2)

    for place, (rows, slices) in enumerate(sliced(cut(sizes), slicing, keeping(stay))):
        own = expected(size, stay, sizes)[place]
        assert slices is not None
        named = [slices.of_trainer(trainer) for trainer in range(2)]
        if rows.samples == 3:
            wanted = [[own[2]], [own[1], own[0]]]
        else:
            bounds = slice_bounds(len(own), 2)
            wanted = [own[bounds[0] : bounds[1]], own[bounds[1] : bounds[2]]]
        assert [(part + place * size).tolist() for part in named if part is not None] == wanted
        parts = [np.unique(part.values).tolist() for part in slices.parts(rows)]
        assert parts == [sorted(part) for part in wanted]


def test_batches_are_read_as_they_are_needed() -> None:
    read: list[int] = []

    def batches() -> Iterator[Bags]:
        for number, rows in enumerate(cut([4] * 6)):
            read.append(number)
            yield rows

    found = full_batches(batches(), keeping([[True, False, False, True]] * 6))
    next(found)
    assert read == [0, 1]


@pytest.mark.parametrize("kept", [np.ones(3, bool), np.ones((4, 1), bool), np.arange(4)])
def test_an_answer_of_another_batch_is_refused(kept: np.ndarray) -> None:
    with pytest.raises(PlanError, match=r"the policy says by .* which samples stay, of a batch of 4: give a"):
        list(full_batches(cut([4, 4]), lambda _: kept))


def test_a_batch_too_far_from_its_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stay: Any = [[True, False]] * 8
    monkeypatch.setattr(module, "_LARGEST", 8)
    assert len(list(full_batches(cut([2] * 8), keeping(stay)))) == 4
    monkeypatch.setattr(module, "_LARGEST", 7)
    with pytest.raises(PlanError, match=r"8 behind its place in its segment.*set train\.checkpoint_every_steps"):
        list(full_batches(cut([2] * 8), keeping(stay)))
