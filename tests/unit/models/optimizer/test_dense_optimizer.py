"""The dense optimizer is torch's own, by name; what torch does not take is refused by the setting's name."""

from typing import Any

import pytest
import torch
from torch import nn

from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer


def parameter() -> nn.Parameter:
    return nn.Parameter(torch.tensor([[1.0, -2.0], [3.0, 0.5]]))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adagrad", {"eps": 1e-8}),
        ("Adam", {"betas": [0.8, 0.99]}),
        ("AdamW", {"weight_decay": 0.1}),
        ("RMSprop", {"alpha": 0.5}),
        ("Adadelta", {}),
        ("NAdam", {}),
    ],
)
def test_it_steps_as_torchs_does(name: str, options: dict[str, Any]) -> None:
    ours, theirs = parameter(), parameter()
    optimizers = [
        dense_optimizer(OptimizerConfig(dense=name, dense_lr=0.1, dense_options=options), [ours]),
        getattr(torch.optim, name)([theirs], lr=0.1, **options),
    ]
    for step in range(3):
        for weights, optimizer in zip((ours, theirs), optimizers, strict=True):
            weights.grad = weights.detach() * (step + 1)
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)
    assert not torch.equal(ours, parameter())


def is_fused(name: str, **options: Any) -> bool:
    optimizer = dense_optimizer(OptimizerConfig(dense=name, dense_options=options), [parameter()])
    return bool(optimizer.param_groups[0].get("fused"))


def test_on_the_cpu_it_is_fused_unless_the_options_choose_otherwise() -> None:
    assert all(is_fused(name) for name in ("SGD", "Adagrad", "Adam", "AdamW"))
    assert not is_fused("RMSprop")
    assert not is_fused("SGD", fused=False)
    assert not is_fused("Adam", foreach=True)
    assert not is_fused("Adam", differentiable=True)


@pytest.mark.parametrize("name", ["Adagrat", "adam", "LBFGS", "SparseAdam", "lr_scheduler", "__doc__", ""])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"optimizer\.dense = .*: use one of .*Adagrad, .*SGD, or package\.module:Class"
    ):
        dense_optimizer(OptimizerConfig(dense=name), [parameter()])


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"momentun": 0.9}, "momentun"), ({"momentum": -1.0}, "Invalid momentum"), ({"lr": 0.1}, "lr")],
)
def test_a_wrong_option_is_refused_with_torchs_reason(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"optimizer\.dense_options = .*SGD says: .*{reason}"):
        dense_optimizer(OptimizerConfig(dense="SGD", dense_options=options), [parameter()])
