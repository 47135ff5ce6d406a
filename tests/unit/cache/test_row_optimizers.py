"""Row optimizers follow their formulas over many steps, and a row may change caches between any two of them."""

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.config.doors import ROW_OPTIMIZERS
from bagpipe_hpc.config.rates import RowsRateConfig
from bagpipe_hpc.config.schema import Config, ModelConfig, OptimizerConfig
from bagpipe_hpc.kernels.rows.row_operations import row_operations
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


Formula = Callable[[np.ndarray, dict[str, np.ndarray], np.ndarray, int], None]


def rowwise_adagrad(own: Any) -> Formula:
    """FBGEMM's `EXACT_ROWWISE_ADAGRAD`."""

    def update(weights: np.ndarray, state: dict[str, np.ndarray], gradient: np.ndarray, _: int) -> None:
        state["sum"] = state.get("sum", 0.0) + (gradient**2).mean(1, keepdims=True)
        weights -= own.lr * gradient / (np.sqrt(state["sum"]) + own.eps)

    return update


def rowwise_adam(own: Any) -> Formula:
    """FBGEMM's `PARTIAL_ROWWISE_ADAM`."""

    def update(weights: np.ndarray, state: dict[str, np.ndarray], gradient: np.ndarray, step: int) -> None:
        beta1, beta2 = own.betas
        state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * gradient
        state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * (gradient**2).mean(1, keepdims=True)
        divisor = np.sqrt(state["v"] / (1 - beta2**step)) + own.eps
        weights -= own.lr * state["m"] / (1 - beta1**step) / divisor

    return update


def ftrl(own: Any) -> Formula:
    """Algorithm 1 of McMahan et al. 2013; z begins with what gives the first weights, were there no regularisation."""

    def update(weights: np.ndarray, state: dict[str, np.ndarray], gradient: np.ndarray, _: int) -> None:
        alpha, squares = own.lr, state.get("n", np.zeros_like(weights))
        z, new_squares = state.get("z", -weights * own.beta / alpha), squares + gradient**2
        sigma = (np.sqrt(new_squares) - np.sqrt(squares)) / alpha
        state["z"], state["n"] = z + gradient - sigma * weights, new_squares
        found = -(state["z"] - np.sign(state["z"]) * own.l1) / ((own.beta + np.sqrt(new_squares)) / alpha + own.l2)
        weights[:] = np.where(np.abs(state["z"]) <= own.l1, 0.0, found)

    return update


def momentum(own: Any) -> Formula:
    def update(weights: np.ndarray, state: dict[str, np.ndarray], gradient: np.ndarray, _: int) -> None:
        state["v"] = own.momentum * state.get("v", 0.0) + gradient
        weights -= own.lr * (gradient + own.momentum * state["v"] if own.nesterov else state["v"])

    return update


FORMULAS = {"rowwise_adagrad": rowwise_adagrad, "rowwise_adam": rowwise_adam, "ftrl": ftrl, "momentum": momentum}


def plain(formula: Formula) -> np.ndarray:
    weights, state = first_weights(), {}
    for step, gradient in enumerate(gradients(), 1):
        formula(weights, state, gradient, step)
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
        case "momentum":
            options = {"momentum": own.momentum, "nesterov": own.nesterov}
            return plain_torch(torch.optim.SGD([weights], lr=own.lr, **options), weights)
    return plain(FORMULAS[config.rows](own))


def new_cache(name: str, slots: int = ROWS, backend: str = "auto") -> RowCache:
    record = RowRecord.of(Config(model=ModelConfig(embedding_dim=WIDTH), optimizer=OptimizerConfig(rows=name)))
    cache = RowCache(slots, record, row_operations(backend, CPU), CPU)
    records = np.zeros((ROWS, record.width), dtype=np.float32)
    records[:, :WIDTH] = first_weights()
    cache.scatter(all_slots(), records)
    return cache


def all_slots() -> Tensor:
    return torch.arange(ROWS, dtype=torch.int32)


VARIANTS: dict[str, dict[str, Any]] = {name: {} for name in BUILT_IN} | {
    "momentum, Nesterov's": {"nesterov": True},
    "ftrl, regularised": {"l1": 0.4, "l2": 0.2, "beta": 1.0},
    "ftrl, mostly zero": {"l1": 20.0},
}


def config_of(variant: str) -> OptimizerConfig:
    """With numbers that make each of them matter."""
    name = variant.partition(",")[0]
    given = {"lr": 0.1, "eps": 1e-3, "betas": (0.8, 0.95), "momentum": 0.8}
    own = {
        field.name: given[field.name] for field in fields(ROW_OPTIMIZERS.settings_class(name)) if field.name in given
    }
    return optimizer_config(name, **own, **VARIANTS[variant])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_many_steps_follow_the_formula(variant: str, backend: str) -> None:
    config = config_of(variant)
    optimizer, cache = build_row_optimizer(config), new_cache(config.rows, backend=backend)
    for step, gradient in enumerate(gradients(), 1):
        cache.update(optimizer, all_slots(), torch.from_numpy(gradient).float(), step)
    expected = expected_weights(config)
    np.testing.assert_allclose(cache.gather(all_slots()).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert np.count_nonzero(expected == 0) > 5 or "zero" not in variant


USED = [np.flatnonzero(np.random.default_rng(step).random(ROWS) < 0.5) for step in range(STEPS)]
"""Rows that each step uses."""


@pytest.mark.parametrize("variant", ["momentum", "momentum, Nesterov's", "rowwise_adam", "ftrl", "ftrl, regularised"])
def test_rows_that_are_not_used_stand_still(variant: str) -> None:
    """They keep weights and state; where a formula counts steps, those are of the whole training."""
    config = config_of(variant)
    optimizer, cache = build_row_optimizer(config), new_cache(config.rows)
    rows = [first_weights()[row : row + 1] for row in range(ROWS)]
    states: list[dict[str, np.ndarray]] = [{} for _ in rows]
    formula = FORMULAS[config.rows](config.row_settings)
    for step, (used, gradient) in enumerate(zip(USED, gradients(), strict=True), 1):
        cache.update(optimizer, torch.from_numpy(used).int(), torch.from_numpy(gradient[used]).float(), step)
        for row in used:
            formula(rows[row], states[row], gradient[row : row + 1], step)
    found = cache.gather(all_slots()).numpy()
    np.testing.assert_allclose(found, np.concatenate(rows), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.SparseAdam), ("adagrad", torch.optim.Adagrad)])
def test_torchs_sparse_gradients_give_the_same_weights(name: str, kind: type[torch.optim.Optimizer]) -> None:
    """SparseAdam corrects the root before it adds eps, so eps is too small here to matter."""
    config = optimizer_config(name, lr=0.1)
    optimizer, cache = build_row_optimizer(config), new_cache(name)
    weights = torch.nn.Parameter(torch.from_numpy(first_weights()))
    theirs = kind([weights], **asdict(config.row_settings))  # type: ignore[arg-type]
    for step, (used, gradient) in enumerate(zip(USED, gradients(), strict=True), 1):
        places, values = torch.from_numpy(used)[None], torch.from_numpy(gradient[used])
        weights.grad = torch.sparse_coo_tensor(places, values, (ROWS, WIDTH))
        theirs.step()
        cache.update(optimizer, torch.from_numpy(used).int(), torch.from_numpy(gradient[used]).float(), step)
    np.testing.assert_allclose(cache.gather(all_slots()).numpy(), weights.detach().numpy(), rtol=1e-4, atol=1e-5)


RATES = RowsRateConfig(warmup_steps=4, decay="polynomial", decay_start=6, decay_steps=STEPS, end_factor=0.1)


@pytest.mark.parametrize("variant", ["sgd", "momentum", "momentum, Nesterov's", "adagrad", "adam"])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_rates_are_those_of_torchs_optimizer_with_a_scheduler(variant: str, backend: str) -> None:
    config = config_of(variant)
    cache = new_cache(config.rows, backend=backend)
    optimizer, options = build_row_optimizer(config, RATES), asdict(config.row_settings)
    weights = torch.nn.Parameter(torch.from_numpy(first_weights()))
    kind = {"adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam}.get(config.rows, torch.optim.SGD)
    theirs = kind([weights], **options)
    scheduler = torch.optim.lr_scheduler.LambdaLR(theirs, lambda done: RATES.factor(done + 1))
    for step, gradient in enumerate(gradients(), 1):
        weights.grad = torch.from_numpy(gradient)
        theirs.step()
        scheduler.step()
        cache.update(optimizer, all_slots(), torch.from_numpy(gradient).float(), step)
    np.testing.assert_allclose(cache.gather(all_slots()).numpy(), weights.detach().numpy(), rtol=1e-4, atol=1e-5)


@each_optimizer
def test_a_kernel_has_the_rate_of_its_step(name: str) -> None:
    """The bits of the formula, in every step of a schedule."""
    optimizer = build_row_optimizer(optimizer_config(name), RATES)
    caches = [new_cache(name, backend=backend) for backend in ("auto", "reference")]
    for step, gradient in enumerate(torch.from_numpy(gradients()).float(), 1):
        for cache in caches:
            cache.update(optimizer, all_slots(), gradient, step)
        records = [cache.gather_records(all_slots()) for cache in caches]
        np.testing.assert_array_equal(*records)


@pytest.mark.parametrize("regularised", [{}, {"l1": 0.4, "l2": 0.2}])
def test_ftrl_keeps_what_it_learnt_when_the_rate_changes(regularised: dict[str, float]) -> None:
    """A rate that is another from one step on does not scale the weights: without a gradient they stay."""
    cache = new_cache("ftrl", backend="reference")
    settings = {"lr": 0.1, "beta": 1.0, **regularised}
    rates = RowsRateConfig(decay="step", decay_steps=STEPS, gamma=0.01)
    optimizer = build_row_optimizer(optimizer_config("ftrl", **settings), rates)
    for step, gradient in enumerate(torch.from_numpy(gradients()).float(), 1):
        cache.update(optimizer, all_slots(), gradient, step)
    before = cache.gather(all_slots())
    assert optimizer.rate(STEPS + 1) == pytest.approx(0.001)
    cache.update(optimizer, all_slots(), torch.zeros(ROWS, WIDTH), STEPS + 1)
    torch.testing.assert_close(cache.gather(all_slots()), before, rtol=1e-6, atol=1e-7)


def test_ftrl_without_regularisation_is_adagrad() -> None:
    """First weights are kept, and every step is Adagrad's, also where rates follow a schedule."""
    caches = {name: new_cache(name) for name in ("ftrl", "adagrad")}
    optimizers = {
        "ftrl": build_row_optimizer(optimizer_config("ftrl", lr=0.1, beta=1e-3), RATES),
        "adagrad": build_row_optimizer(optimizer_config("adagrad", lr=0.1, eps=1e-3), RATES),
    }
    for step, gradient in enumerate(torch.from_numpy(gradients()).float(), 1):
        for name, cache in caches.items():
            cache.update(optimizers[name], all_slots(), gradient, step)
    found, expected = (cache.gather(all_slots()) for cache in caches.values())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_ftrl_leaves_weights_without_a_gradient_alone(backend: str) -> None:
    """Also where l1 would hold a new weight at 0, and where nothing keeps the divisor from 0."""
    cache = new_cache("ftrl", backend=backend)
    before = cache.gather(all_slots())
    optimizer = row_optimizer("ftrl", l1=10.0, beta=0.0)
    cache.update(optimizer, all_slots(), torch.zeros(ROWS, WIDTH), 1)
    assert torch.equal(cache.gather(all_slots()), before)


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
