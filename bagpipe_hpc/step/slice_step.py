"""A slice of a batch that waits for its loss: what a training loop is given, and what it gives back.

Legend: `n` samples of the slice, `N` dense features, `K` labels, `O` embeddings of a width, `D` that width.
"""

import math
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor, nn

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.step.dense.passes import TakesGradients, backward
from bagpipe_hpc.step.ready_batch import BatchInputs


class SliceStep:
    """A trainer's slice of a batch, or a micro-batch of it; its rows are here.

    Args:
        model_weights: of the dense half, as for `backward` of `step/dense/passes.py`.
        inputs: of the slice.
        embeddings: of its look-ups; tensors that require gradients.
        batch_samples: of the global batch.
        step: number of the training step, from 1.
        take: as for `backward` of `step/dense/passes.py`; None where gradients are taken of the result alone. It gets
            none of a loss that is not finite, which ends the run: nothing of such a step may reach other trainers.
        before_backward: called first by `backward`, when the forward pass is over.

    Attributes:
        dense: dense features, float32 `[n, N]`; n may be 0, where a batch has fewer samples than there are trainers.
        embeddings: differentiable; as a model gets them.
        labels: float32 `[n]`, with several labels `[n, K]`.
        weights: of the samples, float32 `[n]`; None where the data has none.
        batch_samples: samples of the whole batch, over all trainers.
        step: number of the training step, from 1.
    """

    def __init__(
        self,
        model_weights: Sequence[Tensor],
        inputs: BatchInputs,
        embeddings: Embeddings,
        batch_samples: int,
        step: int,
        take: TakesGradients | None = None,
        before_backward: Callable[[], object] = lambda: None,
    ) -> None:
        self.dense = inputs.dense
        self.labels = inputs.labels
        self.weights = inputs.weights
        self.embeddings = embeddings
        self.batch_samples = batch_samples
        self.step = step
        self._model_weights = model_weights
        self._take = take
        self._before_backward = before_backward
        self._result: tuple[Tensor, dict[int, Tensor]] | None = None
        self._trained: Tensor | None = None

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss; called once a slice. The engine does the rest: sums and updates.

        Args:
            loss: the slice's share of the batch's loss, a scalar. The shares of all trainers are added up: of a mean
                over the batch, divide the sum over the slice by `batch_samples`.

        Raises:
            ConfigError: it is called a second time, or `loss` is no scalar tensor that depends on anything.
        """
        if self._result is not None:
            raise ConfigError(f"step {self.step}: backward was called twice; add up the losses, and call it once")
        if not isinstance(loss, Tensor):
            raise ConfigError(f"step {self.step}: backward got {loss!r}; give it a scalar tensor with a gradient")
        if loss.dim() or not loss.requires_grad:
            kind = f"of shape {list(loss.shape)}" if loss.dim() else "that depends on no weight and no embedding"
            raise ConfigError(f"step {self.step}: backward got a loss {kind}; give it a scalar with a gradient")
        self._before_backward()
        take = self._take if self._take and math.isfinite(loss.item()) else None
        self._result = loss.detach(), backward(self._model_weights, self.embeddings, loss, take)
        self._trained = next((weight for weight in self._model_weights if weight.requires_grad), None)

    def result(self) -> tuple[Tensor, dict[int, Tensor]]:
        """The loss, float32 `[]`, and the gradients of the embeddings of each width D, float32 `[O, D]`.

        Raises:
            ConfigError: the loop has not called `backward`, or has removed the gradients behind it.
        """
        if self._result is None:
            raise ConfigError(
                f"step {self.step}: the loop asks for the next slice without batch.backward(loss); each slice needs it "
                "once, also one without samples"
            )
        if self._trained is not None and self._trained.grad is None:  # zero_grad() removes those of all weights
            raise ConfigError(
                f"step {self.step}: the weights have no gradients behind batch.backward(loss); leave zero_grad() out: "
                "the engine removes gradients itself, once it has updated the weights"
            )
        return self._result


class Session:
    """A run, as the training loop of one trainer sees it: iterate over it for the slices of all training batches.

    Args:
        model: of the run.
        facts: what the model was told of its inputs.
        slices: all of them.
        trainer: number of this trainer, from 0.
        trainers: their number.
    """

    def __init__(
        self, model: nn.Module, facts: ModelFacts, slices: Iterator[SliceStep], trainer: int, trainers: int
    ) -> None:
        self.model = model
        self.facts = facts
        self.trainer = trainer
        self.trainers = trainers
        self._slices = slices
        self._is_begun = False
        self._is_over = False

    def __iter__(self) -> Iterator[SliceStep]:
        """All slices, once; none behind the last.

        Raises:
            ConfigError: an earlier iteration was left before its end, which has ended all.
        """
        if self._is_begun and not self._is_over:
            raise ConfigError(
                "the training loop begins to go through its session a second time, and has left the first before its "
                "end; write one `for batch in session`, or go on with one `batches = iter(session)`"
            )
        self._is_begun = True
        yield from self._slices
        self._is_over = True

    def require_end(self) -> None:
        """See that the loop has taken all slices: other trainers wait for their gradients.

        Raises:
            ConfigError: it has not.
        """
        if not self._is_over:
            raise ConfigError("the training loop ended before the run's last batch; train.max_steps shortens a run")


Loop = Callable[[Session], None]
"""Trains a run: goes through the slices of a session and calls `backward` of each."""


def click_training(session: Session) -> None:
    """The loop that trains by the cross-entropy of clicks."""
    for batch in session:
        logits = session.model(batch.dense, batch.embeddings)
        batch.backward(click_loss(logits, batch.labels, batch.batch_samples, batch.weights))
