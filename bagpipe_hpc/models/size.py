"""How large a model is: its weights, and the memory of a trainer for it, before any of that is allocated.

Legend: `N` dense features, `D` embedding width.
"""

from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import blaming_model, build_model
from bagpipe_hpc.models.contract import CountsStepBytes
from bagpipe_hpc.models.dropout import DropoutMasks
from bagpipe_hpc.models.embeddings import Embeddings, longest_embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.logits import require_logits
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.plan.sum_levels import Levels, sum_levels

_FLOAT_BYTES = 4
_LOOK_UP_COPIES = 3
"""Of each look-up's weights a trainer holds the gathered ones, their gradients, and sums of these at the same time."""
_TRIED_SAMPLES = 8
_TOO_LARGE = "Storage size calculation overflowed"
"""What torch says of a tensor with more bytes than 64 bits can count: nobody should try to allocate that."""


@dataclass(frozen=True)
class ModelSize:
    """The size of a model.

    Attributes:
        weights: their number.
        step_bytes: memory for what a step computes on a slice and for its look-ups, without the weights, their
            gradients and their optimizer's state.
    """

    weights: int
    step_bytes: int


def measure_model(config: ModelConfig, facts: ModelFacts, samples: int) -> ModelSize:
    """Make a model and run it without memory, on torch's `meta` device, which knows shapes alone.

    A model that looks at values while it is made or runs cannot do that: it is made in main memory, and what it keeps
    of a few samples is scaled.

    Args:
        config: names the model.
        facts: sizes of its inputs.
        samples: of a slice.

    Raises:
        ConfigError: it cannot be made, or its forward pass fails.
    """
    try:
        with torch.device("meta"):
            return _measured(build_model(config, facts), config.name, facts, samples)
    except ConfigError as error:
        if _TOO_LARGE in str(error):
            raise
        model = build_model(config, facts)
        tried = min(samples, _TRIED_SAMPLES)
        size = _measured(model, config.name, facts, tried)
        return ModelSize(size.weights, -(-size.step_bytes * samples // tried))


def count_weights(model: nn.Module) -> int:
    """Number of weights, frozen ones included."""
    return sum(weight.numel() for weight in model.parameters())


def weights_bytes(
    weights: int, state_numbers: float, trainers: int, *, deterministic: bool, sums: str = "horovod"
) -> int:
    """Memory for the dense weights, their gradients, the optimizer's state, and the sums over the trainers.

    Args:
        weights: their number.
        state_numbers: that the optimizer keeps for a weight.
        trainers: number of trainers T. Of several, each sums the gradients in a buffer of its own.
        deterministic: Horovod gathers the gradients of all trainers before they are added, where more than two do.
        sums: `train.dense_sums`. Without Horovod, memory is needed for what messages bring (`mpi/reduction.py`): of two
            trainers, the other one's gradients; of more, all parts of a trainer's share, as many numbers as its own
            gradients have, and the share; over a grid, that much on each level.
    """
    gathered: float = trainers if deterministic and trainers > 2 else 0
    if sums != "horovod" and trainers > 1:
        gathered = max(gathered, _gathered((trainers,) if sums == "mpi" else sum_levels(trainers)))
    buffered = 1 if trainers > 1 else 0
    return round(_FLOAT_BYTES * weights * (2 + state_numbers + buffered + gathered))


def _gathered(levels: Levels) -> float:
    """Numbers of a sum with messages for each gradient: on each level the parts of a share, and the share.

    Two trainers have no shares: each sends the other all of its gradients.
    """
    if levels == (2,):
        return 1.0
    found, shared = 0.0, 1.0
    for members in levels:
        found += shared * (1 + 1 / members)
        shared /= members
    return found


def _measured(model: nn.Module, name: str, facts: ModelFacts, samples: int) -> ModelSize:
    """The size of a model, on the device of its weights."""
    numbers = sum(feature.width * (feature.longest if feature.is_sequence else 1) for feature in facts.features)
    look_ups = _LOOK_UP_COPIES * _FLOAT_BYTES * samples * numbers
    if isinstance(model, CountsStepBytes):
        with blaming_model(name, "step_bytes fails"):
            step_bytes: object = model.step_bytes(samples)
        if not isinstance(step_bytes, Integral) or step_bytes < 0:
            cure = "it must return a whole number of bytes, 0 or more"
            raise ConfigError(f"model.name = {name!r}: step_bytes returns {step_bytes!r} for {samples} samples: {cure}")
        return ModelSize(count_weights(model), int(step_bytes) + look_ups)
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    dense = torch.zeros(samples, facts.dense_features, device=device)
    embeddings = longest_embeddings(facts, samples, device)
    with blaming_model(name, f"forward fails on dense {list(dense.shape)} and {embeddings}"):
        kept = _kept_bytes(model, name, facts.labels, dense, embeddings)
    return ModelSize(count_weights(model), kept + look_ups)


def _kept_bytes(model: nn.Module, name: str, labels: int, dense: Tensor, embeddings: Embeddings) -> int:
    """What a forward pass keeps for the backward one, without weights and rows; the largest twice, for its gradient."""
    leaves = [leaf.requires_grad_() for leaf in embeddings.tensors()]
    known = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers(), *leaves)}
    kept: dict[int, Tensor] = {}  # by storage, which tensors may share; held, so that no address is used again

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    DropoutMasks(model, 0).begin(1, torch.arange(len(dense), device=dense.device))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(dense, embeddings)
        require_logits(name, logits, len(dense), labels, dense.device)
        click_loss(logits, torch.zeros_like(logits), 1)
    sizes = [tensor.untyped_storage().nbytes() for storage, tensor in kept.items() if storage not in known]
    return sum(sizes) + max(sizes, default=0)
