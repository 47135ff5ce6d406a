"""DLRM with dropout is DLRM but for what it drops while it trains."""

import torch
from torch import nn

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.models.dropout import Dropout
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.dlrm import DLRM
from benchmarks.searches.dropout import DropoutDLRM


def test_hidden_numbers_of_the_top_mlp_are_dropped_in_training_alone() -> None:
    facts, sizes = ModelFacts.one_hot(2, 3, 4, seed=5), {"bottom_mlp": (6,), "top_mlp": (16, 8)}
    plain, model = DLRM(facts, DLRMSettings(**sizes)), DropoutDLRM(facts, DropoutDLRM.Settings(**sizes, dropout=0.5))
    assert [type(layer) for layer in list(model.top)[:3]] == [nn.Linear, nn.ReLU, Dropout]
    assert [layer.p for layer in model.modules() if isinstance(layer, Dropout)] == [0.5, 0.5]
    dense, rows = torch.randn(7, 2), torch.randn(7, 3, 4)
    expected = plain(dense, Embeddings.of_stacked(facts.features, rows))
    assert torch.equal(model.eval()(dense, Embeddings.of_stacked(facts.features, rows)), expected)
    model.train()
    for number, layer in enumerate(layer for layer in model.modules() if isinstance(layer, Dropout)):
        layer.begin(number, torch.arange(7))
    assert not torch.equal(model(dense, Embeddings.of_stacked(facts.features, rows)), expected)
