"""What the samples of a batch look up: a bag of any number of values for each sample and feature. Pure.

Legend: `n` samples, `F` features, `V` look-ups of all samples and features together.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Bags:
    """A value for each look-up: a global row, an id within a table, or the weight of one.

    Bags lie one behind the other: sample after sample, and feature after feature within a sample. So what a slice of
    samples looks up is one piece. (TorchRec's `KeyedJaggedTensor` has values and offsets too, feature after feature.)
    A bag may be empty, and may hold a value several times. Nothing is padded.

    Attributes:
        values: rows or ids, int64, or weights, float32, `[V]`.
        features: number of features F.
        offsets: where bags begin, int64 `[n * F + 1]` from 0 to V: bag `s * F + f` is that of feature f of sample s;
            None where each bag has exactly one value (one-hot).
    """

    values: NDArray[Any]
    features: int
    offsets: Int64s | None = None

    @classmethod
    def one_hot(cls, values: NDArray[Any]) -> "Bags":
        """Of features with one value a sample.

        Args:
            values: `[n, F]`; integers become int64.
        """
        kind = np.int64 if values.dtype.kind in "iu" else values.dtype
        return cls(np.ascontiguousarray(values, dtype=kind).reshape(-1), values.shape[1])

    @classmethod
    def ragged(cls, values: NDArray[Any], lengths: NDArray[np.integer]) -> "Bags":
        """Of bags with these numbers of values.

        Args:
            values: `[V]`.
            lengths: integers `[n, F]` that add up to V.
        """
        return cls(values, lengths.shape[1], offsets_of(lengths))

    @property
    def samples(self) -> int:
        """Number of samples n."""
        if self.offsets is not None:
            return (len(self.offsets) - 1) // self.features
        return len(self.values) // self.features if self.features else 0

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return self.values.nbytes + (0 if self.offsets is None else self.offsets.nbytes)

    @property
    def grid(self) -> NDArray[Any] | None:
        """The values as `[n, F]`, a view; None where bags are not of one value each."""
        return self.values.reshape(-1, self.features) if self.offsets is None else None

    @cached_property
    def lengths(self) -> Int64s:
        """Number of values of each bag, int64 `[n, F]`."""
        if self.offsets is None:
            return np.ones((self.samples, self.features), dtype=np.int64)
        return np.diff(self.offsets).reshape(-1, self.features)

    @property
    def columns(self) -> NDArray[np.int32]:
        """The feature of each value, int32 `[V]`."""
        features = np.tile(np.arange(self.features, dtype=np.int32), self.samples)
        return features if self.offsets is None else np.repeat(features, np.diff(self.offsets))

    @property
    def sample_of_value(self) -> NDArray[np.int32]:
        """The sample of each value, int32 `[V]`."""
        return np.repeat(np.arange(self.samples, dtype=np.int32), np.diff(self.starts(np.arange(self.samples + 1))))

    def starts(self, samples: Sequence[int] | NDArray[np.integer]) -> Int64s:
        """Where the values of samples begin, int64 of the shape of `samples`, each 0 to n; at n it is their end."""
        numbers = np.asarray(samples, dtype=np.int64) * self.features
        if self.offsets is None:
            return numbers
        starts: Int64s = self.offsets[numbers]
        return starts

    def part(self, first: int, last: int) -> "Bags":
        """Those of samples `first` up to `last`; its values are a view."""
        begin, end = self.starts((first, last)).tolist()
        if self.offsets is None:
            return Bags(self.values[begin:end], self.features)
        bags = self.offsets[first * self.features : last * self.features + 1]
        return Bags(self.values[begin:end], self.features, bags - begin)

    def take(self, samples: NDArray[np.integer]) -> "Bags":
        """Those of some samples, in the order given; a copy.

        Args:
            samples: numbers from 0 to below n, `[m]`; they may repeat.
        """
        if (grid := self.grid) is not None:
            return Bags.one_hot(grid[samples])
        return Bags.ragged(self.values[self.places(samples)], self.lengths[samples])

    def places(self, samples: NDArray[np.integer]) -> Int64s:
        """Where the values of some samples stand, one sample after the other, int64 `[their values]`."""
        sizes = self.starts(np.asarray(samples) + 1) - self.starts(samples)
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        places: Int64s = np.repeat(self.starts(samples), sizes) + within
        return places

    def of_features(self, features: Sequence[int]) -> "Bags":
        """Those of some features, whose numbers ascend, `[F']`; the same object where they are all."""
        if len(features) == self.features:
            return self
        columns = list(features)
        if (grid := self.grid) is not None:
            return Bags.one_hot(grid[:, columns])
        is_wanted = np.zeros(self.features, dtype=np.bool_)
        is_wanted[columns] = True
        return Bags.ragged(self.values[is_wanted[self.columns]], self.lengths[:, columns])

    def plus(self, firsts: Int64s) -> "Bags":
        """The same with a number added to all values of a feature, int64 `[F]`: ids become global rows."""
        if (grid := self.grid) is not None:
            return Bags.one_hot(grid + firsts)
        return replace(self, values=self.values + firsts[self.columns])


def joined(pieces: Sequence[Bags]) -> Bags:
    """The samples of all pieces, one piece after the other; pieces of the same features, one at least."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    values = np.concatenate([piece.values for piece in pieces])
    if all(piece.offsets is None for piece in pieces):
        return Bags(values, first.features)
    return Bags.ragged(values, np.concatenate([piece.lengths for piece in pieces]))


def offsets_of(lengths: NDArray[np.integer]) -> Int64s:
    """Where bags of such lengths begin, and the end of the last: integers `[n, F]` to int64 `[n * F + 1]`."""
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths.reshape(-1), out=offsets[1:])
    return offsets
