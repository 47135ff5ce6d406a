"""A DLRM that computes as long as it is told to, without a core: many trainers on a few cores, as if each had its own.

Its layers are computed as well, so they should be small. All else of a run is as ever.

Legend: `B` samples, `N` dense features.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.dlrm import DLRM
from bagpipe_hpc.models.published.inputs import as_logits

NAME = f"{__name__}:PacedDLRM"
"""As `model.name` has it."""
_PASSES = (1 / 3, 2 / 3)
"""Of the time of a step: forward and backward."""


class PacedDLRM(DLRM):
    """A DLRM that sleeps for a time of each sample, in each MLP for as much of it as that has of the weights."""

    @dataclass(frozen=True)
    class Settings(DLRMSettings):
        """Those of a DLRM, and the time."""

        us_per_sample: float = 0.0
        """Microseconds, of both passes together."""

    def __init__(self, facts: ModelFacts, settings: Settings) -> None:
        super().__init__(facts, settings)
        weights = [sum(weight.numel() for weight in mlp.parameters()) for mlp in (self.bottom, self.top)]
        self._s_per_sample = [settings.us_per_sample * 1e-6 * of_mlp / sum(weights) for of_mlp in weights]

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        """Logits, as a DLRM's; `dense` is float32 `[B, N]`."""
        of_bottom, of_top = (len(dense) * seconds for seconds in self._s_per_sample)
        bottom = _Sleeping.apply(self.bottom(dense), of_bottom)  # type: ignore[no-untyped-call]
        top = self.top(self._interaction(bottom, embeddings.stacked()))
        return as_logits(_Sleeping.apply(top, of_top))  # type: ignore[no-untyped-call]


class _Sleeping(torch.autograd.Function):
    """The same numbers, later: so many seconds in the two passes together."""

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        time.sleep(_PASSES[0] * seconds)
        return numbers.view_as(numbers)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        time.sleep(_PASSES[1] * ctx.seconds)
        return gradient, None
