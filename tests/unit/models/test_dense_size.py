"""The dense half's weights and memory are those of the model that torch builds."""

import pytest
import torch

from bagpipe_hpc.config.dlrm import DLRMSettings
from bagpipe_hpc.config.schema import ModelConfig, OptimizerConfig
from bagpipe_hpc.models.dense_optimizer import dense_optimizer, state_numbers
from bagpipe_hpc.models.dense_size import dense_weights, slice_bytes, weights_bytes
from bagpipe_hpc.models.dlrm import DLRM

SMALL = ModelConfig(embedding_dim=4, settings=DLRMSettings(bottom_mlp=(40,), top_mlp=(50, 30)))


@pytest.mark.parametrize(("bottom", "top"), [((512, 256, 64), (512, 256)), ((), (8,))])
def test_dense_weights_are_those_of_the_model(bottom: tuple[int, ...], top: tuple[int, ...]) -> None:
    config = ModelConfig(embedding_dim=16, settings=DLRMSettings(bottom_mlp=bottom, top_mlp=top))
    model = DLRM(config, dense_features=13, sparse_features=26, seed=1)
    assert dense_weights(config, 13, 26) == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    ("dense", "options"), [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adagrad", {}), ("Adam", {}), ("Adafactor", {})]
)
def test_memory_of_weights_gradients_and_state(dense: str, options: dict[str, float]) -> None:
    model = DLRM(SMALL, dense_features=3, sparse_features=2, seed=1)
    settings = OptimizerConfig(dense=dense, dense_options=options)
    optimizer = dense_optimizer(settings, model.parameters())
    weights = list(model.parameters())
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    state = [value for kept in optimizer.state.values() for value in kept.values() if isinstance(value, torch.Tensor)]
    held = 2 * sum(weight.nbytes for weight in weights) + sum(value.nbytes for value in state)
    counted = weights_bytes(dense_weights(SMALL, 3, 2), state_numbers(settings), 1, deterministic=True)
    assert counted == pytest.approx(held, rel=0.1)  # a step's number for each tensor; Adafactor's rows and columns


def test_several_trainers_sum_in_buffers() -> None:
    def copies(trainers: int, *, deterministic: bool) -> float:
        return weights_bytes(1000, 0, trainers, deterministic=deterministic) / 4000

    assert [copies(trainers, deterministic=False) for trainers in (1, 2, 3)] == [2, 3, 3]
    assert [copies(trainers, deterministic=True) for trainers in (1, 2, 3)] == [2, 3, 6]


def test_memory_of_a_slice_by_hand() -> None:
    """Columns 3, 40, 4 and 7, 50, 30, 1; the widest once more; three copies of 2 x 4 numbers of rows."""
    assert slice_bytes(SMALL, 3, 2, samples=10) == 4 * 10 * (3 + 40 + 4 + 7 + 50 + 30 + 1 + 50 + 3 * 2 * 4)
