"""A run's planners know the tables of its features, and plan ragged batches as the shards have them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.config.schema import CacheConfig, Config, DataConfig, KernelsConfig, ModelConfig, TrainConfig
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import joined
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.shards.entries import FeatureInfo
from tests.ragged_shards import TABLES, write_ragged


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """100 samples with a user, a history, an item, which share a table, and genres; batches of 16."""
    write_ragged(tmp_path)
    train = TrainConfig(batch_size=16, output=str(tmp_path / "run"))
    return prepare_run(Config(data=DataConfig(path=str(tmp_path), block_rows=16), train=train))


def test_planners_are_told_how_many_look_ups_each_table_has(run: Run) -> None:
    """Of all samples; a history's and an item's are to the same table."""
    facts = run.policy(2).parts[0].facts
    assert facts.feature_tables == (0, 1, 1, 2)
    looked_up = joined([rows for segment in run.schedule for rows in run.batches(segment)])
    tables = np.searchsorted(run.table_offsets, looked_up.values, side="right") - 1
    np.testing.assert_allclose(facts.mean_look_ups, np.bincount(tables, minlength=3) / 120)
    assert facts.mean_look_ups[0] == 1
    assert not facts.is_one_hot


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("trainers", [1, 3])
def test_plans_of_ragged_shards_train_as_plain_training_does(run: Run, trainers: int, backend: str) -> None:
    if backend == "native" and not shared_library.is_built("planner"):
        pytest.skip("_planner.so is not built")
    run = replace(run, config=replace(run.config, kernels=KernelsConfig(backend=backend)))
    batches = list(run.batches(run.schedule[0]))
    assert len(batches) == 7
    assert check_policy(run.policy(trainers).parts[0], batches).total_rows > 0


def test_tables_that_nobody_looks_up_share_the_cache(tmp_path: Path) -> None:
    """Of two widths; there is nothing to share it by."""
    features = tuple(FeatureInfo(name, name, ragged=True, longest=3) for name in ("user", "item"))
    write_ragged(tmp_path, features=features, tables=TABLES[:2], unused=("user", "item"))
    config = Config(
        data=DataConfig(path=str(tmp_path), block_rows=16),
        model=ModelConfig(name="wide_deep", embedding_dim_of={"item": 4}),
        cache=CacheConfig(rows=50),
        train=TrainConfig(batch_size=16, output=str(tmp_path / "run")),
    )
    assert [part.facts.cache_rows for part in prepare_run(config).policy(2).parts] == [25, 25]
