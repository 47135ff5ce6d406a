"""What layers say of their weights: that they are about to read them, and that a gradient of one may come last.

**Before they read them.** A weight's update may be put off until a layer says so (`step/dense/updates.py`).

**Gradients that come last.** The backward pass of a linear layer has two products. On the gradient of its inputs all
layers below it wait, and in the end the embeddings, whose gradients other trainers wait for; on the gradient of its
weights nothing waits but their sum over the trainers (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section
2, call them B and W). So the second products may be put off until none of the first is left, and gradients of rows
travel while they are computed.

Autograd does it, with the same bits: of all nodes that are ready its engine takes the one that was made last
(torch/csrc/autograd/engine.cpp, `CompareNodeTaskTime`). A node for each weight, made before the forward pass, comes
after all of that pass; those of the first layers come first. A layer depends on it through a token, a scalar, and
leaves its product there.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

Product = Callable[[], Tensor]
"""Computes the gradient that one use of a weight gives it."""


def _nothing(*_: object) -> None:
    pass


class LayerWeights:
    """The weights of a model's layers: what happens before they are read, and whose gradients come last.

    Which of them layers read is found on the way: a weight that a layer has used has late gradients from the next pass
    on, unless it is to have them at once.
    """

    def __init__(self) -> None:
        # By `id`, since a tensor's own hash takes longer than all else that is done here in a step.
        self._trained: dict[int, Tensor] = {}
        self._at_once: set[int] = set()
        self._used: set[int] = set()
        self._late: dict[int, Tensor] = {}
        self._of_pass: dict[int, LateWeight] = {}
        self._before_use: Callable[[Tensor], object] = _nothing

    def expect(self, trained: Iterable[Tensor], at_once: Iterable[Tensor] = ()) -> None:
        """Say once which weights there are. Whatever else layers read is ignored: it may be another tensor each time.

        Args:
            trained: the weights and biases that get gradients.
            at_once: those of them whose gradients are not put off.
        """
        self._trained = {id(weight): weight for weight in trained}
        self._at_once = set(map(id, at_once))

    def begin_pass(
        self, between: Callable[[], object] = _nothing, before_use: Callable[[Tensor], object] = _nothing
    ) -> None:
        """Get ready for a forward and a backward pass.

        Args:
            between: called before each late product; it may compute and send what is due, and must not wait.
            before_use: called with each trained weight and bias of a layer before it is read.
        """
        self._before_use = before_use
        # What is made last comes first, and the first layers are needed first in the next step.
        self._of_pass = {key: LateWeight(weight, between) for key, weight in reversed(self._late.items())}

    def use(self, weight: Tensor, bias: Tensor) -> "LateWeight | None":
        """A layer is about to read its weight and its bias.

        Returns:
            Where the layer leaves the product for the weight's gradient; None if it computes that at once.
        """
        for parameter in (weight, bias):
            if id(parameter) in self._trained:
                self._before_use(parameter)
                self._used.add(id(parameter))
        key = id(weight)
        if key not in self._trained or key in self._at_once or not torch.is_grad_enabled():
            return None
        self._late.setdefault(key, weight)
        return self._of_pass.get(key)

    def knows(self, parameter: Tensor) -> bool:
        """Whether a layer has been seen to say that it reads this parameter."""
        return id(parameter) in self._used


class LateWeight:
    """A weight in one pass.

    Args:
        weight: a leaf that requires gradients.
        between: as for `LayerWeights.begin_pass`.

    Attributes:
        token: a scalar; what depends on it leaves products, and gives it the gradient 1 for each.
    """

    def __init__(self, weight: Tensor, between: Callable[[], object]) -> None:
        self._left = _Left(between)
        self.token: Tensor = _Late.apply(weight, self._left)  # type: ignore[no-untyped-call]

    def leave(self, product: Product) -> Tensor:
        """Put a product off; returns the gradient of the token."""
        self._left.products.append(product)
        return torch.ones_like(self.token)


class _Left:
    """Products that were put off. The token's node refers to this, so it must not refer to the token: a cycle leaks.

    Args:
        between: as for `LayerWeights.begin_pass`.
    """

    def __init__(self, between: Callable[[], object]) -> None:
        self.products: list[Product] = []
        self._between = between

    def gradient(self, uses: int) -> Tensor:
        """The sum over the uses in this backward pass, in their order.

        An earlier pass that asked for gradients of other tensors alone may have left products, which are dropped.
        """
        products, self.products = self.products[-uses:], []
        self._between()
        total = products[0]()
        for product in products[1:]:
            total = total + product()
        return total


class _Late(torch.autograd.Function):
    """Makes a weight's token."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, left: _Left) -> Tensor:
        ctx.left = left
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *uses: Tensor) -> tuple[Tensor, None]:
        left: _Left = ctx.left
        return left.gradient(int(uses[0])), None
