"""Tries the dense optimizer on two small layers before a run begins: what would break one later is refused by name."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.models.optimizer.dense_optimizer import (
    blaming_optimizer,
    dense_optimizer,
    load_optimizer_state,
    refused_optimizer,
)
from bagpipe_hpc.storage.checkpoints.dense_file import require_storable

_WIDTH = 64
_GRADIENT = 0.01
_STEPS = 2
"""Number of steps before the state is saved, and again after that."""
_MATRICES_ALONE = ("Muon",)
"""Classes of torch that take matrices alone; a model with other weights is refused when its own weights are tried."""


def state_numbers(config: OptimizerConfig) -> float:
    """How many numbers the optimizer keeps for a weight, found by steps on two small layers.

    The steps also check what a run needs of an optimizer: that equal gradients give equal bits, that a training can go
    on from its `state_dict`, and that a weight without a gradient stays as it is.

    Raises:
        ConfigError: there is no such optimizer, it does not take its options, or it does not keep to that.
    """
    trial = _Trial(config)
    if not all(isinstance(group.get("lr"), int | float | Tensor) for group in trial.optimizer.param_groups):
        raise refused_optimizer(
            config, "has a group without lr in its param_groups: give torch.optim.Optimizer the defaults {'lr': lr}"
        )
    trial.step(_STEPS)
    if not all(weight.isfinite().all() for weight in trial.weights):
        raise refused_optimizer(config, "leaves weights that are not finite after a step")
    if not torch.equal(trial.frozen, torch.ones(1)):
        raise refused_optimizer(config, "changes a weight that has no gradient: pass over those whose .grad is None")
    saved = trial.optimizer.state_dict()
    try:
        require_storable("state_dict", saved)
    except TypeError as error:
        raise refused_optimizer(config, f"keeps what no checkpoint holds: {error}") from error
    trial.step(_STEPS)
    again = _Trial(config)
    again.step(2 * _STEPS)
    if not _equal(trial.weights, again.weights):
        raise refused_optimizer(config, "gives other weights for the same gradients, so trainers would differ")
    resumed = _Trial(config)
    resumed.step(_STEPS)
    resumed.reload()
    resumed.step(_STEPS)
    if not _equal(trial.weights, resumed.weights):
        raise refused_optimizer(
            config,
            "does not go on from its state_dict as if it had not been stopped: keep what it must remember in "
            "self.state[weight], not in param_groups, which are those of the new run",
        )
    return sum(value.numel() for value in _tensors(saved["state"]) if value.dim()) / sum(
        weight.numel() for weight in trial.weights
    )


def tried_shapes(config: OptimizerConfig, width: int) -> list[tuple[int, ...]]:
    """Shapes of the weights that an optimizer is tried on: a layer's and, where it takes vectors, a bias's."""
    return [(width, width)] if config.dense in _MATRICES_ALONE else [(width, width), (width,)]


class _Trial:
    """An optimizer of two layers' weights, and of one that has no gradient."""

    def __init__(self, config: OptimizerConfig) -> None:
        self._config = config
        self.weights = [nn.Parameter(torch.zeros(shape)) for shape in tried_shapes(config, _WIDTH)]
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self._steps = 0
        self.optimizer = self._new_optimizer()

    def _new_optimizer(self) -> Optimizer:
        frozen = [] if self._config.dense in _MATRICES_ALONE else [self.frozen]
        return dense_optimizer(self._config, [*self.weights, *frozen])

    def step(self, steps: int) -> None:
        """Make some steps, each with another gradient."""
        with blaming_optimizer(self._config):
            for _ in range(steps):
                self._steps += 1
                for weight in self.weights:
                    ramp = torch.linspace(0.5, 1.0, weight.numel()).view_as(weight)
                    weight.grad = ramp * (_GRADIENT * self._steps)
                self.optimizer.step()

    def reload(self) -> None:
        """Put a new optimizer in the place of this one, with its state, as a resumed run does."""
        with blaming_optimizer(self._config):
            saved = self.optimizer.state_dict()
            self.optimizer = self._new_optimizer()
            load_optimizer_state(self.optimizer, saved)


def _equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def _tensors(value: Any) -> list[Tensor]:
    """All tensors of nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return [value]
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for member in members for tensor in _tensors(member)]
