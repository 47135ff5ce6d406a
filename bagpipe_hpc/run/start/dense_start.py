"""The dense half that a run goes on with: checked before anybody trains, then loaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer, load_optimizer_state
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.exported import ExportedModel

_MISFITS = (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError)
"""What torch raises about states that are not those of its module or optimizer."""
_CURE = "resume with the same model.* and optimizer.* settings, or use another checkpoint"
_SCORING_CURE = "score data with the features that it was trained on, or use another checkpoint"
_WARM_CURE = "start with the same model.* settings, or set train.warm_start_takes=rows"


def check_dense(run: Run) -> None:
    """See that the dense half of the checkpoint that the run begins with fits it, and that training can go on.

    What is in the file is compared with a model and an optimizer of this run before it is read; then these load it and
    make a step with gradients of zero. They are thrown away. Of a run that scores, the model alone is compared.

    Raises:
        CheckpointError: the file is damaged, or of another model, optimizer or options.
    """
    config = run.config
    model = build_model(config.model, run.model_facts)
    if warm := _warm_source(run):
        with _blaming(warm, _WARM_CURE):
            _require_model(warm.outline_dense()[0], model.state_dict())
    if run.start is None:
        return
    if not run.trains:
        with _blaming(run.start, _SCORING_CURE):
            _require_model(run.start.outline_dense()[0], model.state_dict())
        return
    optimizer = dense_optimizer(config.optimizer, model.parameters())
    _step_of_zeros(optimizer, with_frozen=True)  # weights that are frozen now may have been trained then
    with _blaming(run.start):
        model_outline, optimizer_outline = run.start.outline_dense()
        _require_model(model_outline, model.state_dict())
        if optimizer_outline["state"]:
            _require_order([*model_outline], [name for name, _ in model.named_parameters()])
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        _require_states(optimizer_outline, optimizer.state_dict(), weights)
    load_dense(run, model, optimizer)
    with _blaming(run.start):
        _step_of_zeros(optimizer)


def load_dense(run: Run, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Take the dense half from the checkpoint that the run goes on from, or its weights from that of a warm start.

    The optimizer's state is the checkpoint's; its rate and its other hyperparameters stay those of this run, though
    torch would take those of the checkpoint. A run that scores has no use for any of them.

    Raises:
        CheckpointError: it is damaged, or of another model or optimizer.
    """
    if warm := _warm_source(run):
        with _blaming(warm, _WARM_CURE):
            model.load_state_dict(warm.read_dense()[0])
    if run.start is None:
        return
    model_state, optimizer_state = run.start.read_dense()
    with _blaming(run.start):
        model.load_state_dict(model_state)
        if not run.trains:
            return
        load_optimizer_state(optimizer, optimizer_state)


def _warm_source(run: Run) -> Checkpoint | ExportedModel | None:
    """The trained model that the dense weights of a new training come from, if they come from one."""
    return run.warm_start.source if run.warm_start and run.warm_start.takes_dense else None


@contextmanager
def _blaming(start: Checkpoint | ExportedModel, cure: str = _CURE) -> Iterator[None]:
    """Say of what torch and the checks below raise that the checkpoint does not fit."""
    try:
        yield
    except _MISFITS as error:
        raise CheckpointError(
            f"{start.directory}: its dense half does not fit the model or its optimizer ({error}); {cure}"
        ) from error


def _step_of_zeros(optimizer: torch.optim.Optimizer, *, with_frozen: bool = False) -> None:
    """Make a step with gradients of zero, which shows what state the optimizer keeps, and whether it can go on.

    Args:
        optimizer: of all of the model's weights.
        with_frozen: give frozen weights such gradients, too.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight) if weight.requires_grad or with_frozen else None
    try:
        optimizer.step()
    except KeyError as error:
        raise ValueError(f"it has no {error.args[0]}, which optimizer.dense_options ask for") from error


def _require_model(found: dict[str, Any], expected: dict[str, Tensor]) -> None:
    """See that a model's state has the tensors of another, with their shapes and types."""
    for name in found.keys() - expected.keys():
        raise ValueError(f"it holds {name!s:.80}, which the model does not have")
    for name, tensor in expected.items():
        _require_tensor(name, found.get(name), tensor)


def _require_order(found: list[str], expected: list[str]) -> None:
    """See that a model's weights come in the order in which they were saved: an optimizer keeps its state by number."""
    known = set(expected)
    then = [name for name in found if name in known]
    for before, now in zip(then, expected, strict=True):
        if before != now:
            raise ValueError(f"its weights come in another order, {before} where the model has {now} now")


def _require_states(found: dict[str, Any], expected: dict[str, Any], weights: list[torch.nn.Parameter]) -> None:
    """See that a state is of these weights, in the optimizer's order; what options keep besides has their shapes."""
    numbers = [group["params"] for group in found["param_groups"]]
    own_numbers = [group["params"] for group in expected["param_groups"]]
    if numbers != own_numbers:
        raise ValueError(f"its optimizer is of weights {numbers!r:.80} instead of {own_numbers!r:.80}")
    for number, state in found["state"].items():
        if type(number) is not int or not 0 <= number < len(weights):
            raise ValueError(f"its optimizer has state of a weight {number!r:.80}")
        known = expected["state"].get(number, {})
        for name, value in state.items():
            where = f"{name!s:.80} of weight {number}"
            if isinstance(known.get(name), Tensor):
                _require_tensor(where, value, known[name])
            elif isinstance(value, Tensor) and value.shape not in (weights[number].shape, torch.Size()):
                raise ValueError(f"{where} is {list(value.shape)}, the weight {list(weights[number].shape)}")


def _require_tensor(name: str, found: object, expected: Tensor) -> None:
    if not isinstance(found, Tensor):
        raise ValueError(f"it has no tensor {name}")
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise ValueError(
            f"{name} is {found.dtype} {list(found.shape)} instead of {expected.dtype} {list(expected.shape)}"
        )
