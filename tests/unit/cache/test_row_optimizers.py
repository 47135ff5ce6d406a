"""Row optimizers follow their formulas over many steps, and a row may change caches between any two of them."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.config.doors import ROW_OPTIMIZERS
from bagpipe_hpc.config.schema import Config, ModelConfig, OptimizerConfig
from bagpipe_hpc.kernels.row_operations import row_operations
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.record import RowRecord
from tests.row_optimizers import BUILT_IN, optimizer_config, row_optimizer

ROWS, WIDTH, STEPS = 6, 5, 20
CPU = torch.device("cpu")

each_optimizer = pytest.mark.parametrize("name", BUILT_IN)


def first_weights() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, WIDTH))


def gradients() -> np.ndarray:
    """Gradients of every step, float64 `[STEPS, ROWS, WIDTH]`."""
    return np.random.default_rng(1).standard_normal((STEPS, ROWS, WIDTH))


def plain_rowwise_adagrad(config: OptimizerConfig) -> np.ndarray:
    weights, accumulator = first_weights(), np.zeros((ROWS, 1))
    for gradient in gradients():
        accumulator += (gradient**2).mean(1, keepdims=True)
        weights -= config.row_settings.lr * gradient / (np.sqrt(accumulator) + config.row_settings.eps)
    return weights


def plain_torch(optimizer: torch.optim.Optimizer, weights: torch.nn.Parameter) -> np.ndarray:
    """What an optimizer of torch makes of the same gradients."""
    for gradient in torch.from_numpy(gradients()):
        weights.grad = gradient
        optimizer.step()
    return weights.detach().numpy()


def expected_weights(config: OptimizerConfig) -> np.ndarray:
    """In float64, from torch where it has the optimizer."""
    weights = torch.nn.Parameter(torch.from_numpy(first_weights()))
    own = config.row_settings
    match config.rows:
        case "sgd":
            return plain_torch(torch.optim.SGD([weights], lr=own.lr), weights)
        case "adagrad":
            return plain_torch(torch.optim.Adagrad([weights], lr=own.lr, eps=own.eps), weights)
        case "adam":
            return plain_torch(torch.optim.Adam([weights], lr=own.lr, betas=own.betas, eps=own.eps), weights)
    return plain_rowwise_adagrad(config)


def new_cache(name: str, slots: int = ROWS) -> RowCache:
    record = RowRecord.of(Config(model=ModelConfig(embedding_dim=WIDTH), optimizer=OptimizerConfig(rows=name)))
    cache = RowCache(slots, record, row_operations("auto", CPU), CPU)
    records = np.zeros((ROWS, record.width), dtype=np.float32)
    records[:, :WIDTH] = first_weights()
    cache.scatter(all_slots(), records)
    return cache


def all_slots() -> Tensor:
    return torch.arange(ROWS, dtype=torch.int32)


@each_optimizer
def test_many_steps_follow_the_formula(name: str) -> None:
    given = {"lr": 0.1, "eps": 1e-3, "betas": (0.8, 0.95)}
    own = {field.name: given[field.name] for field in fields(ROW_OPTIMIZERS.settings_class(name))}
    config = optimizer_config(name, **own)
    optimizer, cache = build_row_optimizer(config), new_cache(name)
    for step, gradient in enumerate(gradients(), 1):
        cache.update(optimizer, all_slots(), torch.from_numpy(gradient).float(), step)
    np.testing.assert_allclose(cache.gather(all_slots()).numpy(), expected_weights(config), rtol=1e-4, atol=1e-5)


@each_optimizer
def test_an_update_leaves_other_slots_alone(name: str) -> None:
    cache = new_cache(name)
    before = cache.gather_records(all_slots())
    cache.update(row_optimizer(name), all_slots()[[1, 4]], torch.ones(2, WIDTH), 1)
    changed = (cache.gather_records(all_slots()) != before).all(1)
    assert changed.tolist() == [False, True, False, False, True, False]


@each_optimizer
def test_a_rows_state_travels_in_its_record(name: str) -> None:
    """Moving the rows to other slots of another cache before every step changes no bit."""
    optimizer = row_optimizer(name)
    staying, moving, slots = new_cache(name), new_cache(name), all_slots()
    for step, gradient in enumerate(torch.from_numpy(gradients()).float(), 1):
        staying.update(optimizer, all_slots(), gradient, step)
        records = moving.gather_records(slots)
        moving, slots = new_cache(name, slots=2 * ROWS), (slots * 5 + 7) % (2 * ROWS)
        moving.scatter(slots, records)
        moving.update(optimizer, slots, gradient, step)
    np.testing.assert_array_equal(moving.gather_records(slots), staying.gather_records(all_slots()))
