"""Stochastic gradient descent on rows, plain and with momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bagpipe_hpc.config.float32 import require_decay, require_positive
from bagpipe_hpc.rows.optimizers.contract import KernelCall, RowOptimizer, StateColumns

if TYPE_CHECKING:
    from torch import Tensor


class SGD(RowOptimizer):
    """Plain stochastic gradient descent; no state."""

    @dataclass(frozen=True)
    class Settings:
        """Plain stochastic gradient descent."""

        lr: float = 0.005
        """Learning rate of the embedding rows."""

        def __post_init__(self) -> None:
            require_positive("lr", self.lr)

    settings: Settings

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:  # noqa: ARG002
        """`w -= g * lr`."""
        weights -= gradients * self.rate(step)

    def kernel(self, step: int) -> KernelCall:
        """`apply_sgd`."""
        return KernelCall("sgd", (self.rate(step),))


class Momentum(RowOptimizer):
    """SGD with momentum (Polyak 1964; Sutskever et al. 2013), as `torch.optim.SGD`: a velocity for each weight.

    The velocity of a row that a batch does not use stands still.
    """

    @dataclass(frozen=True)
    class Settings:
        """Stochastic gradient descent with momentum."""

        lr: float = 0.005
        """Learning rate of the embedding rows."""
        momentum: float = 0.9
        """What is left of a row's velocity at its next update."""
        nesterov: bool = False
        """Look one step of the velocity ahead (Nesterov's momentum)."""

        def __post_init__(self) -> None:
            require_positive("lr", self.lr)
            require_decay("momentum", self.momentum)

    settings: Settings
    state = (StateColumns("velocity", per_weight=True),)

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        """`v = v * momentum + g; w -= v * lr`; with Nesterov's, `w -= (v * momentum + g) * lr`."""
        (velocity,) = state
        momentum = self.settings.momentum
        velocity.mul_(momentum).add_(gradients)
        direction = velocity * momentum + gradients if self.settings.nesterov else velocity
        weights -= direction * self.rate(step)

    def kernel(self, step: int) -> KernelCall:
        """`apply_momentum`, `apply_nesterov`."""
        name = "nesterov" if self.settings.nesterov else "momentum"
        return KernelCall(name, (self.settings.momentum, self.rate(step)))
