"""The order in which a model's backward pass completes gradients: early ones travel while the rest is computed."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import blaming_model, build_model
from bagpipe_hpc.models.complete_gradients import noticing
from bagpipe_hpc.models.dropout import DropoutMasks
from bagpipe_hpc.models.embeddings import Embeddings, longest_embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.models.sums.gradient_groups import gradient_groups, trainable

_SAMPLES = 2


@dataclass(frozen=True)
class GradientOrder:
    """When the gradients of the trainable weights come: numbers of weights.

    Attributes:
        weights: all of them.
        behind_rows: those whose gradients come after the gradients of all embeddings are complete.
        groups: those of each group that is summed over the trainers as one, in the order of the groups.
        behind_groups: for each group, those whose gradients come after its own and the earlier groups' are complete.
        before_rows: those of modules whose forward pass is over when a model first asks for embeddings.
    """

    weights: int
    behind_rows: int
    groups: tuple[int, ...]
    behind_groups: tuple[int, ...]
    before_rows: int = 0


def gradient_order(config: ModelConfig, facts: ModelFacts, *, side_by_side: bool = False) -> GradientOrder:
    """Find the order by a pass on torch's `meta` device, which takes no memory, or in main memory if that fails.

    Args:
        config: names the model.
        facts: its inputs.
        side_by_side: as for `gradient_groups`.

    Raises:
        ConfigError: the model cannot be made, or a pass through it fails.
    """
    try:
        with torch.device("meta"):
            return _order_in(build_model(config, facts), config.name, facts, side_by_side=side_by_side)
    except ConfigError:
        return _order_in(build_model(config, facts), config.name, facts, side_by_side=side_by_side)


def _order_in(model: nn.Module, name: str, facts: ModelFacts, *, side_by_side: bool) -> GradientOrder:
    weights = trainable(model)
    come = 0
    come_with: dict[Tensor, int] = {}
    come_with_rows = None
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    dense = torch.zeros(_SAMPLES, facts.dense_features, device=device)
    own = longest_embeddings(facts, _SAMPLES, device).requiring_gradients()
    by_width = own.by_width()
    missing = set(by_width)
    used: dict[Tensor, None] = {}
    used_before_rows = 0

    def are_asked_for() -> Embeddings:
        nonlocal used_before_rows
        used_before_rows = sum(weight.numel() for weight in used if weight.requires_grad)
        return own

    embeddings = Embeddings.coming(facts.features, are_asked_for)
    for module in model.modules():
        module.register_forward_hook(lambda module, *_: used.update(dict.fromkeys(module.parameters())))

    def has_come(weight: Tensor) -> None:
        nonlocal come
        come += weight.numel()
        come_with[weight] = come

    def are_complete(width: int) -> None:
        nonlocal come_with_rows
        missing.discard(width)
        come_with_rows = None if missing else come

    for weight in weights:
        weight.register_post_accumulate_grad_hook(has_come)  # type: ignore[no-untyped-call]
    DropoutMasks(model, 0).begin(1, torch.arange(_SAMPLES, device=device))
    with blaming_model(name, f"a pass fails on dense {list(dense.shape)} and {own}"):
        logits = model(dense, embeddings)
        loss = click_loss(logits, torch.zeros_like(logits), _SAMPLES)
        with noticing(by_width, are_complete):
            torch.autograd.backward(loss)
    groups = gradient_groups(model, side_by_side=side_by_side)
    sizes = tuple(sum(weight.numel() for weight in group) for group in groups)
    ends = accumulate((max(come_with.get(weight, come) for weight in group) for group in groups), max)
    behind_rows = 0 if come_with_rows is None else come - come_with_rows
    return GradientOrder(sum(sizes), behind_rows, sizes, tuple(come - end for end in ends), used_before_rows)
