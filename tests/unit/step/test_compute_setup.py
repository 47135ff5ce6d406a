"""Which device a trainer takes, and what is refused before anything starts."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from bagpipe_hpc.config.schema import Config, KernelsConfig, ModelConfig, TrainConfig
from bagpipe_hpc.config.sections.train import WEIGHT_GRADIENTS
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.models.layers.linear import bfloat16_linear, torch_linear
from bagpipe_hpc.step.compute_setup import (
    check_gpu_memory,
    check_model_settings,
    choose_device,
    layer_weights_of,
    model_kernels,
    usable_linear,
)

CPU = torch.device("cpu")


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_cpu_is_always_there() -> None:
    assert choose_device("cpu", 5) == torch.device("cpu")


@pytest.mark.usefixtures("two_gpus")
def test_every_trainer_of_a_host_takes_a_gpu_of_its_own() -> None:
    assert [choose_device("auto", rank) for rank in range(3)] == [
        torch.device("cuda", 0),
        torch.device("cuda", 1),
        torch.device("cpu"),
    ]
    assert choose_device("cuda", 1) == torch.device("cuda", 1)


@pytest.mark.usefixtures("two_gpus")
def test_a_trainer_without_a_gpu_is_refused_where_one_is_asked_for() -> None:
    with pytest.raises(
        ConfigError, match=r"train\.device = 'cuda': torch sees 2 GPUs here, and this is trainer 2 of those"
    ):
        choose_device("cuda", 2)


def test_a_cache_that_does_not_fit_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1_000_000, 9_000_000))
    gpu = torch.device("cuda", 1)
    check_gpu_memory(gpu, cache_rows=9_000, cache_bytes=900_000, dense_bytes=100_000)
    with pytest.raises(CapacityError, match=r"9000 rows takes 1 MB and the .* 0 MB, but cuda:1 has 1 MB free: set a"):
        check_gpu_memory(gpu, cache_rows=9_000, cache_bytes=900_000, dense_bytes=100_001)


class OwnLayers(nn.Module):
    """A model that computes its layers itself."""


OWN_LAYERS = f"{__name__}:OwnLayers"


def test_no_library_is_chosen_for_layers_that_a_model_computes_itself() -> None:
    """It would be ignored in silence."""
    config = Config(model=ModelConfig(name=OWN_LAYERS), kernels=KernelsConfig(linear="onednn"))
    with pytest.raises(ConfigError, match=r"kernels\.linear = 'onednn': .*OwnLayers' .* use auto or torch"):
        check_model_settings(config, CPU)


def test_bfloat16_is_refused_for_any_model_where_the_processor_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    for name in ("dlrm", OWN_LAYERS):
        with pytest.raises(ConfigError, match=r"model\.precision = 'bfloat16': .*use float32"):
            check_model_settings(Config(model=ModelConfig(name=name, precision="bfloat16")), CPU)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    check_model_settings(Config(model=ModelConfig(name=OWN_LAYERS, precision="bfloat16")), CPU)


def test_a_model_that_computes_its_layers_itself_leaves_nothing_to_choose() -> None:
    own = Config(model=ModelConfig(name=OWN_LAYERS))
    check_model_settings(own, CPU)
    assert usable_linear(own, CPU) == ()
    assert "torch" in usable_linear(Config(), CPU)


def test_kernels_follow_the_settings() -> None:
    gpu = torch.device("cuda", 0)
    assert model_kernels(Config(), gpu, "torch").linear is torch_linear
    assert model_kernels(Config(kernels=KernelsConfig(linear="torch")), gpu).linear is torch_linear
    inputs, weight, bias = torch.rand(64, 48), torch.rand(32, 48), torch.rand(32)
    for linear, products in (("torch", "_Blas"), ("onednn", "_OneDnn")):
        settled = Config(kernels=KernelsConfig(linear=linear))
        for kernels in (model_kernels(Config(), CPU, linear), model_kernels(settled, CPU)):
            outputs = kernels.linear(inputs, weight.requires_grad_(), bias, True)
            assert type(outputs.grad_fn.products).__name__ == products
    assert model_kernels(Config(model=ModelConfig(precision="bfloat16")), CPU).linear is bfloat16_linear


@pytest.mark.parametrize("when", WEIGHT_GRADIENTS)
def test_layers_tell_where_that_helps_and_can_be(when: str, caplog: pytest.LogCaptureFixture) -> None:
    config = Config(train=TrainConfig(weight_gradients=when))
    caplog.set_level("INFO")
    assert layer_weights_of(config, CPU, 2, side_by_side=True) is not None
    assert (layer_weights_of(config, CPU, 2, side_by_side=False) is not None) == (when == "late")
    none_late = replace(config, train=replace(config.train, late_share=0.0))
    assert layer_weights_of(none_late, CPU, 2, side_by_side=False) is None
    assert layer_weights_of(config, CPU, 1, side_by_side=True) is None
    assert not caplog.records
    elsewhere = [
        (replace(config, model=ModelConfig(precision="bfloat16")), CPU),
        (config, torch.device("cuda")),
        (replace(config, model=ModelConfig(name=OWN_LAYERS)), CPU),
    ]
    assert [layer_weights_of(own, device, 2, side_by_side=True) for own, device in elsewhere] == [None] * 3
    told = [record.getMessage() for record in caplog.records]
    without = "train.weight_gradients = late: without effect on layers of"
    assert told == (when == "late") * [
        f"{without} dlrm on cpu in bfloat16",
        f"{without} dlrm on cuda in float32",
        f"{without} {OWN_LAYERS} on cpu in float32",
    ]
