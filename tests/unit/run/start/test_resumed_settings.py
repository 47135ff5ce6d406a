"""A run goes on from a checkpoint only if that is of the same training."""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import setting_types, to_document
from bagpipe_hpc.config.schema import Config, PolicyConfig
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
from bagpipe_hpc.planning.policies.herald.settings import HeraldSettings
from bagpipe_hpc.planning.policies.het.settings import HetSettings
from bagpipe_hpc.planning.policies.hotline.settings import HotlineSettings
from bagpipe_hpc.preparation.resume import find_start
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.resumed_settings import CHANGEABLE, FIXED, FREE, RESOLVED, ROUNDING, changes_since
from tests.unit.checkpoint_samples import sample_records, sample_state, sample_tables, write_checkpoint, write_tables
from tests.unit.resumed_runs import SHARDS, TABLES, settings
from tests.unit.run.start.settings_of_runs import (
    ARITHMETIC,
    OTHER,
    OWN_CHANGEABLE,
    OWN_FIXED,
    changed,
    config_at,
    job_of,
)


def test_every_setting_has_its_place() -> None:
    """A new setting must be put into one of the sets, by whether a resumed run may differ in it."""
    places = [*FIXED, *OWN_FIXED, *CHANGEABLE, *OWN_CHANGEABLE, *ROUNDING, *RESOLVED, *FREE]
    assert sorted(places) == sorted(setting_types())


@pytest.mark.parametrize("key", [*FIXED, *OWN_FIXED])
def test_another_training_is_refused_by_name(output: Path, key: str) -> None:
    config = settings(output)
    section, _, name = key.partition(".")
    then, now = to_document(config)[section][name], OTHER[key]
    shown = [repr(list(value) if isinstance(value, tuple) else value) for value in (then, now)]
    with pytest.raises(CheckpointError) as raised:
        find_start(changed(config, key, now), SHARDS)
    assert f"is of another training: {key}: {shown[0]} then, {shown[1]} now" in str(raised.value)
    assert "start anew in another train.output" in str(raised.value)


def test_rows_may_be_placed_anew(output: Path) -> None:
    """What placed the rows changes no result, so that another placement goes on and has nothing to say."""
    config = changed(settings(output), "tables.placement", "by_table")
    start = find_start(config, SHARDS)
    assert start is not None
    said = [changes_since(start.manifest, Run(now, SHARDS, ()), ARITHMETIC) for now in (settings(output), config)]
    assert said[0] == said[1]


def test_all_differences_are_named(output: Path) -> None:
    config = changed(changed(settings(output), "train.seed", 8), "optimizer.dense", "Adam")
    with pytest.raises(
        CheckpointError, match=r"train\.seed: 7 then, 8 now; optimizer\.dense: 'Adagrad' then, 'Adam' now"
    ):
        find_start(config, SHARDS)


def with_state(output: Path, state: StateColumns) -> Config:
    """A run that goes on from a checkpoint whose rows have that state."""
    config = config_at(settings(output), output / "other")
    write_checkpoint(
        output / "other",
        sample_records(TABLES, 5),
        TABLES,
        training_data=SHARDS.digest("train"),
        evaluation_data=SHARDS.digest("test"),
        config=to_document(config),
        row_state=(state,),
    )
    return config


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({}, "{}"),
        ({"C1": 2, "C2": 2}, "{'C1': 2, 'C2': 2}"),
        ({"C1": 2}, "{'C1': 2}"),
        ({"C2": 2}, ""),
        ({"C2": 2, "C1": 4}, ""),
    ],
)
def test_widths_of_tables_are_those_of_the_files(output: Path, now: dict[str, int], said: str) -> None:
    """Whatever the recorded settings say; that a table has the usual width need not be said."""
    write_tables(
        output / "other",
        sample_tables(TABLES, (4, 2)),
        training_data=SHARDS.digest("train"),
        config=to_document(settings(output)),
        row_optimizer="rowwise_adagrad",
        row_state_columns=1,
        row_state=sample_state(1),
    )
    config = config_at(changed(settings(output), "model.embedding_dim_of", now), output / "other")
    if not said:
        assert find_start(config, SHARDS) is not None
        return
    with pytest.raises(CheckpointError) as raised:
        find_start(config, SHARDS)
    assert f"of another training: model.embedding_dim_of: {{'C2': 2}} then, {said} now. Resume" in str(raised.value)


def test_another_state_of_the_rows_is_refused_by_name(output: Path) -> None:
    """Of an optimizer that was changed meanwhile, though the numbers would fit."""
    config = with_state(output, StateColumns("mean", per_weight=False))
    said = r"optimizer\.rows, its state: \['mean \(one a row\)'\] then, \['sum_of_mean_squares \(one a row\)'\] now"
    with pytest.raises(CheckpointError, match=said):
        find_start(config, SHARDS)


def test_another_first_value_of_the_rows_state_is_said(output: Path) -> None:
    config = with_state(output, StateColumns("sum_of_mean_squares", per_weight=False, first=0.5))
    start = find_start(config, SHARDS)
    assert start is not None
    (change,) = changes_since(start.manifest, job_of(config), start.manifest.arithmetic)
    assert change.startswith("optimizer.rows, first value of sum_of_mean_squares: 0.5 -> 0.0 (rows take theirs at the")


def test_a_setting_that_was_not_recorded_is_another(output: Path) -> None:
    write_checkpoint(output / "other", sample_records(TABLES, 5), TABLES, training_data=SHARDS.digest("train"))
    with pytest.raises(CheckpointError, match=r"data\.block_rows: 'not recorded' then, 8192 now"):
        find_start(config_at(settings(output), output / "other"), SHARDS)


@pytest.mark.parametrize("name", ["a_policy_of_a_stranger:Policy", ["bagpipe"], 7])
def test_a_policy_that_a_checkpoint_names_is_not_imported(
    name: object, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "imported"
    (tmp_path / "a_policy_of_a_stranger.py").write_text(f"open({str(trace)!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    recorded = to_document(settings(output))
    recorded["policy"]["name"] = name
    rows = SHARDS.digest("train")
    write_checkpoint(output / "o", sample_records(TABLES, 5), TABLES, training_data=rows, config=recorded)
    with pytest.raises(CheckpointError, match=r"policy\.name: .* then, 'bagpipe' now \(the samples' order\)"):
        find_start(settings(output / "o"), SHARDS)
    assert not trace.exists()


def test_a_checkpoint_from_before_there_were_features_of_several_ids_goes_on(output: Path) -> None:
    recorded = to_document(settings(output))
    del recorded["features"]
    rows = SHARDS.digest("train")
    write_checkpoint(output / "o", sample_records(TABLES, 5), TABLES, training_data=rows, config=recorded)
    assert find_start(settings(output / "o"), SHARDS) is not None


@pytest.mark.parametrize(
    "key",
    ["tables.initial_bound", "graph.fan_outs", "model.frozen", "train.row_sums", "optimizer.rows_weight_decay_mode"],
)
def test_a_checkpoint_from_before_there_was_a_choice_made_that_of_then(output: Path, key: str) -> None:
    recorded = to_document(settings(output))
    section, _, name = key.partition(".")
    del recorded[section][name]
    data = {"training_data": SHARDS.digest("train"), "evaluation_data": SHARDS.digest("test")}
    write_checkpoint(output / "o", sample_records(TABLES, 5), TABLES, **data, config=recorded)
    start = find_start(settings(output / "o"), SHARDS)
    assert start is not None
    assert changes_since(start.manifest, job_of(settings(output / "o")), start.manifest.arithmetic) == []


def test_a_checkpoint_from_before_there_were_lanes_had_one(output: Path) -> None:
    recorded = to_document(settings(output))
    del recorded["data"]["lanes"]
    write_checkpoint(
        output / "o", sample_records(TABLES, 5), TABLES, training_data=SHARDS.digest("train"), config=recorded
    )
    asked = config_at(settings(output), output / "o")
    assert find_start(changed(asked, "data.lanes", 1), SHARDS) is not None
    with pytest.raises(CheckpointError, match=r"data\.lanes: 1 then, 2 now"):
        find_start(changed(asked, "data.lanes", 2), SHARDS)


def test_the_order_of_the_shards_counts_and_their_names_do_not() -> None:
    first, second = SHARDS.train[0], replace(SHARDS.train[0], file="b.h5", sha256="1" * 64)
    digests = {
        replace(SHARDS, train=shards).digest("train")
        for shards in ((first, second), (second, first), (first,), (replace(first, rows=2559),))
    }
    assert len(digests) == 4
    assert replace(SHARDS, train=(replace(first, file="c.h5"),)).digest("train") == SHARDS.digest("train")


ORDERING = "tests.end_to_end.policies:Interleaved"


@pytest.mark.parametrize(
    ("then", "now"), [("bagpipe", ORDERING), (ORDERING, "bagpipe"), ("gone.away:Policy", "bagpipe")]
)
def test_a_policy_with_another_order_of_samples_is_refused(output: Path, then: str, now: str) -> None:
    recorded = to_document(settings(output))
    recorded["policy"]["name"] = then
    write_checkpoint(
        output / "other", sample_records(TABLES, 5), TABLES, training_data=SHARDS.digest("train"), config=recorded
    )
    config = config_at(changed(settings(output), "policy.name", now), output / "other")
    with pytest.raises(CheckpointError, match=rf"policy\.name: '{then}' then, '{now}' now \(the samples' order\)"):
        find_start(config, SHARDS)


def test_what_an_order_goes_by_stays(output: Path) -> None:
    """Another cache would have other hot rows, and the epoch's samples another order."""
    then = changed(settings(output), "policy.name", "fae")
    recorded = to_document(then)
    recorded["policy"]["share_percent"] = 50
    write_checkpoint(
        output / "other", sample_records(TABLES, 5), TABLES, training_data=SHARDS.digest("train"), config=recorded
    )
    config = config_at(changed(then, "cache.rows", 99), output / "other")
    told = r"policy\.share_percent: 50 then, 100 now .*cache\.rows: 0 then, 99 now \(the samples' order\)"
    with pytest.raises(CheckpointError, match=told):
        find_start(config, SHARDS)


def test_evaluations_that_an_order_goes_by_stay(output: Path) -> None:
    """At others the epoch's samples would have another order; where it is fixed, they may change."""
    told = r"train\.evaluate_every_steps: 3 then, 4 now \(the samples' order\)"
    for adapts in (True, False):
        then = changed(changed(settings(output), "policy.name", "fae"), "train.evaluate_every_steps", 3)
        then = replace(then, policy=replace(then.policy, settings=FaeSettings(adapt_share=adapts)))
        rows = SHARDS.digest("train")
        folder = output / str(adapts)
        write_checkpoint(folder, sample_records(TABLES, 5), TABLES, training_data=rows, config=to_document(then))
        now = config_at(changed(then, "train.evaluate_every_steps", 4), folder)
        with pytest.raises(CheckpointError, match=told) if adapts else nullcontext():
            find_start(now, SHARDS)


def test_checkpoints_that_samples_are_left_out_by_stay(output: Path) -> None:
    """Others of the segment take their places, so that batches depend on where it ends."""
    then = changed(settings(output), "policy.name", "slipstream")
    rows = SHARDS.digest("train")
    write_checkpoint(output / "o", sample_records(TABLES, 5), TABLES, training_data=rows, config=to_document(then))
    now = config_at(changed(then, "train.checkpoint_every_steps", 7), output / "o")
    with pytest.raises(CheckpointError, match=r"train\.checkpoint_every_steps: 0 then, 7 now \(the samples' order\)"):
        find_start(now, SHARDS)


BY_SEGMENTS = {
    "herald": (HeraldSettings(), "shares samples out by it: results differ in the last bits"),
    "hotline": (HotlineSettings(), "shares samples out by it: results differ in the last bits"),
    "het": (HetSettings(staleness=10), "lets trainers miss updates by it: results differ"),
}
"""Settings of policies whose results depend on where segments end, and what is said."""


@pytest.mark.parametrize("name", BY_SEGMENTS)
@pytest.mark.parametrize(
    ("key", "value"), [("train.checkpoint_every_steps", 7), ("train.evaluate", False), ("cache.rows", 99)]
)
def test_what_goes_by_the_ends_of_segments_is_said(output: Path, name: str, key: str, value: object) -> None:
    own, effect = BY_SEGMENTS[name]
    then = replace(settings(output), policy=PolicyConfig(name, own))
    data = {"training_data": SHARDS.digest("train"), "evaluation_data": SHARDS.digest("test")}
    write_checkpoint(output / "o", sample_records(TABLES, 5), TABLES, **data, config=to_document(then))
    start = find_start(config_at(then, output / "o"), SHARDS)
    assert start is not None
    assert changes_since(start.manifest, job_of(then), start.manifest.arithmetic) == []
    (change,) = changes_since(start.manifest, job_of(changed(then, key, value)), start.manifest.arithmetic)
    assert re.fullmatch(rf"{key}: .* -> .* \(policy\.name = '{name}' {effect}\)", change)


def test_nothing_goes_by_the_ends_of_segments_where_no_update_is_missed(output: Path) -> None:
    then = replace(settings(output), policy=PolicyConfig("het", HetSettings(staleness=0)))
    data = {"training_data": SHARDS.digest("train"), "evaluation_data": SHARDS.digest("test")}
    write_checkpoint(output / "o", sample_records(TABLES, 5), TABLES, **data, config=to_document(then))
    start = find_start(config_at(then, output / "o"), SHARDS)
    assert start is not None
    now = changed(then, "train.checkpoint_every_steps", 7)
    assert changes_since(start.manifest, job_of(now), start.manifest.arithmetic) == []


def test_an_end_that_is_no_end_of_a_segment_any_more_is_said_or_refused(output: Path) -> None:
    """A longer run has no segment that ends with the old one's last step, unless one is due there anyway."""
    for name, every in (("herald", 0), ("herald", 50), ("slipstream", 0), ("slipstream", 50), ("bagpipe", 0)):
        then = changed(changed(settings(output), "policy.name", name), "train.max_steps", 100)
        then = changed(changed(then, "train.epochs", 2), "train.checkpoint_every_steps", every)
        data = {"training_data": SHARDS.digest("train"), "evaluation_data": SHARDS.digest("test")}
        folder = output / f"{name}-{every}"
        write_checkpoint(folder, sample_records(TABLES, 5), TABLES, **data, config=to_document(then))
        longer = config_at(changed(then, "train.max_steps", 150), folder)
        told = r"train\.max_steps: 100 then, 150 now \(the samples' order\)"
        with pytest.raises(CheckpointError, match=told) if (name, every) == ("slipstream", 0) else nullcontext():
            start = find_start(longer, SHARDS)
            assert start is not None
            changes = changes_since(start.manifest, job_of(longer), start.manifest.arithmetic)
            assert [change.split(" (")[0] for change in changes] == (
                ["train.max_steps: 100 -> 150"] if (name, every) == ("herald", 0) else []
            )
