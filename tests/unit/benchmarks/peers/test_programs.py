"""The peers train the same model: the same first weights, the same samples, the same losses as bagpipe."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.launch import run_alone
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.dlrm import DLRM
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME
from bagpipe_hpc.tools.conditions import REPOSITORY
from data_prep.generate import generate_clicks
from data_prep.prepare import PrepareSettings, prepare_clicks

SETTINGS = [
    "model.embedding_dim=8",
    "model.bottom_mlp=[16]",
    "model.top_mlp=[16]",
    "optimizer.rows_lr=0.5",
    "optimizer.dense_lr=0.5",
    "train.batch_size=64",
    "train.log_every_steps=1",
]
CONFIG = REPOSITORY / "benchmarks" / "peers" / "real.toml"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs in benchmarks/peers/programs be imported."""
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks" / "peers" / "programs")


def imported(name: str) -> ModuleType:
    return importlib.import_module(name)


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_plain_pytorch_has_the_losses_of_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    generate_clicks(500, tmp_path / "clicks.tsv")
    prepare_clicks([str(tmp_path / "clicks.tsv")], tmp_path / "shards", PrepareSettings(), lambda _: None)
    overrides = [
        *SETTINGS,
        f"data.path={tmp_path / 'shards'}",
        "train.evaluate=true",
        f"train.output={tmp_path / 'run'}",
    ]
    config: Config = load_config(CONFIG, overrides)
    run_alone(Training(config))
    records = [json.loads(line) for line in (tmp_path / "run" / METRICS_NAME).read_text().splitlines()]
    monkeypatch.setattr(sys, "argv", ["plain_pytorch.py", str(CONFIG), *overrides, "--warm-up-steps", "2"])
    capsys.readouterr()
    imported("plain_pytorch").main()
    figures = json.loads(capsys.readouterr().out)
    losses = [record["loss"] for record in records if record["event"] == "progress"]
    assert figures["steps"] == len(losses) == 8
    assert figures["first_losses"] == pytest.approx(losses[:5], rel=1e-5)
    assert figures["auc"] == pytest.approx(records[-1]["auc"], abs=0.02)
    assert figures["log_loss"] == pytest.approx(records[-1]["log_loss"], rel=1e-4)
    assert figures["samples_per_s"] > 0


@pytest.mark.usefixtures("programs")
def test_torchrecs_order_of_the_interactions_gives_the_same_logits() -> None:
    width, features = 4, 5
    facts = ModelFacts.one_hot(2, features, width, seed=1)
    model = DLRM(facts, DLRMSettings(bottom_mlp=(3,), top_mlp=(6,)))
    dense, embeddings = torch.rand(7, 2), torch.rand(7, features, width)
    bottom = model.bottom(dense)
    vectors = torch.cat((bottom.unsqueeze(1), embeddings), dim=1)
    first, second = torch.triu_indices(features + 1, features + 1, offset=1)
    inputs = torch.cat((bottom, torch.bmm(vectors, vectors.transpose(1, 2))[:, first, second]), dim=1)
    expected = model(dense, Embeddings.of_stacked(facts.features, embeddings))
    weight = model.top[0].weight
    with torch.no_grad():
        weight.copy_(imported("first_weights").in_torchrec_order(weight, width, features + 1))
    torch.testing.assert_close(model.top(inputs).squeeze(1), expected)


@pytest.mark.usefixtures("programs")
def test_a_cured_layer_computes_the_same() -> None:
    torch.manual_seed(1)
    layer = torch.nn.Linear(40, 8)
    inputs = torch.rand(64, 40)
    expected = layer(inputs)
    expected.square().sum().backward()
    gradient = layer.weight.grad.clone()
    layer.zero_grad()
    imported("onednn_linear").use_onednn(layer)
    assert type(layer).__name__ == "OneDnnLinear"
    layer(inputs).square().sum().backward()
    torch.testing.assert_close(layer(inputs), expected)
    torch.testing.assert_close(layer.weight.grad, gradient)
