"""How the look-ups of a slice become what a model gets: a vector of each pooled feature, the rows of each sequence.

A step computes one array of outputs from the look-ups of each width: first the vectors of the pooled features, sample
after sample, then the rows of the first sequence, sample after sample, and so on. Each output is the sum of some
look-ups; that of a sequence is one look-up.

Legend: `n` samples of the slice, `D` a width; `F` features of that width, `P` pooled ones, `V` look-ups, `O` outputs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagpipe_hpc.kernels.device import Device
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.models.embeddings import Embeddings, SequenceRows
from bagpipe_hpc.models.facts import FeatureFacts


class SliceBags(NamedTuple):
    """The look-ups of a slice in tables of one width, on the host.

    Attributes:
        order: where the look-ups of the outputs stand in the plan's positions, int64 `[V]`; None for the same order.
        counts: look-ups of each output, int64 `[O]`.
        scales: what each look-up's row is multiplied by, in the order of the outputs, float32 `[V]`; None for 1.
        sequence_lengths: rows of each sample of each sequence, int64 `[n]` each.
    """

    order: NDArray[np.int64] | None
    counts: NDArray[np.int64]
    scales: NDArray[np.float32] | None
    sequence_lengths: list[NDArray[np.int64]]

    @classmethod
    def of(
        cls,
        features: Sequence[FeatureFacts],
        lengths: NDArray[np.integer],
        id_weights: NDArray[np.float32] | None = None,
    ) -> "SliceBags":
        """Lay the look-ups of a slice out.

        Args:
            features: those of the width, in the order of the data.
            lengths: ids of each sample and feature, integers `[n, F]`.
            id_weights: of the look-ups, sample after sample and feature after feature, float32 `[V]`; None for 1.
        """
        is_sequence = np.array([feature.is_sequence for feature in features])
        sequences = [lengths[:, column].astype(np.int64) for column in np.flatnonzero(is_sequence)]
        order = None
        if sequences:
            # A look-up of the first sequence comes behind those of all pooled features, and so on.
            ranks = np.where(is_sequence, np.cumsum(is_sequence), 0)
            order = np.argsort(np.repeat(np.tile(ranks, len(lengths)), lengths.reshape(-1)), kind="stable")
        rows_of_sequences = sum(int(of_samples.sum()) for of_samples in sequences)
        pooled = lengths[:, ~is_sequence].reshape(-1).astype(np.int64)
        counts = np.concatenate((pooled, np.ones(rows_of_sequences, dtype=np.int64)))
        scales = _scales(features, lengths, id_weights)
        return cls(order, counts, scales if scales is None or order is None else scales[order], sequences)

    def on_device(self, device: Device) -> "DeviceBags":
        """The same where a step computes."""
        starts = np.zeros(len(self.counts) + 1, dtype=np.int32)
        np.cumsum(self.counts, out=starts[1:])
        outputs = np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)
        scales = None if self.scales is None else device.to_device(self.scales)
        pool = PoolLayout(device.to_device(starts), device.to_device(outputs), scales)
        lengths = [device.to_device(of_samples) for of_samples in self.sequence_lengths]
        return DeviceBags(pool, lengths, [int(of_samples.sum()) for of_samples in self.sequence_lengths])


class DeviceBags(NamedTuple):
    """The look-ups of a slice in tables of one width, on its device.

    Attributes:
        pool: which look-ups make which output.
        sequence_lengths: as those of `SliceBags`.
        sequence_rows: rows of each sequence, known on the host.
    """

    pool: PoolLayout
    sequence_lengths: list[Tensor]
    sequence_rows: list[int]

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [*self.pool.tensors(), *self.sequence_lengths]


def _scales(
    features: Sequence[FeatureFacts], lengths: NDArray[np.integer], id_weights: NDArray[np.float32] | None
) -> NDArray[np.float32] | None:
    """The weight of each look-up; divided by the number of its bag's ids where these are averaged. None for 1."""
    is_mean = np.array([feature.pooling == "mean" for feature in features])
    if id_weights is None and not is_mean.any():
        return None
    of_bags = np.ones(lengths.shape, dtype=np.float32)
    of_bags[:, is_mean] /= np.maximum(lengths[:, is_mean], 1).astype(np.float32)
    scales: NDArray[np.float32] = np.repeat(of_bags.reshape(-1), lengths.reshape(-1))
    return scales if id_weights is None else scales * id_weights


class Outputs(NamedTuple):
    """What the look-ups in tables of one width make.

    Attributes:
        rows: float32 `[O, D]`.
        bags: what they were made of; None where each is the only row of a sample and feature.
    """

    rows: Tensor
    bags: DeviceBags | None


def embeddings_of(features: Sequence[FeatureFacts], samples: int, outputs: Sequence[Outputs]) -> Embeddings:
    """What a model gets of a step's outputs.

    Args:
        features: all of them, in the order of the data.
        samples: of the slice, n.
        outputs: of each width.
    """
    pooled: dict[int, Tensor] = {}
    sequences: dict[str, SequenceRows] = {}
    for rows, bags in outputs:
        width = rows.shape[1]
        own = [feature for feature in features if feature.width == width]
        names = [feature.name for feature in own if feature.is_sequence]
        sequence_rows, lengths = (bags.sequence_rows, bags.sequence_lengths) if bags else ([], [])
        count = len(own) - len(names)
        parts = torch.split(rows, [samples * count, *sequence_rows])
        pooled[width] = parts[0].view(samples, count, width)
        sequences |= dict(zip(names, map(SequenceRows, parts[1:], lengths), strict=True))
    return Embeddings(features, pooled, sequences)
