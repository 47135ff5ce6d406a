"""A rank that computes is refused before it starts where its settings or its memory do not allow it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.config.schema import DebugConfig, KernelsConfig, ModelConfig, OptimizerConfig, TrainConfig
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.launch import run_alone
from bagpipe_hpc.models.size import measure_model
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.preparation import compute_check
from bagpipe_hpc.preparation.compute_check import (
    check_compute_settings,
    check_reference_settings,
    require_reference_memory,
    trainer_need,
)
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.rank_check import check_start
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.run.run import Run
from tests.unit.preparation.test_prepare import write_clicks

HUGE = ModelConfig(embedding_dim=4, settings=DLRMSettings(top_mlp=(10**9,)))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two tables, 39 rows of 5 numbers; 3 dense features, batches of 8."""
    return prepare_run(write_clicks(tmp_path))


@pytest.fixture
def three_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_check.os, "cpu_count", lambda: 3)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (TrainConfig(threads=1000), r"train\.threads = 1000: this host has 3 cores; use 48 at most, 16 a core"),
        (KernelsConfig(row_threads=49), r"kernels\.row_threads = 49: this host has 3 cores"),
        (OptimizerConfig(dense="Adagrat"), r"optimizer\.dense = 'Adagrat': use one of "),
        (OptimizerConfig(dense_options={"momentun": 0.9}), r"optimizer\.dense_options = .* unexpected keyword"),
        (OptimizerConfig(dense="SGD", dense_options={"weight_decay": 1e300}), r"dense_options = .* are not finite"),
        (OptimizerConfig(dense="Adam", dense_options={"betas": [0.9]}), r"dense_options = .*: Adam says: list index"),
        (OptimizerConfig(dense="Adam", dense_options={"foreach": True, "fused": True}), r"Adam says: `fused` and"),
    ],
)
def test_settings_that_no_data_would_cure(
    run: Run, part: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_check.os, "cpu_count", lambda: 3)
    check_compute_settings(run.config)
    section = type(part).__name__.removesuffix("Config").lower()
    with pytest.raises(ConfigError, match=message):
        check_compute_settings(replace(run.config, **{section: part}))  # type: ignore[arg-type]


def test_one_rank_has_no_plan_and_no_roles(run: Run) -> None:
    check_reference_settings(run.config)
    with pytest.raises(ConfigError, match=r"debug\.verify_rows = true: a one-rank run has no plan"):
        check_reference_settings(replace(run.config, debug=DebugConfig(verify_rows=True)))
    with pytest.raises(ConfigError, match=r"train\.trace = 'x\.json': a one-rank run has no roles to draw"):
        check_reference_settings(replace(run.config, train=replace(run.config.train, trace="x.json")))


def test_a_trainer_needs_memory_for_its_cache_and_its_model(run: Run) -> None:
    small = trainer_need(run, 2, 0, [CacheSlots(4, 3)])
    assert small.caches_bytes == 7 * (5 * 4 + 8)  # a record, and which row it is
    assert 4 * 10**5 < small.dense_bytes < 10**8
    huge = trainer_need(replace(run, config=replace(run.config, model=HUGE)), 2, 0)
    assert huge.dense_bytes > 4 * 4 * 8 * 10**9  # weights, gradients, Adagrad's sums and the buffer of the sums
    late = replace(run, config=replace(run.config, train=replace(run.config.train, weight_gradients="late")))
    kept = measure_model(run.config.model, run.model_facts, -(-run.batch_samples // 2)).step_bytes
    assert trainer_need(late, 2, 0, [CacheSlots(4, 3)]).dense_bytes == small.dense_bytes + kept
    noted = replace(run.config, train=replace(run.config.train, full_checkpoint_every=2))
    assert trainer_need(replace(run, config=noted), 2, 0).caches_bytes == 39 // 8


def test_rows_of_several_widths_add_up(run: Run) -> None:
    """Caches on a trainer, tables on a server."""
    tables = [table.name for table in run.manifest.tables]
    model = ModelConfig(name="dcn", embedding_dim=4, embedding_dim_of={tables[0]: 2})
    several = replace(run, config=replace(run.config, model=model))
    narrow, wide = several.groups
    caches = trainer_need(several, 2, 0, [CacheSlots(4, 3), CacheSlots(0, 2)]).caches_bytes
    assert caches == 7 * (3 * 4 + 8) + 2 * (5 * 4 + 8)
    rows = [group.tables.total_rows for group in (narrow, wide)]
    assert sum(several.server_bytes(3)) == 4 * (rows[0] * 3 + rows[1] * 5)
    assert several.server_bytes(1) == [4 * (rows[0] * 3 + rows[1] * 5)]


def test_slots_that_plans_cannot_number(run: Run) -> None:
    with pytest.raises(CapacityError, match="2147483648 rows in one cache are more than the 2147483647"):
        trainer_need(run, 2, 0, [CacheSlots(2**31 - 1, 1)])


def test_a_run_on_one_rank_must_fit_its_host(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    device = check_reference_settings(run.config)
    require_reference_memory(run, device)
    with pytest.raises(CapacityError, match=r"GB for the dense model with a step and .* another smaller model"):
        require_reference_memory(replace(run, config=replace(run.config, model=HUGE)), device)
    monkeypatch.setattr(compute_check, "free_bytes", lambda: 2 * 39 * 5 * 4)
    with pytest.raises(CapacityError, match=r"a run on one rank needs 0\.0 GB: twice the tables' 0\.0 GB"):
        require_reference_memory(run, device)


def test_what_lies_on_a_gpu_is_not_asked_of_its_host(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are copied there once, and the message adds up what is asked for."""
    seen: list[tuple[object, ...]] = []
    monkeypatch.setattr(compute_check, "check_gpu_memory", lambda *sizes: seen.append(sizes))
    monkeypatch.setattr(compute_check, "free_bytes", lambda: 0)
    message = r"GB: the tables' 0\.0 GB, since they are copied when it starts and saves, 0\.0 GB for the dense model"
    with pytest.raises(CapacityError, match=message):
        require_reference_memory(replace(run, config=replace(run.config, model=HUGE)), torch.device("cuda"))
    ((_, rows, cache_bytes, dense_bytes),) = seen
    assert (rows, cache_bytes) == (39, 39 * 5 * 4)
    assert dense_bytes > 1e9


class Fails(nn.Module):
    """A model whose forward pass fails."""

    def __init__(self, facts: object, settings: object) -> None:  # noqa: ARG002
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, dense: torch.Tensor, embeddings: object) -> torch.Tensor:  # noqa: ARG002
        raise ValueError("not today")


FAILS = ModelConfig(name=f"{__name__}:Fails", embedding_dim=4)


def test_a_model_that_fails_is_refused_by_every_trainer(run: Run) -> None:
    """After its memory was found, before anything is planned or written."""
    trainer: Any = SimpleNamespace(role=Role.TRAINER, gpu_number=0)
    check_start(run, trainer)
    wrong = replace(run, config=replace(run.config, model=FAILS))
    with pytest.raises(ConfigError, match=r"Fails': forward fails on dense \[5, 3\] .*: ValueError: not today"):
        check_start(wrong, trainer)
    for role in (Role.ORACLE, Role.SERVER):
        check_start(wrong, cast(Any, SimpleNamespace(role=role)))


def test_an_optimizer_that_does_not_take_the_models_weights_is_refused(run: Run) -> None:
    config = replace(run.config, optimizer=OptimizerConfig(dense="Muon"))
    check_compute_settings(config)
    with pytest.raises(ConfigError, match="Muon says: Muon only supports 2D parameters"):
        compute_check.check_model(replace(run, config=config))


def test_a_model_that_fails_is_refused_by_a_run_on_one_rank(run: Run, tmp_path: Path) -> None:
    output = tmp_path / "refused"
    train = replace(run.config.train, output=str(output))
    with pytest.raises(ConfigError, match=r"Fails': forward fails on .*: ValueError: not today"):
        run_alone(Training(replace(run.config, model=FAILS, train=train)))
    assert not output.exists()
