"""What a model is: the dense half of a recommendation model, of this package or of a user's own (docs/extending.md).

A model is an `nn.Module`. It is made once on every trainer and once in the one-rank run, by `models/build.py`, and must
come out the same everywhere. In every step it computes the logits of a slice of the batch; the loss is apart from it
(`models/loss.py`), and the rows of the tables are given to it and updated for it.

Legend: `B` samples of a slice, `N` dense features, `P` pooled features, `D` embedding width, `K` labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from bagpipe_hpc.models.facts import ModelFacts

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bagpipe_hpc.models.embeddings import Embeddings
    from bagpipe_hpc.models.layers.interaction import Interaction
    from bagpipe_hpc.models.layers.linear import LinearLayer


class Model(Protocol):
    """What every model has. It is an `nn.Module`, too, with at least one trainable float32 parameter.

    `bagpipe train` tries each model on a few samples before anything is written, and refuses by name one that does not
    keep to this.
    """

    def __init__(self, facts: ModelFacts, settings: Any) -> None:
        """Make the model with its first weights, on the CPU.

        All that it draws from torch's generator is the same on every trainer: the generator is seeded with `facts.seed`
        before, and put back afterwards.

        Args:
            facts: sizes of its inputs.
            settings: its own settings, an object of its class `Settings`; without one, of `NoSettings`.
        """

    def forward(self, dense: "Tensor", embeddings: "Embeddings") -> "Tensor":
        """Logits, such as that of a click; called in every step and every evaluation.

        They depend on the inputs and the weights alone, those of a sample on that sample alone: no means over the
        slice, and nothing random but `models.dropout.Dropout`, whose masks follow the seed, the step and the sample's
        number in the batch. Otherwise the result would change with the number of trainers. `self.training` is true in
        training steps alone.

        Args:
            dense: float32 `[B, N]`; B may be 0, where a batch has fewer samples than there are trainers.
            embeddings: a vector of each pooled feature (`embeddings.stacked()`, float32 `[B, P, D]`), the rows of each
                sequence.

        Returns:
            float32 `[B]`, with several labels `[B, K]`; differentiable in the weights and in the embeddings.
        """


@dataclass(frozen=True)
class ModelKernels:
    """Code for what models have in common, chosen by `kernels.linear`, `kernels.backend`, `model.precision` and device.

    Attributes:
        linear: computes a linear layer with an optional ReLU.
        interaction: computes the dot products of every pair of a sample's vectors.
    """

    linear: "LinearLayer"
    interaction: "Interaction"


@runtime_checkable
class TakesKernels(Protocol):
    """A model whose layers other code can compute: only to such a model does `kernels.linear` apply.

    With `model.precision = "bfloat16"` it gets other linear layers; any other model's forward runs under torch's
    autocast.
    """

    def use_kernels(self, kernels: ModelKernels) -> None:
        """Compute with these from now on. Called once the model is made, and while linear layers are timed."""


@runtime_checkable
class OrdersGradients(Protocol):
    """A model that knows in which order the backward pass finishes its gradients."""

    def gradient_groups(self) -> "Sequence[Sequence[nn.Parameter]]":
        """Every trainable parameter once, in groups that are summed over the trainers as one, the first ones first.

        The sum of a group starts as soon as its last gradient is there, so the groups should be few, and finish one
        after the other. Without this method the groups follow the order of registration, backwards.
        """


@runtime_checkable
class CountsStepBytes(Protocol):
    """A model that knows how much memory a step takes."""

    def step_bytes(self, samples: int) -> int:
        """Bytes of a slice's layers and their gradients, without those of the weights. Called before anything runs.

        It must be pure. Without this method, what autograd keeps in a forward pass is counted.
        """
