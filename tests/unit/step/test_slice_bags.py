"""Look-ups of a slice become sums, means and sequences, as a slow loop over samples and features makes them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.step import slice_bags
from bagpipe_hpc.step.slice_bags import Outputs, SliceBags, embeddings_of

WIDTH, ROWS = 3, 9
POOLINGS = ("sum", "mean", "sequence")


class Slice(NamedTuple):
    """Bags of a slice, and a batch's rows `[ROWS, WIDTH]`."""

    features: list[FeatureFacts]
    lengths: NDArray[np.int64]
    positions: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    rows: Tensor

    @classmethod
    def drawn(cls, poolings: list[str], samples: int, seed: int = 0, *, weighted: bool = False) -> "Slice":
        """Bags of up to four random ids, of which a third is empty."""
        rng = np.random.default_rng(seed)
        features = [FeatureFacts(f"f{number}", WIDTH, pooling, 4) for number, pooling in enumerate(poolings)]
        shape = samples, len(features)
        lengths = rng.integers(0, 5, shape) * (rng.random(shape) > 1 / 3)
        positions = rng.integers(0, ROWS, lengths.sum(), dtype=np.int32)
        weights = rng.normal(size=len(positions)).astype(np.float32) if weighted else None
        rows = torch.from_numpy(rng.standard_normal((ROWS, WIDTH)).astype(np.float32))
        return cls(features, lengths.astype(np.int64), positions, weights, rows)

    def expected(self) -> tuple[NDArray[np.float32], dict[str, NDArray[np.float32]]]:
        """The pooled vectors `[n, P, WIDTH]`, and the rows of each sequence."""
        pooled: list[NDArray[np.float32]] = []
        sequences: dict[str, list[NDArray[np.float32]]] = {f.name: [] for f in self.features if f.is_sequence}
        place = 0
        for of_sample in self.lengths:
            for feature, length in zip(self.features, of_sample, strict=True):
                total = np.zeros(WIDTH, dtype=np.float32)
                for look_up in range(place, place + length):
                    scale = np.float32(1 / np.float32(length)) if feature.pooling == "mean" else np.float32(1)
                    if self.weights is not None:
                        scale *= self.weights[look_up]
                    row = self.rows[self.positions[look_up]].numpy() * scale
                    if feature.is_sequence:
                        sequences[feature.name].append(row)
                    total = total + row
                place += length
                if not feature.is_sequence:
                    pooled.append(total)
        shape = len(self.lengths), -1 if len(self.lengths) else 0, WIDTH
        stacked = np.asarray(pooled, dtype=np.float32).reshape(shape)
        return stacked, {name: np.asarray(of, np.float32).reshape(-1, WIDTH) for name, of in sequences.items()}

    def check(self) -> None:
        """Compare with the loop, to the last bit."""
        host = SliceBags.of(self.features, self.lengths, self.weights)
        positions = self.positions if host.order is None else self.positions[host.order]
        bags = host.on_device(Cpu())
        every_row = torch.arange(ROWS, dtype=torch.int32)
        outputs = ReferenceRowOperations().pool(self.rows, every_row, torch.from_numpy(positions), bags.pool)
        found = embeddings_of(self.features, len(self.lengths), [Outputs(outputs, bags)])
        pooled, sequences = self.expected()
        assert found.stacked().shape == (len(self.lengths), len(self.features) - len(sequences), WIDTH)
        np.testing.assert_array_equal(found.stacked().numpy().reshape(pooled.shape), pooled)
        for name, rows in sequences.items():
            column = [feature.name for feature in self.features].index(name)
            np.testing.assert_array_equal(found.sequence(name).rows.numpy(), rows)
            np.testing.assert_array_equal(found.sequence(name).lengths.numpy(), self.lengths[:, column])


@given(
    st.lists(st.sampled_from(POOLINGS), min_size=1, max_size=5), st.integers(0, 7), st.integers(0, 2**32), st.booleans()
)
def test_bags_are_what_a_loop_makes_of_them(poolings: list[str], samples: int, seed: int, weighted: bool) -> None:
    """Sums, means and sequences in any order, no samples, empty bags, a row several times in a bag."""
    Slice.drawn(poolings, samples, seed, weighted=weighted).check()


def test_without_sequences_look_ups_stay_where_they_are() -> None:
    bags = SliceBags.of(*Slice.drawn(["sum", "sum"], 5)[:2])
    assert bags.order is None
    assert bags.scales is None


def test_one_id_a_sample_needs_no_bags() -> None:
    """Each output is the vector of a sample and feature."""
    features = [FeatureFacts(name, WIDTH) for name in ("a", "b")]
    outputs = torch.arange(12.0).reshape(4, WIDTH)
    found = embeddings_of(features, 2, [Outputs(outputs, None)])
    assert torch.equal(found.stacked(), outputs.view(2, 2, WIDTH))


def test_each_width_has_its_own_outputs() -> None:
    """Pooled vectors of each width stand by width, sequences by name, in whichever order widths come."""
    features = [
        FeatureFacts("a", 2),
        FeatureFacts("history", 3, "sequence", 5),
        FeatureFacts("b", 3),
        FeatureFacts("c", 2),
    ]
    wide = SliceBags.of(features[1:3], np.array([[2, 1], [0, 1]])).on_device(Cpu())
    outputs_of_wide = torch.arange(12.0).reshape(4, 3)
    narrow = torch.arange(100.0, 108.0).reshape(4, 2)
    found = embeddings_of(features, 2, [Outputs(outputs_of_wide, wide), Outputs(narrow, None)])
    assert torch.equal(found["a"], narrow[[0, 2]])
    assert torch.equal(found["c"], narrow[[1, 3]])
    assert torch.equal(found["b"], outputs_of_wide[:2])
    assert torch.equal(found.sequence("history").rows, outputs_of_wide[2:])
    assert torch.equal(found.concatenated(), torch.cat((narrow.view(2, 4), outputs_of_wide[:2]), dim=1))


def wrong_starts(of: Callable[..., SliceBags]) -> Callable[..., SliceBags]:
    """The offsets of bags are those of the bags before."""
    return lambda *given: (bags := of(*given))._replace(counts=np.roll(bags.counts, 1))


def no_weights(of: Callable[..., SliceBags]) -> Callable[..., SliceBags]:
    return lambda features, lengths, _=None: of(features, lengths, None)


def weights_in_the_data_s_order(of: Callable[..., SliceBags]) -> Callable[..., SliceBags]:
    """Weights do not follow their look-ups behind the pooled ones."""
    return lambda *given: of(*given)._replace(scales=slice_bags._scales(*given))


def unsorted_sequences(of: Callable[..., SliceBags]) -> Callable[..., SliceBags]:
    return lambda *given: of(*given)._replace(order=None)


def sequences_backwards(of: Callable[..., SliceBags]) -> Callable[..., SliceBags]:
    """The rows of the last sequence, in the opposite order."""

    def reversed_of(*given: object) -> SliceBags:
        bags = of(*given)
        order = bags.order.copy() if bags.order is not None else None
        if order is not None:
            last = int(bags.sequence_lengths[-1].sum())
            order[len(order) - last :] = order[len(order) - last :][::-1]
        return bags._replace(order=order)

    return reversed_of


def test_the_example_of_the_mutants_is_sound() -> None:
    Slice.drawn(["sum", "sequence", "mean", "sequence"], 9, weighted=True).check()


@pytest.mark.parametrize(
    "mutant", [wrong_starts, no_weights, weights_in_the_data_s_order, unsorted_sequences, sequences_backwards]
)
def test_a_broken_rule_is_noticed(
    mutant: Callable[[Callable[..., SliceBags]], Callable[..., SliceBags]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SliceBags, "of", mutant(SliceBags.of))
    with pytest.raises(AssertionError):
        Slice.drawn(["sum", "sequence", "mean", "sequence"], 9, weighted=True).check()


@pytest.mark.parametrize("divisor", ["one", "longest bag", "sum of weights"])
def test_a_mean_by_another_divisor_is_noticed(divisor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the number of ids, whatever weights these have."""
    sound = slice_bags._scales

    def wrong(features: list[FeatureFacts], lengths: NDArray[np.int64], weights: NDArray[np.float32]) -> object:
        if divisor == "one":
            return sound([FeatureFacts(f.name, f.width) for f in features], lengths, weights)
        if divisor == "longest bag":
            by_longest = np.full_like(lengths, lengths.max())
            of_bags = sound(features, by_longest, None)
            return None if of_bags is None else of_bags[: len(weights)] * weights
        bags = np.repeat(np.arange(lengths.size), lengths.reshape(-1))
        return weights / np.bincount(bags, weights, lengths.size)[bags].astype(np.float32)

    monkeypatch.setattr(slice_bags, "_scales", wrong)
    with pytest.raises(AssertionError):
        Slice.drawn(["mean"], 9, weighted=True).check()
