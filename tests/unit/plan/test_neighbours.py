"""Neighbours are drawn as a loop over Python's integers draws them, by the number of the sample alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.plan.bags import Int64s
from bagpipe_hpc.plan.neighbours import MOST_DEGREE, Graph, NeighbourDraws, _below

WORD = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15
SPLITS = ("train", "test")


def mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
    return word ^ word >> 31


def key_of(seed: int, split: str, epoch: int | None) -> int:
    number = 2 * (0 if epoch is None else epoch + 1) + SPLITS.index(split)
    return mixed((mixed(seed * GOLDEN % WORD) + number * GOLDEN) % WORD)


def drawn_by_a_loop(graph: list[list[int]], fan_outs: tuple[int, ...], key: int, node: int, sample: int) -> list[int]:
    """All nodes of a sample, hop after hop."""
    stream, counter = mixed((key + sample * GOLDEN) % WORD), 0
    hop, found = [node], []
    for fan_out in fan_outs:
        following = []
        for parent in hop:
            near, chosen = graph[parent], []
            for place in range(fan_out):
                counter += 1
                word = mixed((stream + counter * GOLDEN) % WORD)
                newest = len(near) - fan_out + place if len(near) >= fan_out else len(near) - 1
                drawn = word * (newest + 1) >> 64
                chosen.append(newest if len(near) >= fan_out and drawn in chosen else drawn)
            following += [near[one] for one in chosen] if near else [parent] * fan_out
        found += following
        hop = following
    return found


def graph_of(neighbours: list[list[int]]) -> Graph:
    starts = np.concatenate(([0], np.cumsum([len(of_node) for of_node in neighbours]))).astype(np.int64)
    return Graph(starts, np.array([one for of_node in neighbours for one in of_node], dtype=np.int32))


def side_by_side(hops: list[Int64s]) -> Int64s:
    return np.concatenate(hops, axis=1)


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Small ones; nodes without neighbours, and with more than are drawn, are frequent. One edge at least."""
    nodes = draw(st.integers(2, 9))
    neighbours = [draw(st.lists(st.integers(0, nodes - 1), unique=True, max_size=nodes)) for _ in range(nodes)]
    if not any(neighbours):
        neighbours[0] = [1]
    return neighbours


@given(
    graph=graphs(),
    fan_outs=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    seed=st.integers(0, (1 << 63) - 1),
    split=st.sampled_from(SPLITS),
    epoch=st.none() | st.integers(0, 3),
    first=st.integers(0, 1 << 40),
)
def test_a_loop_draws_the_same(
    graph: list[list[int]], fan_outs: tuple[int, ...], seed: int, split: str, epoch: int | None, first: int
) -> None:
    draws = NeighbourDraws.of(fan_outs, seed, split, epoch)
    nodes = np.arange(len(graph))
    found = side_by_side(draws.draw(graph_of(graph), nodes, nodes + first))
    key = key_of(seed, split, epoch)
    assert found.tolist() == [drawn_by_a_loop(graph, fan_outs, key, node, node + first) for node in nodes.tolist()]
    assert found.shape[1] == sum(draws.hop_sizes)


RING = graph_of([[(node + step) % 50 for step in range(1, 12)] for node in range(50)])


def sound(draws: type[NeighbourDraws]) -> list[str]:
    """Which rules of draws are broken."""
    nodes, samples = np.arange(40) % 50, np.arange(1000, 1040)
    of_epochs = [draws.of((4, 3), 7, "train", epoch) for epoch in (0, 1)]
    found = side_by_side(of_epochs[0].draw(RING, nodes, samples))
    broken = []
    mixed_up = np.random.default_rng(1).permutation(40)[:25]
    if not np.array_equal(found[mixed_up], side_by_side(of_epochs[0].draw(RING, nodes[mixed_up], samples[mixed_up]))):
        broken.append("depends on the batch")
    if np.array_equal(found, side_by_side(of_epochs[1].draw(RING, nodes, samples))):
        broken.append("the same in every epoch")
    if np.array_equal(found, side_by_side(draws.of((4, 3), 8, "train", 0).draw(RING, nodes, samples))):
        broken.append("the same with every seed")
    scored = draws.of((4, 3), 7, "test", None)
    if np.array_equal(found, side_by_side(scored.draw(RING, nodes, samples))):
        broken.append("the same in training and scoring")
    same_node = side_by_side(scored.draw(RING, np.full(40, 3), samples))
    if len(np.unique(same_node, axis=0)) < 35:
        broken.append("the same for all samples of a node")
    nearer, farther = found[:, :4], found[:, 4:].reshape(40, 4, 3)
    if not (((farther - nearer[:, :, None]) % 50 >= 1) & ((farther - nearer[:, :, None]) % 50 <= 11)).all():
        broken.append("no neighbours of the hop before")
    if any(len(set(of_node)) < 3 for of_node in farther.reshape(-1, 3).tolist()):
        broken.append("one twice where there are enough")
    return broken


class ByPlaceInTheBatch(NeighbourDraws):
    def draw(self, graph: Graph, nodes: Int64s, samples: Int64s) -> list[Int64s]:
        return super().draw(graph, nodes, np.arange(len(samples)))


class WithoutEpoch(NeighbourDraws):
    @classmethod
    def of(cls, fan_outs, seed, split, epoch):  # type: ignore[no-untyped-def]
        return super().of(fan_outs, seed, split, None if epoch is None else 0)


class WithoutSeed(NeighbourDraws):
    @classmethod
    def of(cls, fan_outs, seed, split, epoch):  # type: ignore[no-untyped-def] # noqa: ARG003
        return super().of(fan_outs, 0, split, epoch)


class ByNode(NeighbourDraws):
    def draw(self, graph: Graph, nodes: Int64s, samples: Int64s) -> list[Int64s]:  # noqa: ARG002
        return super().draw(graph, nodes, nodes)


class ParentsMixedUp(NeighbourDraws):
    def draw(self, graph: Graph, nodes: Int64s, samples: Int64s) -> list[Int64s]:
        nearer, farther = super().draw(graph, nodes, samples)
        return [nearer, farther.reshape(-1, 4, 3).transpose(0, 2, 1).reshape(-1, 12)]


class OneByOne(NeighbourDraws):
    def draw(self, graph: Graph, nodes: Int64s, samples: Int64s) -> list[Int64s]:
        nearer, farther = super().draw(graph, nodes, samples)
        farther[:, 1] = farther[:, 0]
        return [nearer, farther]


def test_sound_draws_keep_the_rules() -> None:
    assert sound(NeighbourDraws) == []


MUTANTS: dict[type[NeighbourDraws], str] = {
    ByPlaceInTheBatch: "depends on the batch",
    WithoutEpoch: "the same in every epoch",
    WithoutSeed: "the same with every seed",
    ByNode: "the same for all samples of a node",
    ParentsMixedUp: "no neighbours of the hop before",
    OneByOne: "one twice where there are enough",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_rule_is_found(mutant: type[NeighbourDraws]) -> None:
    assert MUTANTS[mutant] in sound(mutant)


def test_every_neighbour_is_as_likely() -> None:
    """Of sets of 3 out of 11, each is in 3 of 11, and of one by one each as often; five deviations at most."""
    samples = np.arange(20_000)
    for fan_out in (3, 20):
        (found,) = NeighbourDraws.of((fan_out,), 1, "train", 0).draw(RING, np.zeros_like(samples), samples)
        counts = np.bincount(found.reshape(-1), minlength=12)[1:12]
        expected = found.size / 11
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_numbers_below_bounds_of_up_to_32_bits_are_exact() -> None:
    words = np.array([0, 1, WORD - 1, 0x0123456789ABCDEF, 0xFFFFFFFF00000000], dtype=np.uint64)
    for bound in (0, 1, 3, (1 << 31) + 1, MOST_DEGREE):
        found = _below(words, np.full(len(words), bound))
        assert found.tolist() == [word * bound >> 64 for word in words.tolist()]
