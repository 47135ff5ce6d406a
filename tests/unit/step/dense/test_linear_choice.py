"""One choice of linear layers for all trainers: as set, as the checkpoint says, or by times."""

from types import SimpleNamespace
from typing import cast

import pytest

from bagpipe_hpc.config.schema import Config, KernelsConfig, ModelConfig
from bagpipe_hpc.step.dense.linear_choice import LinearChoice, LinearWish, choose_linear, must_time
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic

BOTH = ("onednn", "torch")


def wish(
    linear: str = "auto", recorded: str | None = None, precision: str = "float32", device: str = "cpu"
) -> LinearWish:
    """Of such settings; with `recorded` the run goes on from a checkpoint that was trained with that on `device`."""
    config = Config(kernels=KernelsConfig(linear=linear), model=ModelConfig(precision=precision))
    start = None
    if recorded:
        arithmetic = Arithmetic(trainers=2, linear=recorded, device=device, threads=1)
        start = cast(Checkpoint, SimpleNamespace(manifest=SimpleNamespace(arithmetic=arithmetic)))
    return LinearWish.of(config, start)


@pytest.mark.parametrize(("onednn", "torch", "chosen"), [(0.020, 0.030, "onednn"), (0.0304, 0.0299, "torch")])
def test_auto_takes_the_faster_one(onednn: float, torch: float, chosen: str) -> None:
    choice = choose_linear(wish(), {"onednn": onednn, "torch": torch})
    assert choice.implementation == chosen


@pytest.mark.parametrize(("onednn", "chosen"), [(0.0949, "onednn"), (0.0951, "torch"), (0.1, "torch")])
def test_auto_leaves_torch_only_for_a_clear_gain(onednn: float, chosen: str) -> None:
    """Else repeats on a busy machine would differ in the last bits."""
    choice = choose_linear(wish(), {"onednn": onednn, "torch": 0.1})
    assert choice.implementation == chosen
    assert choice.reason.endswith(", no clear difference") == (chosen == "torch")


def test_the_reason_tells_both_times() -> None:
    choice = choose_linear(wish(), {"onednn": 0.0304, "torch": 0.0299})
    times = "the dense half of a step takes oneDNN 30.4 ms, torch 29.9 ms"
    assert str(choice) == f"linear layers: torch (kernels.linear = auto: {times})"


def test_without_onednn_auto_is_torch_untimed() -> None:
    assert not must_time(wish(), ("torch",))
    assert choose_linear(wish(), {"torch": None}).implementation == "torch"


def test_only_an_open_choice_is_timed() -> None:
    assert must_time(wish(), BOTH)
    assert not must_time(wish("onednn"), BOTH)
    assert not must_time(wish(recorded="torch"), BOTH)
    assert not must_time(wish(precision="bfloat16"), BOTH)


@pytest.mark.parametrize(
    ("setting", "told"), [("auto", ""), ("torch", ""), ("onednn", "kernels.linear = onednn is for")]
)
def test_torch_multiplies_bfloat16_whatever_is_asked_for(setting: str, told: str) -> None:
    choice = choose_linear(wish(setting, precision="bfloat16"), dict.fromkeys(BOTH))
    assert choice.implementation == "torch"
    assert choice.reason.startswith("bfloat16: model.precision")
    assert told in choice.reason
    assert (";" in choice.reason) == bool(told)


@pytest.mark.parametrize("recorded", BOTH)
def test_auto_follows_the_checkpoint(recorded: str) -> None:
    choice = choose_linear(wish(recorded=recorded), dict.fromkeys(BOTH))
    assert choice == LinearChoice(recorded, "kernels.linear = auto: as the checkpoint was trained")


def test_another_one_may_be_forced_and_torch_runs_where_the_checkpoints_does_not() -> None:
    """That results change then is said with all that changes since a checkpoint (`resumed_settings.py`)."""
    assert choose_linear(wish("torch", recorded="onednn"), dict.fromkeys(BOTH)).implementation == "torch"
    assert choose_linear(wish("onednn", recorded="torch"), dict.fromkeys(BOTH)).implementation == "onednn"
    assert choose_linear(wish(recorded="onednn"), {"torch": None}).implementation == "torch"


def test_what_gpus_used_says_nothing_of_cpus() -> None:
    assert must_time(wish(recorded="torch", device="cuda"), BOTH)


def test_bfloat16_needs_no_choice() -> None:
    choice = choose_linear(wish(precision="bfloat16"), dict.fromkeys(BOTH))
    assert choice == LinearChoice("torch", "bfloat16: model.precision")


def test_a_model_that_computes_its_layers_itself_leaves_nothing_to_choose() -> None:
    assert not must_time(wish(), ())
    assert choose_linear(wish(), {}) == LinearChoice("torch", "the model computes them itself")
