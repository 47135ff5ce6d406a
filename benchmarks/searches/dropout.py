"""DLRM with dropout behind the hidden layers of its top MLP: what a search needs to try dropout."""

from dataclasses import dataclass

from torch import nn

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.models.dropout import Dropout
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.dlrm import DLRM
from bagpipe_hpc.models.published.mlp import MLP


class DropoutDLRM(DLRM):
    """DLRM's own settings and first weights, and `model.dropout`."""

    @dataclass(frozen=True)
    class Settings(DLRMSettings):
        """DLRM's, and how much is dropped."""

        dropout: float = 0.2
        """Probability that a hidden number is set to zero."""

    def __init__(self, facts: ModelFacts, settings: Settings) -> None:
        super().__init__(facts, settings)
        layers: list[nn.Module] = []
        for layer in self.top:
            layers += [layer, Dropout(settings.dropout)] if isinstance(layer, nn.ReLU) else [layer]
        self.top = MLP(layers)
