"""FTRL-Proximal on rows (McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches", algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bagpipe_hpc.config.float32 import require_not_negative, require_positive
from bagpipe_hpc.rows.optimizers.contract import KernelCall, RowOptimizer, StateColumns
from bagpipe_hpc.rows.optimizers.exact import root

if TYPE_CHECKING:
    from torch import Tensor


class FTRL(RowOptimizer):
    """FTRL-Proximal with a rate for each weight; weights that l1 holds down are 0 exactly.

    It keeps the paper's n, and its z multiplied by the learning rate: for a constant rate that is the paper's
    algorithm. Where the rate follows a schedule, each gradient counts by the rate of its step, as in Adagrad, and what
    was learnt before stays; l1 and l2 keep the weight that the full rate gives them. The paper begins with weights and
    z of 0. Rows here begin with first weights, so at a weight's first update, while its n is 0, z is set to what gives
    that weight without regularisation. A weight whose gradients have all been 0 stays as it is.
    """

    @dataclass(frozen=True)
    class Settings:
        """FTRL-Proximal; the paper calls these alpha, beta, lambda1 and lambda2."""

        lr: float = 0.005
        """Learning rate of the embedding rows."""
        beta: float = 1e-8
        """Added to the root that divides the rate, 0 or more. The paper has 1, for gradients of single samples; those
        here are of the mean over a batch, and much smaller."""
        l1: float = 0.0
        """Strength of the L1 regularisation, 0 or more: makes weights 0."""
        l2: float = 0.0
        """Strength of the L2 regularisation, 0 or more: makes weights small."""

        def __post_init__(self) -> None:
            require_positive("lr", self.lr)
            require_not_negative("beta", self.beta)
            require_not_negative("l1", self.l1)
            require_not_negative("l2", self.l2)

    settings: Settings
    makes_weights_of_state = True
    state = (StateColumns("sum_of_squares", per_weight=True), StateColumns("scaled_z", per_weight=True))

    def update(self, weights: Tensor, state: tuple[Tensor, ...], gradients: Tensor, step: int) -> None:
        """`z += g * lr - (sqrt(n + g * g) - sqrt(n)) * w`, `n += g * g`, then w from z.

        `w = 0` where `|z| <= lr * l1`, else `w = (sign(z) * lr * l1 - z) / (sqrt(n) + beta + lr * l2)`.
        """
        squares, z = state
        beta, threshold, least = self._bounds()
        z.copy_((weights * -beta).where(squares == 0, z))
        old_roots = root(squares)
        squares += gradients * gradients
        roots = root(squares)
        z += gradients * self.rate(step) - (roots - old_roots) * weights
        free = (z.sign() * threshold - z) / (roots + least)
        weights.copy_(free.where(z.abs() > threshold, 0.0).where(squares != 0, weights))

    def _bounds(self) -> tuple[float, float, float]:
        """Beta; the least `|z|` of a weight that is not 0; and the least divisor. Each is rounded to float32 once."""
        settings = self.settings
        return settings.beta, settings.lr * settings.l1, settings.beta + settings.lr * settings.l2

    def kernel(self, step: int) -> KernelCall:
        """`apply_ftrl`."""
        return KernelCall("ftrl", (self.rate(step), *self._bounds()))
