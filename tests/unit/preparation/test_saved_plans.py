"""Saved plans are those that a planner makes, byte for byte, and are refused for any other run."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import CapacityError, ConfigError, PlanFileError
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.planning.capacity import CacheNeed
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation import saved_plans
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.saved_plans import SavedPlans, find_need
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.plans import manifest as manifests
from bagpipe_hpc.storage.plans.manifest import MANIFEST_NAME, PLANS_NAME, PlansManifest, load_manifest, save_manifest
from bagpipe_hpc.tools.forecast import pace, saving
from bagpipe_hpc.tools.forecast.saving import Saved, save_plans
from bagpipe_hpc.tools.forecast.sweep import plan_all
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.drawing import share_of

TRAINERS = 2
SMALL = {
    "model.embedding_dim": "4",
    "train.batch_size": "60",
    "train.epochs": "2",
    "train.evaluate_every_steps": "4",
    "lookahead.batches": "5",
    "lookahead.group": "2",
    "optimizer.rows": "sgd",
    "data.block_rows": "64",
}
POLICIES = {
    "homes": [],
    "replicated": ["cache.sharing=replicated"],
    "versions": ["debug.verify_rows=true"],
    "over a grid": ["cache.exchange=grid"],
    "several widths": ["model.embedding_dim_of={ C3 = 2 }"],
    "a window that is cut": ["cache.rows=1500"],
    "a window beyond all segments": ["lookahead.batches=90"],
    "none": ["policy.name=none"],
    "scratchpipe": ["policy.name=scratchpipe", "cache.rows=4000"],
    "herald": ["policy.name=herald"],
    "hotline": ["policy.name=hotline", "policy.hot_rows=500", "policy.learning_batches=2"],
    "fae": ["policy.name=fae"],
    "het": ["policy.name=het"],
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved-plans")
    clicks, shards = folder / "clicks.tsv", folder / "shards"
    generate_clicks(600, clicks)
    prepare_clicks([str(clicks)], shards, PrepareSettings(min_count=1, rows_per_shard=300), lambda _: None)
    path = folder / "run.toml"
    path.write_text(f"[data]\npath = '{shards}'\n")
    return path


def run_of(config: Path, *overrides: str) -> Run:
    own = SMALL | {key: value for key, _, value in (text.partition("=") for text in overrides)}
    return prepare_run(load_config(config, [f"{key}={value}" for key, value in own.items()]))


def save(run: Run, folder: Path, trainers: int = TRAINERS) -> Saved:
    folder.mkdir(exist_ok=True)
    (outlook,) = plan_all(run, [trainers], [run.config.lookahead.batches], 0, lambda _: None)
    return save_plans(outlook, folder, lambda _: None)


def told(plans: Iterator[BatchPlan]) -> list[list[bytes]]:
    return [[part.tobytes() for group in plan.groups for part in group.encode()] for plan in plans]


@pytest.fixture(scope="module")
def plans(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    save(run_of(config), folder)
    return folder


@pytest.mark.parametrize("overrides", POLICIES.values(), ids=POLICIES)
def test_saved_plans_are_those_of_a_planner(overrides: Sequence[str], config: Path, tmp_path: Path) -> None:
    """Of every segment, with the window and the caches that a run measures by all its batches."""
    run = run_of(config, *overrides)
    found = save(run, tmp_path / "plans")
    reading = run_of(config, *overrides, f"train.plans={tmp_path / 'plans'}")
    saved, need = (
        SavedPlans(reading, TRAINERS),
        choose_window(run_of(config, *overrides, "cache.measure=all"), TRAINERS),
    )
    assert (saved.need.window, saved.need.groups) == (need.window, need.groups)
    assert saved.need.is_exact
    assert find_need(reading, TRAINERS) == saved.need
    policy = run.policy(TRAINERS)
    planner = policy.planner(need.window, need.groups)

    def planned(segment: Segment, *, ends: bool = False) -> Iterator[BatchPlan]:
        batches = iter(()) if ends else run.batches(segment)
        start = {"training": segment.is_training, "first_step": segment.first_step}
        return plan_segment(planner, batches, policy.start_slicing(), **start)

    assert {segment.is_training for segment in run.schedule} == {True, False}
    for segment in run.schedule:
        assert told(saved.plans(segment)) == told(planned(segment))
    for segment in run.schedule[:2]:
        assert told(saved.plans(segment, ends=True)) == told(planned(segment, ends=True))
    assert found.bytes == (tmp_path / "plans" / PLANS_NAME).stat().st_size
    assert found.plans == sum(segment.batches + 1 for segment in run.schedule)
    saved.close()


def test_a_window_that_the_cache_has_no_room_for_is_saved_cut(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And measured by all batches, as the caches that the plans are made for must be."""
    measured: list[str] = []

    def noted(run: Run, trainers: int) -> CacheNeed:
        measured.append(run.config.cache.measure)
        return choose_window(run, trainers)

    monkeypatch.setattr(saving, "choose_window", noted)
    save(run_of(config, "cache.rows=1500", "cache.measure=beginning"), tmp_path)
    manifest = load_manifest(tmp_path)
    assert manifest.lookahead == 3, "of 5"
    assert sum(slots.shared + slots.private for slots in manifest.slots) <= 1500
    assert measured == ["all"]


STALE = {
    "train.seed=9": "train.seed: 1 there, 9 here",
    "train.batch_size=50": "train.batch_size: 60 there, 50 here",
    "lookahead.batches=6": "lookahead.batches: 5 there, 6 here",
    "lookahead.group=1": "lookahead.group: 2 there, 1 here",
    "data.block_rows=32": "data.block_rows: 64 there, 32 here",
    "data.shuffle=false": "data.shuffle: True there, False here",
    "data.lanes=3": "data.lanes: ",
    "cache.rows=100000": "cache.rows: 0 there, 100000 here",
    "cache.sharing=replicated": "cache.sharing: 'home' there, 'replicated' here",
    "policy.name=scratchpipe": "policy.name: 'bagpipe' there, 'scratchpipe' here",
    "debug.verify_rows=true": "debug.verify_rows: False there, True here",
    "model.embedding_dim_of={ C3 = 2 }": "model.embedding_dim_of, tables of each width: ",
    "train.max_steps=7": "train.max_steps: 0 there, 7 here",
    "train.evaluate_every_steps=5": "train.evaluate_every_steps: 4 there, 5 here",
    "train.evaluate=false": "train.evaluate_every_steps: 4 there, 0 here",
    "train.checkpoint_every_steps=3": "train.checkpoint_every_steps: 0 there, 3 here",
    "train.epochs=3": "train.epochs: 2 there, 3 here",
}


@pytest.mark.parametrize("override", STALE)
def test_plans_of_another_run_are_refused_by_name(override: str, config: Path, plans: Path) -> None:
    more = ["train.evaluate_every_steps=0"] if override == "train.evaluate=false" else []
    run = run_of(config, override, *more, f"train.plans={plans}")
    with pytest.raises(PlanFileError) as refused:
        SavedPlans(run, TRAINERS)
    assert str(plans / MANIFEST_NAME) in str(refused.value)
    assert STALE[override] in str(refused.value)
    assert "save the plans again (bagpipe plan --save), or leave out train.plans" in str(refused.value)


def test_every_fact_counts(config: Path, plans: Path, tmp_path: Path) -> None:
    saved = {field.name: getattr(load_manifest(plans), field.name) for field in fields(PlansManifest)}
    given = {
        name: value for name, value in saved.items() if name not in ("schema_version", "version", "layout", "digest")
    }
    for name in given["facts"]:
        save_manifest(tmp_path, **given | {"facts": given["facts"] | {name: "another"}})
        with pytest.raises(PlanFileError, match=rf"another run: {re.escape(name)}: 'another' there, "):
            SavedPlans(run_of(config, f"train.plans={tmp_path}"), TRAINERS)


def test_plans_for_other_trainers_or_shards_are_refused(config: Path, plans: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match="number of trainers: 2 there, 3 here"):
        SavedPlans(run_of(config, f"train.plans={plans}"), 3)
    clicks, shards = tmp_path / "clicks.tsv", tmp_path / "shards"
    generate_clicks(600, clicks, seed=5)
    prepare_clicks([str(clicks)], shards, PrepareSettings(min_count=1), lambda _: None)
    with pytest.raises(PlanFileError, match=r"data\.path, digest of the training shards: '.* there, '.* here"):
        SavedPlans(run_of(config, f"data.path={shards}", f"train.plans={plans}"), TRAINERS)


@pytest.mark.parametrize(
    "override",
    [
        "optimizer.rows=adam",
        "train.output=elsewhere",
        "train.keep_best=true",
        "train.stop_after=2",
        "roles.servers=3",
        "model.embedding_dim=8",
        "cache.measure=all",
        "data.verify=quick",
        "train.max_steps=100000",
    ],
)
def test_what_decides_no_plan_may_change(override: str, config: Path, plans: Path) -> None:
    SavedPlans(run_of(config, override, f"train.plans={plans}"), TRAINERS).close()


def test_a_policy_that_orders_by_the_size_of_rows_tells(config: Path, tmp_path: Path) -> None:
    """Which rows are hot goes by it, and by a file; the first batch shows any other order."""
    save(run_of(config, "policy.name=fae"), tmp_path)
    same = run_of(config, "policy.name=fae", "train.epochs=2", f"train.plans={tmp_path}")
    SavedPlans(same, TRAINERS).close()
    manifest = load_manifest(tmp_path)
    assert "the samples' order, CRC-32 of the first batch" in manifest.facts


def test_a_policy_that_goes_by_a_file_tells(config: Path, tmp_path: Path) -> None:
    profile = tmp_path / "hot.h5"
    settings_ = ["policy.name=fae", f"policy.profile={profile}", f"train.plans={tmp_path / 'plans'}"]
    run = run_of(config, *settings_)
    save(run, tmp_path / "plans")
    key = "policy.profile, the file's SHA-256"
    assert key in load_manifest(tmp_path / "plans").facts
    profile.unlink()
    with pytest.raises(PlanFileError, match=rf"{key}: '\w+' there"):
        SavedPlans(run_of(config, *settings_, "policy.hot_rows=9"), TRAINERS)


def test_plans_that_depend_on_weights_cannot_be_saved(config: Path, plans: Path) -> None:
    watching = ["policy.hot_rows=7000", "policy.sample_percent=100", "policy.first_snapshot=1"]
    run = run_of(config, "policy.name=slipstream", *watching, "train.batch_size=20", f"train.plans={plans}")
    with pytest.raises(ConfigError, match=r"policy\.name = 'slipstream': goes by the weights"):
        saved_plans.require_savable(run)
    with pytest.raises(ConfigError, match="its plans cannot be saved"):
        SavedPlans(run, TRAINERS)


def test_plans_that_depend_on_evaluations_cannot_be_saved(config: Path, plans: Path) -> None:
    run = run_of(config, "policy.name=fae", "policy.adapt_share=true", f"train.plans={plans}")
    with pytest.raises(ConfigError, match=r"policy\.name = 'fae': orders samples by evaluations while the run trains"):
        SavedPlans(run, TRAINERS)


def test_plans_of_a_run_from_its_start_are_not_those_of_later_rows(config: Path, plans: Path) -> None:
    run = run_of(config, f"train.plans={plans}")
    of_earlier_rows = SimpleNamespace(step=40, data_step=0, training_data="of others", vocabularies=None)
    schedule = tuple(replace(segment, first_step=40 + segment.first_step) for segment in run.schedule)
    start = SimpleNamespace(manifest=of_earlier_rows)
    later = Run(run.config, run.manifest, schedule, start)  # type: ignore[arg-type]
    with pytest.raises(PlanFileError, match=r"goes on with later rows from step 40: leave out train\.plans"):
        SavedPlans(later, TRAINERS)


def test_a_run_goes_on_where_a_saved_segment_ends(config: Path, plans: Path) -> None:
    run = run_of(config, f"train.plans={plans}")
    later = Run(run.config, run.manifest, run.schedule[3:])
    saved = SavedPlans(later, TRAINERS)
    assert len(told(saved.plans(later.schedule[0]))) == later.schedule[0].batches + 1
    saved.close()
    within = run_of(config, f"train.plans={plans}")
    first = within.schedule[0]
    cut = [Segment(**{**vars(first), "first_batch": 1, "first_step": 1, "batches": first.batches - 1})]
    same_rows = {"training_data": within.manifest.digest("train"), "vocabularies": None}
    start = SimpleNamespace(manifest=SimpleNamespace(step=1, data_step=0, **same_rows))
    run_within = Run(within.config, within.manifest, (*cut, *within.schedule[1:]), start)  # type: ignore[arg-type]
    with pytest.raises(PlanFileError, match=r"from step 1 on, and nothing begins there: the checkpoint .* of step 1"):
        SavedPlans(run_within, TRAINERS)


def test_damage_is_found_before_the_run(config: Path, plans: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    shutil.copytree(plans, folder)
    content = bytearray((folder / PLANS_NAME).read_bytes())
    content[len(content) // 2] ^= 4
    (folder / PLANS_NAME).write_bytes(content)
    with pytest.raises(PlanFileError, match=r"plans\.bin: is damaged .*save the plans again"):
        find_need(run_of(config, f"train.plans={folder}"), TRAINERS)
    find_need(run_of(config, f"train.plans={folder}", "data.verify=quick"), TRAINERS)  # sizes alone
    (folder / PLANS_NAME).write_bytes(content[:-8])
    with pytest.raises(PlanFileError, match=f"has {len(content) - 8} bytes instead of {len(content)}"):
        find_need(run_of(config, f"train.plans={folder}", "data.verify=quick"), TRAINERS)
    (folder / PLANS_NAME).unlink()
    with pytest.raises(PlanFileError, match="No such file"):
        find_need(run_of(config, f"train.plans={folder}"), TRAINERS)


def test_a_folder_without_plans_is_refused(config: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match=r"train\.plans = '.*': has no plans\.json"):
        SavedPlans(run_of(config, f"train.plans={tmp_path}"), TRAINERS)


@settings(max_examples=share_of(60), deadline=None)
@given(data=st.data())
def test_a_damaged_manifest_is_refused_or_says_the_same(data: st.DataObject, plans: Path) -> None:
    """Whatever is changed in it: only what JSON does not read, such as spaces, may be another."""
    whole = (plans / MANIFEST_NAME).read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    length = data.draw(st.sampled_from([0, 1, 1, 7]))
    folder = plans.with_name("damaged-manifest")
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST_NAME).write_bytes(whole[:place] + data.draw(st.binary(max_size=3)) + whole[place + length :])
    try:
        found = load_manifest(folder)
    except PlanFileError as error:
        said = str(error)
    else:
        assert found == load_manifest(plans)
        return
    assert MANIFEST_NAME in said
    assert "save the plans again" in said


@pytest.mark.parametrize(
    ("name", "told"), [("__version__", "version 0.1.0 "), ("record_layout", "this is 0.1.0 (other)")]
)
def test_plans_of_another_version_are_refused(
    name: str, told: str, plans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, name, "9.9" if name == "__version__" else lambda: "other")
    with pytest.raises(PlanFileError) as refused:
        load_manifest(plans)
    assert told in str(refused.value)


def test_what_is_half_saved_is_no_plan(
    config: Path, plans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier manifest goes first; what a killed process left goes the next time."""
    folder = tmp_path / "plans"
    shutil.copytree(plans, folder)
    (folder / ".plans.bin.1.partial").touch()
    run = run_of(config)
    (outlook,) = plan_all(run, [TRAINERS], [5], 0, lambda _: None)

    def killed(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pace, "_EVERY_S", -1.0)
    with pytest.raises(KeyboardInterrupt):
        save_plans(outlook, folder, killed)
    assert [path.name for path in folder.iterdir()] == [PLANS_NAME]
    with pytest.raises(PlanFileError, match="saving them was cut short"):
        load_manifest(folder)
    save_plans(outlook, folder, lambda _: None)
    assert sorted(path.name for path in folder.iterdir()) == [PLANS_NAME, MANIFEST_NAME]
    assert (folder / MANIFEST_NAME).read_text() == (plans / MANIFEST_NAME).read_text()
    assert json.loads((folder / MANIFEST_NAME).read_text())["trainers"] == TRAINERS


def test_plans_are_saved_by_one_at_a_time(config: Path, plans: Path, tmp_path: Path) -> None:
    """And a file of plans beside the manifest of another run is refused, though it has the same size."""
    folder = tmp_path / "plans"
    shutil.copytree(plans, folder)
    with saving.alone_in(folder), pytest.raises(ConfigError, match=r"another run uses .* choose another --save"):
        save(run_of(config), folder)
    other = run_of(config, "cache.rows=100000", f"train.plans={folder}")
    (outlook,) = plan_all(other, [TRAINERS], [5], 0, lambda _: None)
    save_plans(outlook, folder, lambda _: None)
    assert (folder / PLANS_NAME).stat().st_size == (plans / PLANS_NAME).stat().st_size
    shutil.copy(plans / PLANS_NAME, folder / PLANS_NAME)
    with closing(SavedPlans(other, TRAINERS)) as saved, pytest.raises(PlanFileError, match="or of another run"):
        saved.verify(other.schedule)


def test_a_disk_without_room_is_told_first(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for each plan, closing ones included, as for one of training."""
    (outlook,) = plan_all(run_of(config), [TRAINERS], [5], 0, lambda _: None)
    plans = save_plans(outlook, tmp_path, lambda _: None).plans
    saved = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    enough = int(plans * outlook.traffic.plan_bytes)
    monkeypatch.setattr(saving.shutil, "disk_usage", lambda _: SimpleNamespace(free=enough - 1))
    with pytest.raises(CapacityError, match=r"--save .*: plans take about .*B there, and .* are free"):
        save_plans(outlook, tmp_path, lambda _: None)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == saved, "the earlier plans are there"
    monkeypatch.setattr(saving.shutil, "disk_usage", lambda _: SimpleNamespace(free=enough + 1))
    save_plans(outlook, tmp_path, lambda _: None)
