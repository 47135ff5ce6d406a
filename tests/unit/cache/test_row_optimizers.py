"""Row optimizers follow their formulas over many steps, and a row may change caches between any two of them."""

import numpy as np
import pytest
import torch

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.cache.row_optimizers import row_optimizer
from bagpipe_hpc.config import ROW_OPTIMIZERS, OptimizerConfig
from bagpipe_hpc.row_record import STATE_COLUMNS

ROWS, WIDTH, STEPS = 6, 5, 20
CPU = torch.device("cpu")


def first_weights() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, WIDTH))


def gradients() -> np.ndarray:
    """Gradients of every step, float64 `[STEPS, ROWS, WIDTH]`."""
    return np.random.default_rng(1).standard_normal((STEPS, ROWS, WIDTH))


def plain_sgd(config: OptimizerConfig) -> np.ndarray:
    return first_weights() - config.rows_lr * gradients().sum(0)


def plain_rowwise_adagrad(config: OptimizerConfig) -> np.ndarray:
    weights, accumulator = first_weights(), np.zeros((ROWS, 1))
    for gradient in gradients():
        accumulator += (gradient**2).mean(1, keepdims=True)
        weights -= config.rows_lr * gradient / (np.sqrt(accumulator) + config.rows_eps)
    return weights


PLAIN = {"sgd": plain_sgd, "rowwise_adagrad": plain_rowwise_adagrad}


def new_cache(state_columns: int, slots: int = ROWS) -> RowCache:
    cache = RowCache(slots, WIDTH, state_columns, CPU)
    records = np.zeros((ROWS, WIDTH + state_columns), dtype=np.float32)
    records[:, :WIDTH] = first_weights()
    cache.scatter(torch.arange(ROWS), records)
    return cache


@pytest.mark.parametrize("name", ROW_OPTIMIZERS)
def test_many_steps_follow_the_formula(name: str) -> None:
    config = OptimizerConfig(rows=name, rows_lr=0.1, rows_eps=1e-3)
    optimizer = row_optimizer(config)
    cache = new_cache(len(STATE_COLUMNS[name]))
    for gradient in gradients():
        optimizer.apply(cache, torch.arange(ROWS), torch.from_numpy(gradient).float())
    np.testing.assert_allclose(cache.gather(torch.arange(ROWS)).numpy(), PLAIN[name](config), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ROW_OPTIMIZERS)
def test_a_rows_state_travels_in_its_record(name: str) -> None:
    """Moving the rows to other slots of another cache before every step changes no bit."""
    optimizer = row_optimizer(OptimizerConfig(rows=name))
    staying = new_cache(len(STATE_COLUMNS[name]))
    moving, slots = new_cache(len(STATE_COLUMNS[name])), torch.arange(ROWS)
    for gradient in torch.from_numpy(gradients()).float():
        optimizer.apply(staying, torch.arange(ROWS), gradient)
        records = moving.gather_records(slots)
        moving, slots = new_cache(len(STATE_COLUMNS[name]), slots=2 * ROWS), (slots * 5 + 7) % (2 * ROWS)
        moving.scatter(slots, records)
        optimizer.apply(moving, slots, gradient)
    np.testing.assert_array_equal(moving.gather_records(slots), staying.gather_records(torch.arange(ROWS)))


def test_the_settings_reach_the_optimizer() -> None:
    assert row_optimizer(OptimizerConfig(rows="sgd", rows_lr=0.25)).lr == 0.25
    adagrad = row_optimizer(OptimizerConfig(rows="rowwise_adagrad", rows_lr=0.25, rows_eps=0.5))
    assert (adagrad.lr, adagrad.eps) == (0.25, 0.5)
