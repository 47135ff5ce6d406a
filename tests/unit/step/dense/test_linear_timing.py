"""Who runs how often when linear layers are timed, and on how much. No test depends on real times."""

import math
from pathlib import Path

import pytest
import torch

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.config.schema import Config, ModelConfig, TrainConfig
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.dense.linear_timing import compared_seconds, samples_of_a_pass, time_linear_layers
from bagpipe_hpc.storage.shards.entries import TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest

NAMES = ("onednn", "torch")


@pytest.mark.parametrize(("seconds", "turns"), [(1e-4, 10), (0.091, 5), (3.0, 4)])
def test_they_take_turns_until_it_is_enough(seconds: float, turns: int) -> None:
    """A slow pass is made three times after the first one, a fast one nine times."""
    order = []

    def run(name: str) -> float:
        order.append(name)
        return seconds

    compared_seconds(NAMES, run)
    assert order == list(NAMES) * turns


def test_they_are_compared_turn_by_turn_but_for_the_first_pass() -> None:
    """Another program that runs in the second and third turn makes neither of them the slower one."""
    times = {"onednn": iter([9.0, 0.25, 1.0, 0.5]), "torch": iter([0.01, 0.5, 2.0, 0.25])}
    assert compared_seconds(NAMES, lambda name: next(times[name])) == {"onednn": 0.5, "torch": 1.0}


def test_a_pass_is_a_slice_or_less_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert samples_of_a_pass(2048, 1, 478_000) == 2048
    assert samples_of_a_pass(2048, 3, 478_000) == 683
    assert samples_of_a_pass(2048, 1, 10_000_000) == 100
    assert samples_of_a_pass(2048, 1, 10**12) == 1


def test_the_dense_half_is_run_with_each(tmp_path: Path) -> None:
    """On small layers; the slowest trainer's times count."""
    manifest = ShardManifest(1, "criteo", 3, (TableInfo("C1", 9), TableInfo("C2", 30)), (), ())
    model = ModelConfig(embedding_dim=4, settings=DLRMSettings(bottom_mlp=(8,), top_mlp=(8,)))
    run = Run(Config(model=model, train=TrainConfig(batch_size=6, output=str(tmp_path))), manifest, ())
    own: list[float] = []

    def slowest(seconds: float) -> float:
        own.append(seconds)
        return 1.0 + len(own) % 2

    found = time_linear_layers(run.config, run.model_facts, torch.device("cpu"), NAMES, 2, slowest)
    assert found == {"onednn": 2.0, "torch": 1.0}
    assert all(math.isfinite(seconds) and seconds > 0 for seconds in own)
