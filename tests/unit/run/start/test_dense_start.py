"""The dense half of a checkpoint is loaded with the hyperparameters of now, or refused before anybody trains."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.config.schema import Config, ModelConfig, OptimizerConfig
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer, known_optimizers
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.dense_start import check_dense, load_dense
from bagpipe_hpc.run.start.table_origins import WarmStart
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

SHARDS = ShardManifest(1, "criteo", 3, (TableInfo("C1", 5), TableInfo("C2", 3)), (), ())
MODEL = ModelConfig(embedding_dim=4, settings=DLRMSettings(bottom_mlp=(6,), top_mlp=(5,)))


def config(dense: str = "Adam", lr: float = 0.01, **options: Any) -> Config:
    return Config(model=MODEL, optimizer=OptimizerConfig(dense=dense, dense_lr=lr, dense_options=options))


def model_and_optimizer(settings: Config) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = build_model(settings.model, Run(settings, SHARDS, ()).model_facts)
    return model, dense_optimizer(settings.optimizer, model.parameters())


def trained_states(settings: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """What two steps of a training leave."""
    model, optimizer = model_and_optimizer(settings)
    for _ in range(2):
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, 0.5) if weight.requires_grad else None
        optimizer.step()
    return dict(model.state_dict()), optimizer.state_dict()


def resumed(settings: Config, output: Path, states: tuple[dict[str, Any], dict[str, Any]]) -> Run:
    """A job that goes on from a checkpoint with this dense half."""
    write_checkpoint(output, sample_records((5, 3), 5), (5, 3), dense=states)
    return Run(settings, SHARDS, (), load_checkpoint(output))


@pytest.mark.parametrize("dense", ["SGD", "Adagrad", "Adam", "Adafactor", "ASGD", "RMSprop"])
def test_state_is_the_checkpoints_and_hyperparameters_are_those_of_now(tmp_path: Path, dense: str) -> None:
    before = trained_states(config(dense, lr=0.01, weight_decay=0.1))
    run = resumed(config(dense, lr=0.5), tmp_path, before)
    check_dense(run)
    model, optimizer = model_and_optimizer(run.config)
    own = {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}
    load_dense(run, model, optimizer)
    group = optimizer.param_groups[0]
    assert {name: value for name, value in group.items() if name != "params"} == own
    assert group["lr"] == 0.5
    assert [id(weight) for weight in group["params"]] == [id(weight) for weight in model.parameters()]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[0][name])
    for number, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            expected = before[1]["state"][number][name]
            assert torch.equal(value, expected) if isinstance(value, torch.Tensor) else value == expected


@pytest.mark.parametrize("dense", [name for name in known_optimizers() if name != "Muon"])
def test_every_optimizer_of_torch_goes_on_with_the_same_bits(tmp_path: Path, dense: str) -> None:
    """By way of a checkpoint's file. Muon takes no biases, and DLRM has some: see `test_optimizer_trial.py`."""

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            for weight in model.parameters():
                weight.grad = weight.detach() * 0.1 + 0.01 * (step + 1)
            optimizer.step()

    whole = model_and_optimizer(config(dense))
    train(*whole, range(2))
    run = resumed(config(dense), tmp_path, (dict(whole[0].state_dict()), whole[1].state_dict()))
    check_dense(run)
    rest = model_and_optimizer(config(dense))
    load_dense(run, *rest)
    for part in (whole, rest):
        train(*part, range(2, 5))
    for name, value in whole[0].state_dict().items():
        assert torch.equal(value, rest[0].state_dict()[name])


def test_a_new_rate_takes_effect(tmp_path: Path) -> None:
    before = trained_states(config("SGD", lr=0.01))
    model, optimizer = model_and_optimizer(config("SGD", lr=0.5))
    load_dense(resumed(config("SGD", lr=0.5), tmp_path, before), model, optimizer)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[0][name] - 0.5)


@pytest.mark.parametrize(
    ("dense", "then", "now"),
    [("SGD", {}, {"momentum": 0.9}), ("Adam", {"amsgrad": True}, {}), ("Adam", {"foreach": False}, {})],
)
def test_options_that_the_state_allows_may_change(
    tmp_path: Path, dense: str, then: dict[str, Any], now: dict[str, Any]
) -> None:
    check_dense(resumed(config(dense, **now), tmp_path, trained_states(config(dense, **then))))


@pytest.mark.parametrize(
    ("dense", "options", "missing"),
    [("Adam", {"amsgrad": True}, "max_exp_avg_sq"), ("RMSprop", {"centered": True}, "grad_avg")],
)
def test_options_that_need_another_state_are_refused(
    tmp_path: Path, dense: str, options: dict[str, Any], missing: str
) -> None:
    run = resumed(config(dense, **options), tmp_path, trained_states(config(dense)))
    with pytest.raises(CheckpointError, match=rf"has no {missing}, which optimizer\.dense_options ask for"):
        check_dense(run)


@pytest.mark.parametrize("dense", [name for name in known_optimizers() if name != "Muon"])
@pytest.mark.parametrize(("then", "now"), [((), ("bottom.*",)), (("bottom.*",), ())])
def test_frozen_layers_may_change(tmp_path: Path, dense: str, then: tuple[str, ...], now: tuple[str, ...]) -> None:
    """Some states have another shape than their weight, and it is known of weights that are frozen now, too."""
    old, new = (replace(config(dense), model=replace(MODEL, frozen=frozen)) for frozen in (then, now))
    run = resumed(new, tmp_path, trained_states(old))
    check_dense(run)
    model, optimizer = model_and_optimizer(new)
    load_dense(run, model, optimizer)
    assert optimizer.state_dict()["state"].keys() == trained_states(old)[1]["state"].keys()


def test_options_ask_for_no_state_of_frozen_layers(tmp_path: Path) -> None:
    frozen = replace(config("Adam", amsgrad=True), model=replace(MODEL, frozen=("*",)))
    check_dense(resumed(frozen, tmp_path, trained_states(config("Adam"))))


def test_a_foreign_state_of_a_frozen_layer_is_refused(tmp_path: Path) -> None:
    frozen = replace(config("Adafactor"), model=replace(MODEL, frozen=("bottom.*",)))
    model, optimizer = trained_states(config("Adafactor"))
    optimizer["state"][0]["row_var"] = torch.zeros(3, 3, 3)
    with pytest.raises(CheckpointError, match=r"row_var of weight 0 is .* \[3, 3, 3\] instead of"):
        check_dense(resumed(frozen, tmp_path, (model, optimizer)))


def test_another_optimizers_state_is_refused(tmp_path: Path) -> None:
    run = resumed(config("SGD", momentum=0.9), tmp_path, trained_states(config("Adam")))
    check_dense(run)  # SGD starts its momentum anew: `optimizer.dense` itself is compared before
    run = resumed(config("Adam"), tmp_path / "other", trained_states(config("SGD", momentum=0.9)))
    with pytest.raises(CheckpointError, match="does not fit the model or its optimizer"):
        check_dense(run)


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (
            replace(MODEL, settings=replace(MODEL.settings, top_mlp=(7,))),
            r"top\.0\.weight is torch\.float32 \[5, 7\] instead of torch\.float32 \[7, 7\]",
        ),
        (
            replace(MODEL, settings=replace(MODEL.settings, bottom_mlp=(6, 6))),
            r"bottom\.2\.weight is .* \[4, 6\] instead of .* \[6, 6\]",
        ),
        (
            replace(MODEL, settings=replace(MODEL.settings, bottom_mlp=())),
            r"bottom\.2\.(weight|bias), which the model does not have",
        ),
    ],
)
def test_another_model_is_refused_in_one_line(tmp_path: Path, model: ModelConfig, what: str) -> None:
    run = resumed(replace(config(), model=model), tmp_path, trained_states(config()))
    with pytest.raises(CheckpointError, match=what) as raised:
        check_dense(run)
    assert "\n" not in str(raised.value)


class TwoLayers(nn.Module):
    """Its layers have the same shapes, and are made in either order."""

    order = "ab"

    def __init__(self, facts: Any, settings: Any) -> None:  # noqa: ARG002
        super().__init__()
        for name in self.order:
            self.add_module(name, nn.Linear(2, 2))


def test_layers_that_have_changed_places_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would go on with the optimizer's state of the other, in silence; without a state they may."""
    own = replace(config(), model=ModelConfig(name=f"{__name__}:TwoLayers", embedding_dim=4))
    plain = replace(own, optimizer=config("SGD").optimizer)
    runs = [resumed(of, tmp_path / of.optimizer.dense, trained_states(of)) for of in (own, plain)]
    for run in runs:
        check_dense(run)
    monkeypatch.setattr(TwoLayers, "order", "ba")
    check_dense(runs[1])
    with pytest.raises(CheckpointError, match=r"its weights come in another order, a\.weight where the model has b\.w"):
        check_dense(runs[0])


def broken(states: tuple[dict[str, Any], dict[str, Any]], what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    model, optimizer = states
    state, group = optimizer["state"], optimizer["param_groups"][0]
    match what:
        case "a moment is text":
            state[0]["exp_avg"] = "text"
        case "a moment has another shape":
            state[0]["exp_avg"] = torch.zeros(1)
        case "a moment is of another type":
            state[0]["exp_avg"] = torch.zeros(state[0]["exp_avg"].shape, dtype=torch.int64)
        case "a step has a shape":
            state[0]["step"] = torch.zeros(3)
        case "something large besides":
            state[0]["more"] = torch.zeros(3, 3, 3)
        case "state of no weight":
            state[99] = state[0]
        case "state of a weight before the first":
            state[-1] = {"step": state[0]["step"]}
        case "no groups":
            optimizer["param_groups"] = []
        case "groups are a number":
            optimizer["param_groups"] = 3
        case "weights in another order":
            group["params"] = group["params"][::-1]
        case "no state":
            del optimizer["state"]
        case "state is a list":
            optimizer["state"] = [1]
        case "a weight is a number":
            model["top.0.bias"] = 1.0
        case "a weight is missing":
            del model["top.0.bias"]
    return model, optimizer


@pytest.mark.parametrize(
    "what",
    [
        "a moment is text",
        "a moment has another shape",
        "a moment is of another type",
        "a step has a shape",
        "something large besides",
        "state of no weight",
        "state of a weight before the first",
        "no groups",
        "groups are a number",
        "weights in another order",
        "no state",
        "state is a list",
        "a weight is a number",
        "a weight is missing",
    ],
)
def test_a_foreign_state_is_refused(tmp_path: Path, what: str) -> None:
    run = resumed(config(), tmp_path, broken(trained_states(config()), what))
    with pytest.raises(CheckpointError, match="does not fit the model or its optimizer"):
        check_dense(run)


def warm(run: Run, *, takes_dense: bool = True) -> Run:
    """A new training that begins with the weights of the checkpoint that a run would have gone on from."""
    assert run.start is not None
    return replace(run, start=None, warm_start=WarmStart(run.start, None, takes_dense))


@pytest.mark.parametrize("kind", ["scores", "begins", "begins with the rows alone"])
def test_who_does_not_go_on_takes_weights_without_the_optimizers_state(tmp_path: Path, kind: str) -> None:
    before = trained_states(config("SGD", momentum=0.9))
    run = resumed(config("Adam"), tmp_path, before)
    run = replace(run, trains=False) if kind == "scores" else warm(run, takes_dense=kind == "begins")
    check_dense(run)
    model, optimizer = model_and_optimizer(run.config)
    own = {name: value.clone() for name, value in model.state_dict().items()}
    load_dense(run, model, optimizer)
    assert not optimizer.state_dict()["state"]
    for name, value in model.state_dict().items():
        assert torch.equal(value, (own if kind == "begins with the rows alone" else before[0])[name])


@pytest.mark.parametrize(
    ("scores", "cure"), [(True, "score data with the features"), (False, "start with the same model")]
)
def test_weights_of_another_type_are_refused_and_not_rounded(tmp_path: Path, scores: bool, cure: str) -> None:
    model, optimizer = trained_states(config())
    run = resumed(config(), tmp_path, ({name: value.double() for name, value in model.items()}, optimizer))
    with pytest.raises(CheckpointError, match=rf"is torch\.float64 .* instead of torch\.float32 .*; {cure}"):
        check_dense(replace(run, trains=False) if scores else warm(run))


@pytest.mark.parametrize("scores", [True, False])
def test_a_missing_weight_is_refused_before_anybody_loads_it(tmp_path: Path, scores: bool) -> None:
    run = resumed(config(), tmp_path, broken(trained_states(config()), "a weight is missing"))
    with pytest.raises(CheckpointError, match=r"it has no tensor top\.0\.bias"):
        check_dense(replace(run, trains=False) if scores else warm(run))


def test_a_new_training_has_nothing_to_check() -> None:
    check_dense(Run(config(), SHARDS, ()))
