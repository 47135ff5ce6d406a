"""Each gradient is summed once, in groups that the backward pass finishes one after the other."""

import pytest
import torch
from torch import nn

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.config.schema import ModelConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.sums import gradient_groups as module
from bagpipe_hpc.models.sums.gradient_groups import gradient_groups


def names(model: nn.Module, *, side_by_side: bool = False) -> list[list[str]]:
    """The groups, in words."""
    known = {weight: name for name, weight in model.named_parameters()}
    return [[known[weight] for weight in group] for group in gradient_groups(model, side_by_side=side_by_side)]


def test_a_plain_module_is_taken_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is closed as soon as it has 20 numbers."""
    monkeypatch.setattr(module, "_GROUP_NUMBERS", 20)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 1))
    assert names(model) == [["2.bias", "2.weight", "1.bias", "1.weight"], ["0.bias", "0.weight"]]


def test_frozen_parameters_are_left_out_and_tied_ones_are_taken_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    model[2].weight = model[0].weight
    model[1].weight.requires_grad = False
    assert names(model) == [["2.bias", "1.bias", "0.bias", "0.weight"]]


def test_dlrms_top_comes_first() -> None:
    """MLPerf's: its first sum starts with half of the pass to come, its last has the bottom MLP and the layer above.

    Where sums pass side by side that layer does not wait for the bottom MLP.
    """
    settings = DLRMSettings(bottom_mlp=(512, 256), top_mlp=(1024, 1024, 512, 256))
    model = build_model(ModelConfig(embedding_dim=64, settings=settings), ModelFacts.one_hot(13, 26, 64, 1))
    upper, bottom = [{"top.8", "top.6", "top.4"}, {"top.2"}], {f"bottom.{number}" for number in (0, 2, 4)}
    for side_by_side, lower in ((False, [{"top.0"} | bottom]), (True, [{"top.0"}, bottom])):
        groups = [{name.rpartition(".")[0] for name in group} for group in names(model, side_by_side=side_by_side)]
        assert groups == upper + lower


def test_a_group_has_a_quarter_of_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 42, 48 and 54 numbers here; the last one has what is left, an eighth at least."""
    monkeypatch.setattr(module, "_GROUP_NUMBERS", 5)
    for layers, sizes in ((7, [4, 4, 4, 2]), (8, [4, 4, 4, 4]), (9, [5, 5, 5, 3])):
        model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(layers)))
        assert [len(group) for group in names(model)] == sizes


class Grouped(nn.Module):
    """Two layers in the groups that it is told."""

    def __init__(self, groups: list[list[str]]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.bias.requires_grad = False
        self._groups = groups

    def gradient_groups(self) -> list[list[nn.Parameter]]:
        known = {**dict(self.named_parameters()), "foreign": nn.Parameter(torch.zeros(1))}
        return [[known[name] for name in group] for group in self._groups]


def test_a_models_own_groups_are_taken_without_what_is_frozen() -> None:
    groups = [["second.weight"], [], ["second.bias"], ["first.bias", "first.weight"]]
    assert names(Grouped(groups)) == [groups[0], groups[3]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], r"holds first\.bias 0 times"),
        (["first.bias", "first.bias"], r"holds first\.bias 2 times"),
        (["first.bias", "foreign"], "holds one that is not the model's"),
    ],
)
def test_groups_that_would_be_summed_wrongly_are_refused(more: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"Grouped\.gradient_groups: must hold each .* once, and {message}"):
        gradient_groups(Grouped([["second.weight", "first.weight"], more]))
