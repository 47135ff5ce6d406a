"""First weights of a run, so that every contender starts from the same numbers.

Legend: `N` dense features, `F` sparse features, `D` embedding width.
"""

import numpy as np
import torch
from torch import Tensor

from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.rows.initial_values import initial_weights
from bagpipe_hpc.run.run import Run

_FILL_ROWS = 1 << 16
"""Rows that are drawn at a time: bounds the temporary memory."""


def dense_weights(job: Run) -> dict[str, Tensor]:
    """First weights of the dense half, named `bottom.0.weight`, `bottom.0.bias`, `bottom.2.weight` ..., `top...`."""
    return build_model(job.config.model, job.model_facts).state_dict()


def in_torchrec_order(weight: Tensor, width: int, vectors: int) -> Tensor:
    """The first layer of the top MLP with its inputs as TorchRec's interaction gives them.

    Both give the bottom's output, then the products of each pair of vectors: TorchRec row by row of the upper triangle,
    `DLRM` of bagpipe_hpc row by row of the lower one.

    Args:
        weight: float32 `[out, width + pairs]`.
        width: embedding width.
        vectors: sparse features and the bottom's output.
    """
    second, first = torch.tril_indices(vectors, vectors, offset=-1)
    return torch.cat((weight[:, :width], weight[:, width + torch.argsort(first * vectors + second)]), dim=1)


@torch.no_grad()
def fill_table(weights: Tensor, job: Run, table: int) -> None:
    """Write the first weights of a table: float32 `[rows of the table, D]`, in place."""
    begin, seed, width = int(job.table_offsets[table]), job.config.train.seed, job.config.model.embedding_dim
    bound = job.config.initial_bound
    for first in range(0, len(weights), _FILL_ROWS):
        last = min(first + _FILL_ROWS, len(weights))
        rows = np.arange(begin + first, begin + last)
        weights[first:last] = torch.from_numpy(initial_weights(rows, job.table_offsets, width, seed, bound))
