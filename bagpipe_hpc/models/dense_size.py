"""How large the dense half is: widths, weights, and the memory of a trainer for it. Pure; does without torch.

Legend: `N` dense features, `F` sparse features, `D` embedding width.
"""

from itertools import pairwise

from bagpipe_hpc.config.schema import ModelConfig

_FLOAT_BYTES = 4
_LOOK_UP_COPIES = 3
"""Of each look-up's weights a trainer holds the gathered ones, their gradients, and sums of these at the same time."""


def layer_widths(model: ModelConfig, dense_features: int, sparse_features: int) -> tuple[list[int], list[int]]:
    """Columns before the first layer and behind each one, of the bottom MLP and of the top MLP.

    Args:
        model: hidden widths and D.
        dense_features: number N.
        sparse_features: number F.
    """
    interactions = sparse_features * (sparse_features + 1) // 2
    bottom = [dense_features, *model.settings.bottom_mlp, model.embedding_dim]
    return bottom, [model.embedding_dim + interactions, *model.settings.top_mlp, 1]


def dense_weights(model: ModelConfig, dense_features: int, sparse_features: int) -> int:
    """Number of weights of the dense model (`models/dlrm.py`); arguments as for `layer_widths`."""
    mlps = layer_widths(model, dense_features, sparse_features)
    return sum((inputs + 1) * outputs for widths in mlps for inputs, outputs in pairwise(widths))


def weights_bytes(weights: int, state_numbers: float, trainers: int, *, deterministic: bool) -> int:
    """Memory for the dense weights, their gradients, the optimizer's state, and the sums over the trainers.

    Args:
        weights: as `dense_weights` counts them.
        state_numbers: that the optimizer keeps for a weight.
        trainers: number of trainers T. Of several, each sums the gradients in a buffer of its own.
        deterministic: the gradients of all trainers are gathered before they are added, where more than two do.
    """
    gathered = trainers if deterministic and trainers > 2 else 0
    buffered = 1 if trainers > 1 else 0
    return round(_FLOAT_BYTES * weights * (2 + state_numbers + buffered + gathered))


def slice_bytes(model: ModelConfig, dense_features: int, sparse_features: int, samples: int) -> int:
    """Memory for what a step computes on a slice: every layer's output, the gradients beside the widest, look-ups.

    Args:
        model: as for `layer_widths`, like the numbers of features.
        dense_features: number N.
        sparse_features: number F.
        samples: of the slice.
    """
    bottom, top = layer_widths(model, dense_features, sparse_features)
    columns = sum(bottom) + sum(top) + max(bottom + top)
    return _FLOAT_BYTES * samples * (columns + _LOOK_UP_COPIES * sparse_features * model.embedding_dim)
