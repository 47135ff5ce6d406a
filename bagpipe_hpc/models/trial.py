"""Tries a model on a few samples before a run begins, and refuses by name one that does not keep to its contract.

Legend: `B` samples, `N` dense features, `K` labels.
"""

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import blaming_model, build_model
from bagpipe_hpc.models.dropout import DropoutMasks
from bagpipe_hpc.models.embeddings import random_embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.logits import require_logits
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.models.sums.gradient_groups import gradient_groups, trainable

_SAMPLES = 5
_CLOSE = {"float32": 1e-3, "bfloat16": 5e-2}
"""Logits of the same sample in slices of other lengths may differ by this share of the largest: sums are rounded."""
_SAME = {"float32": 1e-5, "bfloat16": 5e-2}
"""The same for a model that is made twice, whose numbers may lie at other addresses."""


def try_model(config: ModelConfig, facts: ModelFacts, device: torch.device) -> list[float]:
    """Make a model as a run will, and pass a few samples forward and backward through it.

    Args:
        config: names the model.
        facts: sizes of its inputs.
        device: where a run will compute.

    Returns:
        The logits of these samples, which are the same on every trainer, up to rounding.

    Raises:
        ConfigError: it fails, its logits are not what they must be, or it is not the same each time.
    """
    model, again = build_model(config, facts), build_model(config, facts)
    _require_weights(config, model, again)
    _require_own_dropout(config.name, model)
    with blaming_model(config.name, "gradient_groups fails"):
        gradient_groups(model)
    logits = _Trial(config, model.to(device), facts, device).run()
    if not _are_close(_Trial(config, again.to(device), facts, device).logits(), logits, _SAME[config.precision]):
        raise _refused(config.name, f"its logits differ each time it is made{_OF_TRAINERS}")
    found: list[float] = logits.flatten().tolist()
    return found


def require_same_logits(config: ModelConfig, of_trainers: Sequence[Sequence[float]]) -> None:
    """Check that the trainers' models give the same logits: constants may differ where weights and buffers do not.

    Args:
        config: names the model.
        of_trainers: what `try_model` gave on each.

    Raises:
        ConfigError: one gives others.
    """
    first = torch.tensor(of_trainers[0])
    for trainer, logits in enumerate(of_trainers):
        if not _are_close(torch.tensor(logits), first, _CLOSE[config.precision]):
            what = f"its logits on trainer {trainer} differ from those on trainer 0 ({logits[0]:.6g}, {first[0]:.6g})"
            raise _refused(config.name, f"{what}; let what it reads, and its code, be the same on all hosts")


def _require_weights(config: ModelConfig, model: nn.Module, again: nn.Module) -> None:
    """Check that a model has weights to train, or frozen on demand, and the same ones when it is made again."""
    name = config.name
    if not trainable(model) and not config.frozen:
        raise _refused(name, "has no parameter to train; give it one at least, such as a bias added to the logits")
    saved = again.state_dict()  # buffers that are not saved are scratch space, and may hold anything
    for buffer_name, buffer in model.named_buffers():
        if buffer_name in saved and not torch.equal(buffer, saved[buffer_name]):
            raise _refused(name, f"its buffer {buffer_name} differs each time it is made{_OF_TRAINERS}")
    others = dict(again.named_parameters())
    for weight_name, weight in model.named_parameters():
        if weight.dtype != torch.float32 or not weight.is_contiguous():
            kind = f"{weight.dtype}{'' if weight.is_contiguous() else ', not contiguous'}"
            raise _refused(name, f"its parameter {weight_name} is {kind}; parameters must be contiguous float32")
        if weight.device.type != "cpu":
            raise _refused(name, f"its parameter {weight_name} is made on {weight.device}; make it on the CPU")
        if weight_name not in others or not torch.equal(weight, others[weight_name]):
            raise _refused(name, f"its parameter {weight_name} differs each time it is made{_OF_TRAINERS}")


def _require_own_dropout(name: str, model: nn.Module) -> None:
    """Check that there is no dropout of torch's, whose masks do not follow the seed; a trial may miss it by chance."""
    for module_name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise _refused(
                name,
                f"its module {module_name} is torch's {type(module).__name__}, whose masks differ between trainers; "
                "take bagpipe_hpc.models.dropout.Dropout: its masks follow the seed",
            )


_OF_TRAINERS = (
    ", so trainers would differ; draw what it begins with from torch's generator, or from one seeded with facts.seed"
)

_NOTHING_RANDOM = (
    "leave out what is random, and take bagpipe_hpc.models.dropout.Dropout for dropout: its masks follow the seed"
)
_SQUASHES = {"Sigmoid": "sigmoid", "Softmax": "softmax"}
"""Functions that make probabilities of logits, by the start of the names of their nodes in autograd's graph."""
_KEEPS_NUMBERS = re.compile("(Alias|Clamp|Clone|Reshape|Select|Slice|Squeeze|ToCopy|Unbind|UnsafeView|View)Backward")
"""Nodes that leave the numbers of the function before them as they are, but for their shape, rounding or clamping."""


def _squashed_by(logits: Tensor) -> str | None:
    """The name of the function that makes probabilities of logits, where one comes last; otherwise None."""
    node = logits.grad_fn
    while node is not None and _KEEPS_NUMBERS.match(node.name()):
        node = node.next_functions[0][0]
    return None if node is None else _SQUASHES.get(node.name().partition("Backward")[0])


def _are_close(found: Tensor, expected: Tensor, share: float) -> bool:
    """Whether logits differ by no more than a share of the largest."""
    return bool((found - expected).abs().max() <= share * expected.abs().max())


class _Trial:
    """Passes of one model over the same samples."""

    def __init__(self, config: ModelConfig, model: nn.Module, facts: ModelFacts, device: torch.device) -> None:
        self._name = config.name
        self._close = _CLOSE[config.precision]
        self._model = model
        self._dropout = DropoutMasks(model, facts.seed)
        generator = torch.Generator().manual_seed(facts.seed)
        self._labels = facts.labels
        self._dense = torch.rand(_SAMPLES, facts.dense_features, generator=generator).to(device)
        self._embeddings = random_embeddings(facts, _SAMPLES, generator, device)

    def logits(self) -> Tensor:
        """The logits of all samples, in training mode."""
        return self._forward(_SAMPLES).detach()

    def run(self) -> Tensor:
        """The same logits, after a check of the contract; raises ConfigError where it is broken."""
        before = {name: value.clone() for name, value in self._model.state_dict().items()}
        dense = self._dense.clone()
        drawn_before = self._generator_states()
        logits = self._forward(_SAMPLES)
        if added := [name for name in self._model.state_dict() if name not in before]:
            self._refuse(f"a forward pass adds {added[0]}, which no optimizer knows; make all layers in __init__")
        if not all(map(torch.equal, self._generator_states(), drawn_before)):
            self._refuse(f"a forward pass draws from torch's generator; {_NOTHING_RANDOM}")
        if (last := _squashed_by(logits)) is not None:
            self._refuse(
                f"it returns what a {last} gives, and that is no logit; leave the {last} out, since the loss and "
                "evaluations apply one (a loop of one's own, too, where it needs chances)"
            )
        self._backward(logits)
        logits = logits.detach()
        if not logits.isfinite().all():
            self._refuse("its logits are not finite for dense features from 0 to 1 and rows of small numbers")
        if not torch.equal(self.logits(), logits):
            changed = "" if torch.equal(self._dense, dense) else ", and forward changes dense: let it work on a copy"
            self._refuse(
                f"its logits differ between two passes over the same samples{changed or f'; {_NOTHING_RANDOM}'}"
            )
        for name, value in self._model.state_dict().items():
            if not torch.equal(before[name], value):
                self._refuse(
                    f"a forward pass changes its {name}, and each trainer's would become another; leave out batch "
                    "normalisation and the like (nn.LayerNorm does)"
                )
        for number in (0, _SAMPLES - 1):  # a recurrent layer over the samples lets later ones depend on earlier ones
            alone, among = self._forward(1, number).detach(), logits[number : number + 1]
            if not (alone - among).abs().max() <= self._close * logits.abs().max():  # nor where it is NaN
                self._refuse(
                    f"the logit of a sample depends on the other samples of its slice ({float(alone.flatten()[0]):.6g} "
                    f"alone, {float(among.flatten()[0]):.6g} among {_SAMPLES}), so results would change with the "
                    "number of trainers"
                )
        self._backward(self._forward(0))
        self._model.eval()
        self._forward(_SAMPLES)
        self._model.train()
        return logits

    def _generator_states(self) -> list[Tensor]:
        """States of torch's generators that a pass may draw from."""
        device = self._dense.device
        return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]

    def _forward(self, samples: int, first: int = 0) -> Tensor:
        """Logits of so many samples from `first` on, float32 `[samples]` or `[samples, K]`."""
        dense, embeddings = self._dense[first : first + samples], self._embeddings.part(samples, first)
        for leaf in embeddings.tensors():
            leaf.requires_grad_()
        what = f"forward fails on dense {list(dense.shape)} and {embeddings}"
        what += "" if samples else " (a trainer's slice of a small batch may be empty)"
        self._dropout.begin(1, torch.arange(first, first + samples, device=dense.device))
        with blaming_model(self._name, what):
            logits: Tensor = self._model(dense, embeddings)
        require_logits(self._name, logits, samples, self._labels, dense.device)
        if not logits.requires_grad:
            self._refuse("its logits do not depend on any weight: no gradient would come back")
        return logits

    def _backward(self, logits: Tensor) -> None:
        """Compute the gradients of the weights, check that they are dense, and drop them."""
        with blaming_model(self._name, "its backward pass fails"):
            torch.autograd.backward(click_loss(logits, torch.zeros_like(logits), _SAMPLES))
        for name, weight in self._model.named_parameters():
            if weight.grad is not None and weight.grad.layout != torch.strided:
                self._refuse(f"the gradient of {name} is sparse; dense ones alone are summed over the trainers")
        self._model.zero_grad()

    def _refuse(self, what: str) -> None:
        raise _refused(self._name, what)


def _refused(name: str, what: str) -> ConfigError:
    return ConfigError(f"model.name = {name!r}: {what}")
