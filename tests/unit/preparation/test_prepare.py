"""A run is refused before it starts where data, settings and output folder do not allow it; nothing is touched then."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.config.rates import DenseRateConfig, RowsRateConfig
from bagpipe_hpc.config.schema import (
    Config,
    DataConfig,
    DebugConfig,
    LookaheadConfig,
    ModelConfig,
    PolicyConfig,
    TrainConfig,
)
from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.plan.bags import joined
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.preparation import prepare as preparation
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.run.evaluations import auc_feature, is_exact, most_evaluation_bytes
from bagpipe_hpc.storage.shards.entries import FeatureInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import MANIFEST_NAME, ShardManifest, load_manifest, save_manifest
from bagpipe_hpc.storage.shards.samples import Samples
from bagpipe_hpc.storage.shards.writer import write_shard

TRAIN_ROWS, TEST_ROWS = 40, 6
TABLES = (TableInfo("C1", 9), TableInfo("C2", 30))


def write_clicks(directory: Path, *, train_rows: int = TRAIN_ROWS) -> Config:
    """Two small shards, and a configuration for them."""
    rng = np.random.default_rng(0)

    def shard(name: str, rows: int):  # type: ignore[no-untyped-def]
        ids = np.stack([rng.integers(0, table.rows, rows) for table in TABLES], axis=1).astype(np.int32)
        return write_shard(
            directory / name, rows, [Samples(rng.random((rows, 3), np.float32), ids, np.zeros(rows, np.uint8))]
        )

    train = (shard("train-00000.h5", train_rows),) if train_rows else ()
    save_manifest(directory, ShardManifest(1, "criteo", 3, TABLES, train, (shard("test-00000.h5", TEST_ROWS),)))
    return Config(
        data=DataConfig(path=str(directory), block_rows=16),
        model=ModelConfig(embedding_dim=4),
        lookahead=LookaheadConfig(batches=6, group=2),
        train=TrainConfig(batch_size=8, output=str(directory / "run")),
    )


def test_a_job_knows_the_whole_run(tmp_path: Path) -> None:
    job = prepare_run(write_clicks(tmp_path))
    assert job.total_rows == 39
    assert job.table_offsets.tolist() == [0, 9, 39]
    first_rows = np.asarray([0, 9])
    assert [group.record.width for group in job.groups] == [4 + 1]  # the row optimizer's accumulator
    assert job.total_steps == 5
    training, evaluation = job.schedule
    with job.shards(training) as train, job.shards(evaluation) as test:
        ids, test_ids = train.read_sparse(0, TRAIN_ROWS), test.read_sparse(0, TEST_ROWS)
    order = job.order(training)
    places = np.concatenate([order.block_range(b)[0] + order.inside_block(b) for b in order.blocks().tolist()])
    np.testing.assert_array_equal(joined(list(job.batches(training))).grid, (ids + first_rows)[places])
    np.testing.assert_array_equal(joined(list(job.batches(evaluation))).grid, test_ids + first_rows)


@pytest.mark.parametrize("same_rows", [True, False])
def test_a_run_goes_on_with_what_was_heard_of_its_rows(
    same_rows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five batches an epoch, two steps of the second one are done; or an epoch of earlier rows, and two steps."""
    config = write_clicks(tmp_path)
    heard = (Heard(0, 2, 0.5), Heard(1, 1, 0.25))
    rows = load_manifest(tmp_path).digest("train") if same_rows else "of earlier rows"
    then = SimpleNamespace(step=7, data_step=0, heard=heard, training_data=rows, vocabularies=None)
    monkeypatch.setattr(preparation, "find_start", lambda *_: SimpleNamespace(manifest=then, directory=tmp_path))
    policy = PolicyConfig("fae", FaeSettings(adapt_share=True))
    train = replace(config.train, epochs=3, evaluate_every_steps=2)
    run = prepare_run(replace(config, policy=policy, train=train))
    assert {segment.heard for segment in run.schedule} == {heard if same_rows else ()}
    assert run.schedule[0].first_step == 7
    assert next(segment.last_step for segment in run.schedule if segment.is_heard) == (8 if same_rows else 9)


def test_a_group_must_be_a_feature(tmp_path: Path) -> None:
    config = write_clicks(tmp_path)
    grouped = replace(config, train=replace(config.train, auc_group="C7"))
    with pytest.raises(
        ConfigError, match=r"train\.auc_group = 'C7': names no feature with one id a sample; the data has \["
    ):
        prepare_run(grouped)
    monstrous = replace(prepare_run(config).manifest, tables=(TableInfo("C7", 1 << 40),), features=())
    run = replace(prepare_run(config), config=grouped, manifest=monstrous)
    with pytest.raises(ConfigError, match="it has 1099511627776 ids; use a feature of 2147483648 at most"):
        auc_feature(run, run.schedule[-1])


def test_samples_are_grouped_by_the_place_of_their_feature(tmp_path: Path) -> None:
    """Among the features with one id a sample; not where an evaluation is too large for an exact AUC."""
    run = prepare_run(write_clicks(tmp_path))
    evaluation = run.schedule[-1]
    assert auc_feature(run, evaluation) is None
    features = (FeatureInfo("tags", "C1", ragged=True), FeatureInfo("shop", "C1"), FeatureInfo("user", "C2"))
    tables = (TableInfo("C1", 1 << 40), TableInfo("C2", 1 << 31))  # the larger one is not asked for
    train = replace(run.config.train, auc_group="user", exact_auc_samples=evaluation.samples)
    config = replace(run.config, train=train)
    grouped = replace(run, config=config, manifest=replace(run.manifest, features=features, tables=tables))
    assert auc_feature(grouped, evaluation) == 1
    assert auc_feature(grouped, replace(evaluation, samples=evaluation.samples + 1)) is None
    alone = replace(grouped, schedule=(evaluation,))
    assert most_evaluation_bytes(alone, 1) == 112 * evaluation.samples
    assert most_evaluation_bytes(alone, 2) == 160 * -(-evaluation.samples // 2)
    ragged = replace(grouped, config=replace(config, train=replace(train, auc_group="tags")))
    with pytest.raises(ConfigError, match=r"one id a sample; the data has \['shop', 'user'\]"):
        auc_feature(ragged, evaluation)


def test_memory_of_an_evaluation_is_spread_and_bounded(tmp_path: Path) -> None:
    run = prepare_run(write_clicks(tmp_path))
    (*_, evaluation) = run.schedule
    large = replace(run, schedule=(replace(evaluation, samples=1 << 24),))
    assert is_exact(large, large.schedule[0])
    assert most_evaluation_bytes(large, 1) == 64 << 24
    assert most_evaluation_bytes(large, 4) == 160 << 22
    larger = replace(run, schedule=(replace(evaluation, samples=(1 << 24) + 1), replace(evaluation, samples=10)))
    assert not is_exact(larger, larger.schedule[0])
    assert most_evaluation_bytes(larger, 4) == (16 << 20) + (160 << 20)
    assert most_evaluation_bytes(replace(run, schedule=run.schedule[:1]), 1) == 0
    two_labels = replace(large, manifest=replace(large.manifest, labels=("click", "like")))
    assert most_evaluation_bytes(two_labels, 1) == 2 * (64 << 24)


def test_data_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"data\.path is empty: name a folder written by `bagpipe prepare`"):
        prepare_run(Config())


def test_data_must_be_complete(tmp_path: Path) -> None:
    config = write_clicks(tmp_path)
    (tmp_path / MANIFEST_NAME).unlink()
    with pytest.raises(DataError, match=MANIFEST_NAME):
        prepare_run(config)


def test_damaged_data_is_named(tmp_path: Path) -> None:
    config = write_clicks(tmp_path)
    shard = tmp_path / "train-00000.h5"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00000\.h5"):
        prepare_run(config)


def test_data_without_training_rows_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no training rows"):
        prepare_run(write_clicks(tmp_path, train_rows=0))


def test_a_run_longer_than_versions_can_count_is_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(write_clicks(tmp_path), debug=DebugConfig(verify_rows=True))
    prepare_run(config)
    monkeypatch.setattr(preparation, "LARGEST_VERSION", 4)
    with pytest.raises(ConfigError, match=r"debug\.verify_rows = true: .* up to step 4, and the run has 5"):
        prepare_run(config)


def test_batches_that_no_data_fills_are_refused(tmp_path: Path) -> None:
    config = write_clicks(tmp_path)
    whole = replace(config, train=replace(config.train, batch_size=TRAIN_ROWS))
    assert prepare_run(whole).total_steps == 1
    larger = replace(config, train=replace(config.train, batch_size=TRAIN_ROWS + 1))
    with pytest.raises(ConfigError, match=r"train\.batch_size = 41: the training data has 40 rows, .* use 40 at most"):
        prepare_run(larger)


def test_settings_without_effect_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = write_clicks(tmp_path)
    with caplog.at_level(logging.WARNING):
        prepare_run(config)
        assert not caplog.messages
        prepare_run(replace(config, train=replace(config.train, max_steps=6, stop_min_delta=0.5)))
    assert caplog.messages == [
        "train.stop_min_delta = 0.5: it is for train.stop_after, which is 0",
        "train.max_steps = 6: train.epochs = 1 ends the run sooner, after 5 steps; set more epochs to train longer",
    ]


def test_rates_that_do_not_fit_the_run_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = write_clicks(tmp_path)
    rates = {"rows_rate": RowsRateConfig(warmup_steps=10), "dense_rate": DenseRateConfig(decay="cosine", decay_steps=3)}
    with caplog.at_level(logging.WARNING):
        prepare_run(replace(config, **rates))
    assert caplog.messages == [
        "rows_rate.warmup_steps = 10: the run has 5 steps, so its rate reaches 0.5 of the full one",
        "dense_rate.decay = 'cosine': the rate is 0 from step 3 on, and the run has 5 steps; set more "
        "dense_rate.decay_steps, or an end_factor above 0",
    ]


@pytest.mark.parametrize(("batches", "group"), [(6, 2), (6, 5), (7, 3), (7, 6), (50, 3), (50, 12), (10**9, 0)])
def test_a_window_beyond_the_longest_segment_plans_as_a_shorter_one(tmp_path: Path, batches: int, group: int) -> None:
    """Five batches of training: where each row goes, and when, is the same; the last group's number is not."""
    config = replace(write_clicks(tmp_path), lookahead=LookaheadConfig(batches, group))
    job = prepare_run(config)
    window = job.window
    assert window.lookahead == min(batches, 6)
    if batches == 10**9:
        return
    asked = Window(batches, config.lookahead.group_batches)
    policy = job.policy(2)
    found, wanted = (list(plan_segment(policy.planner(w), job.batches(job.schedule[0]))) for w in (window, asked))
    for plan, sound in zip(found, wanted, strict=True):
        retiring = replace(plan.shared, retire_group=0), replace(sound.shared, retire_group=0)
        assert [encoded(part) for part in retiring] == [encoded(retiring[1])] * 2
        assert [encoded(part) for part in plan.trainers] == [encoded(part) for part in sound.trainers]
        assert bool(plan.shared.retire_group) == bool(sound.shared.retire_group)


def encoded(part: Any) -> dict[str, Any]:
    """The fields of a part of a plan, arrays as lists."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(part).items()}
