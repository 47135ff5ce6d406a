"""What a run that goes on does in another way than the one before is said, and nothing else."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import to_document
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.preparation.resume import find_start
from bagpipe_hpc.run.start.resumed_settings import CHANGEABLE, ROUNDING, changes_since
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.entries import ShardInfo
from tests.unit.checkpoint_samples import sample_records, write_checkpoint
from tests.unit.resumed_runs import SHARDS, TABLES, settings
from tests.unit.run.start.settings_of_runs import ARITHMETIC, OTHER, OWN_CHANGEABLE, RATE_SECTIONS, changed, job_of


def test_who_shares_samples_out_in_another_way_than_training_is_told(output: Path) -> None:
    then = changed(settings(output), "policy.name", "herald")
    of_this_data = {"config": to_document(then), "training_data": SHARDS.digest("train")}
    write_checkpoint(output / "o", sample_records(TABLES, 5), TABLES, **of_this_data)
    manifest = load_checkpoint(output / "o" / "checkpoints" / "step-00000100").manifest

    def said(config: Config, trainers: int) -> list[str]:
        run = replace(job_of(config), trains=False)
        return changes_since(manifest, run, replace(manifest.arithmetic, trainers=trainers))

    trained_by = manifest.arithmetic.trainers
    assert said(then, trained_by) == []
    (change,) = said(then, trained_by + 1)
    way = f"that of policy.name = 'herald' with {trained_by} trainers"
    assert change == f"way of sharing samples out: {way} -> another (the last bits may differ)"
    assert said(settings(output), trained_by) == [change]


def test_nothing_is_said_where_nothing_changed(output: Path) -> None:
    start = find_start(settings(output), SHARDS)
    assert start is not None
    free = changed(changed(settings(output), "lookahead.batches", 3), "kernels.backend", "reference")
    assert changes_since(start.manifest, job_of(free), ARITHMETIC) == []


@pytest.mark.parametrize(
    "key", [key for key in (*CHANGEABLE, *OWN_CHANGEABLE, *ROUNDING) if not key.startswith(RATE_SECTIONS)]
)
def test_what_may_change_is_said(output: Path, key: str) -> None:
    config = changed(settings(output), key, OTHER[key])
    start = find_start(config, SHARDS)
    assert start is not None
    (change,) = changes_since(start.manifest, job_of(config), ARITHMETIC)
    assert change.startswith(f"{key}: ")
    assert " -> " in change


def test_a_setting_of_a_policys_own_is_said(output: Path) -> None:
    before = changed(settings(output), "policy.name", "herald")
    manifest = replace(load_checkpoint(output).manifest, config=json.loads(json.dumps(to_document(before))))
    (change,) = changes_since(manifest, job_of(changed(before, "policy.on_demand", False)), ARITHMETIC)
    assert change == "policy.on_demand: True -> False"


@pytest.mark.parametrize("section", [name.removesuffix(".") for name in RATE_SECTIONS])
@pytest.mark.parametrize(
    ("decay", "name", "value"),
    [
        ("cosine", "decay", "polynomial"),
        ("cosine", "warmup_steps", 5),
        ("cosine", "decay_start", 7),
        ("cosine", "decay_steps", 200),
        ("cosine", "end_factor", 0.5),
        ("polynomial", "power", 1.0),
        ("step", "gamma", 0.5),
    ],
)
def test_another_schedule_of_the_rate_is_said(output: Path, section: str, decay: str, name: str, value: object) -> None:
    kind = type(getattr(Config(), section))
    before = kind(decay=decay, decay_steps=100)
    then, now = (replace(settings(output), **{section: part}) for part in (before, replace(before, **{name: value})))
    manifest = replace(load_checkpoint(output).manifest, config=json.loads(json.dumps(to_document(then))))
    (change,) = changes_since(manifest, job_of(now), ARITHMETIC)
    assert change == f"{section}.{name}: {getattr(before, name)!r} -> {value!r}"


def test_a_checkpoint_from_before_there_were_schedules_had_a_constant_rate(output: Path) -> None:
    recorded = to_document(settings(output))
    for section in RATE_SECTIONS:
        del recorded[section.removesuffix(".")]
    manifest = replace(load_checkpoint(output).manifest, config=recorded)
    assert changes_since(manifest, job_of(settings(output)), ARITHMETIC) == []


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("trainers", 3, "number of trainers: 2 -> 3"),
        ("linear", "onednn", r"kernels\.linear\): torch -> onednn"),
        ("device", "cuda", r"train\.device\): cpu -> cuda"),
        ("threads", 4, r"train\.threads\): 1 -> 4"),
    ],
)
def test_what_changes_the_last_bits_is_said(output: Path, field: str, value: object, what: str) -> None:
    start = find_start(settings(output), SHARDS)
    assert start is not None
    (change,) = changes_since(start.manifest, job_of(settings(output)), replace(ARITHMETIC, **{field: value}))
    assert re.search(what, change)
    assert "last bits" in change


def test_other_test_rows_are_said(output: Path) -> None:
    other = replace(SHARDS, test=(ShardInfo("test-00000.h5", 5, 1, 1, "3" * 64),))
    start = find_start(settings(output), other)
    assert start is not None
    (change,) = changes_since(start.manifest, job_of(settings(output), other), ARITHMETIC)
    assert "test rows" in change


def test_a_change_without_effect_is_said_as_such(output: Path) -> None:
    before = changed(settings(output), "optimizer.dense", "Rprop")
    manifest = replace(load_checkpoint(output).manifest, config=json.loads(json.dumps(to_document(before))))
    (change,) = changes_since(manifest, job_of(changed(before, "optimizer.dense_lr", 0.5)), ARITHMETIC)
    assert "Rprop takes its lr at the start of a training only" in change
    options = changed(settings(output), "optimizer.dense_options", {"initial_accumulator_value": 0.1})
    (change,) = changes_since(load_checkpoint(output).manifest, job_of(options), ARITHMETIC)
    assert "Adagrad takes its initial_accumulator_value at the start" in change


def test_a_change_that_acts_a_step_late_is_said_as_such(output: Path) -> None:
    before = changed(settings(output), "optimizer.dense", "ASGD")
    manifest = replace(load_checkpoint(output).manifest, config=json.loads(json.dumps(to_document(before))))
    (change,) = changes_since(manifest, job_of(changed(before, "optimizer.dense_lr", 0.5)), ARITHMETIC)
    assert change.endswith("-> 0.5 (ASGD takes its lr a step late)")
    options = changed(before, "optimizer.dense_options", {"alpha": 0.5, "weight_decay": 0.1})
    (change,) = changes_since(manifest, job_of(options), ARITHMETIC)
    assert change.endswith(" (ASGD takes its alpha a step late)")
    options = changed(before, "optimizer.dense_options", {"weight_decay": 0.1})
    (change,) = changes_since(manifest, job_of(options), ARITHMETIC)
    assert "late" not in change
