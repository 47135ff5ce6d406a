"""DLRM on prepared clicks as anybody would write it: torch's modules, sparse gradients and optimizers, in float64.

It shares no line with bagpipe. What it has in common with a run is written down in the documentation: how shards lie on
the disk, the order of samples, and from which random numbers weights begin.

Legend: `N` training samples, `F` tables, `B` samples of a batch.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

GOLDEN = 0x9E3779B97F4A7C15
State = Mapping[str, NDArray[np.float64]]
"""Weights by name: of the dense layers, and `tables`, all rows of all tables in order."""


@dataclass(frozen=True)
class Clicks:
    """Training samples.

    Attributes:
        dense: `[N, 13]`.
        ids: `[N, F]`.
        labels: `[N]`.
        table_rows: rows of each table.
    """

    dense: Tensor
    ids: Tensor
    labels: Tensor
    table_rows: list[int]

    @classmethod
    def read(cls, shards: Path) -> "Clicks":
        """All training samples of a folder of shards."""
        manifest = json.loads((shards / "manifest.json").read_text(encoding="utf-8"))
        columns: dict[str, list[Any]] = {"dense": [], "sparse": [], "label": []}
        for shard in manifest["shards"]["train"]:
            with h5py.File(shards / shard["file"]) as file:
                for name, parts in columns.items():
                    parts.append(file[name][:])
        dense, ids, labels = (np.concatenate(parts) for parts in columns.values())
        rows = [table["rows"] for table in manifest["tables"]]
        return cls(torch.tensor(dense).double(), torch.tensor(ids).long(), torch.tensor(labels).double(), rows)


class Dlrm(nn.Module):
    """Bottom MLP of one hidden layer, dot products of all pairs, top MLP of one hidden layer."""

    def __init__(self, table_rows: list[int], dim: int, hidden: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        features = len(table_rows) + 1
        self.bottom = nn.Sequential(_layer(13, hidden, generator), nn.ReLU(), _layer(hidden, dim, generator), nn.ReLU())
        pairs = features * (features - 1) // 2
        self.top = nn.Sequential(_layer(dim + pairs, hidden, generator), nn.ReLU(), _layer(hidden, 1, generator))
        first = [torch.tensor(first_rows(number, rows, dim, seed)) for number, rows in enumerate(table_rows)]
        self.tables = nn.ModuleList(nn.Embedding.from_pretrained(rows, freeze=False, sparse=True) for rows in first)
        self.double()

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Logits `[B]` of samples `[B, 13]` and `[B, F]`."""
        bottom = self.bottom(dense)
        rows = [table(column) for table, column in zip(self.tables, ids.unbind(1), strict=True)]
        vectors = torch.stack([bottom, *rows], dim=1)
        products = vectors @ vectors.transpose(1, 2)
        below = torch.tril_indices(len(rows) + 1, len(rows) + 1, offset=-1)
        return self.top(torch.cat((bottom, products[:, below[0], below[1]]), dim=1)).squeeze(1)


def _layer(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.normal_(0.0, math.sqrt(2 / (inputs + outputs)), generator=generator)
        layer.bias.normal_(0.0, math.sqrt(1 / outputs), generator=generator)
    return layer


def first_rows(table: int, rows: int, dim: int, seed: int) -> NDArray[np.float32]:
    """Uniform between plus and minus 1/sqrt(rows), by SplitMix64 from seed, table, id and column, `[rows, dim]`."""
    steps = np.arange(1, dim + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        of_table = _mix(np.array([(seed + table * GOLDEN) % 2**64], dtype=np.uint64))
        of_rows = _mix(of_table + np.arange(rows, dtype=np.uint64) * np.uint64(GOLDEN))
        bits = _mix(of_rows[:, None] + steps * np.uint64(GOLDEN)) >> np.uint64(40)
    unit: NDArray[np.float32] = bits.astype(np.float32) * np.float32(2**-23) - np.float32(1)
    return unit * np.float32(1 / math.sqrt(rows))


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def batches(samples: int, batch_size: int, block_rows: int, epochs: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """The samples of each batch: blocks are permuted, and the samples in each block."""
    for epoch in range(epochs):
        order = []
        blocks = -(-samples // block_rows)
        for block in np.random.default_rng([seed, epoch]).permutation(blocks):
            first, end = block * block_rows, min((block + 1) * block_rows, samples)
            order.append(first + np.random.default_rng([seed, epoch, int(block) + 1]).permutation(end - first))
        whole = np.concatenate(order)
        yield from (whole[first : first + batch_size] for first in range(0, samples, batch_size))


def weights_of(model: Dlrm) -> State:
    """What a model has learnt, or begins with."""
    state = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    rows = [state.pop(f"tables.{number}.weight") for number in range(len(model.tables))]
    return {**state, "tables": np.concatenate(rows)}


def train(
    model: Dlrm, clicks: Clicks, order: Iterator[NDArray[np.int64]], optimizers: list[torch.optim.Optimizer]
) -> None:
    """One step for each batch."""
    with torch.sparse.check_sparse_tensor_invariants():
        for samples in order:
            for optimizer in optimizers:
                optimizer.zero_grad()
            logits = model(clicks.dense[samples], clicks.ids[samples])
            nn.functional.binary_cross_entropy_with_logits(logits, clicks.labels[samples]).backward()
            for optimizer in optimizers:
                optimizer.step()


def read_checkpoint(output: Path) -> State:
    """The weights of the only checkpoint of a run, all rows of which are full."""
    (folder,) = (output / "checkpoints").glob("step-*")
    numbers, weights = [], []
    for path in sorted(folder.glob("rows-*.h5")):
        with h5py.File(path) as file:
            runs = file["runs"][:]
            numbers.append(np.concatenate([first + stride * np.arange(length) for first, stride, length in runs]))
            weights.append(file["weights"][:].astype(np.float64))
    with h5py.File(folder / "dense.h5") as file:
        dense = {name: values[:].astype(np.float64) for name, values in file["model"].items()}
    return {**dense, "tables": np.concatenate(weights)[np.argsort(np.concatenate(numbers))]}
