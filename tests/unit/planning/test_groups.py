"""Where tables have different widths, each group of them is planned as if it were alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.config.schema import (
    CacheConfig,
    Config,
    DataConfig,
    KernelsConfig,
    ModelConfig,
    PolicyConfig,
    TablesConfig,
    TrainConfig,
)
from bagpipe_hpc.errors import BagpipeError, ConfigError, DataError, PlanError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.plan.slices import BatchSlices
from bagpipe_hpc.planning import groups
from bagpipe_hpc.planning.checking.executor import PlanExecutor
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.groups import GroupedPlanner, RunPolicy, slots_by_group
from bagpipe_hpc.planning.lookahead.policy import LookaheadPolicy
from bagpipe_hpc.planning.planner import writing_threads_of
from bagpipe_hpc.planning.segment_planner import measure_segment, plan_segment
from bagpipe_hpc.planning.slots import UNLIMITED, CacheSlots
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.run.run import Run
from tests.ragged_shards import write_ragged

WINDOW = Window(4, 2)


def made(folder: Path, **widths: int) -> Run:
    """100 samples with a user, a history, an item, which share a table, and genres; batches of 16."""
    write_ragged(folder)
    train = TrainConfig(batch_size=16, output=str(folder / "run"))
    model = ModelConfig(embedding_dim=8, embedding_dim_of=widths)
    return prepare_run(Config(data=DataConfig(path=str(folder), block_rows=16), train=train, model=model))


def encoded(plan: BatchPlan) -> list[bytes]:
    return [record.encode().tobytes() for record in (plan.shared, *plan.trainers)]


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_plan_is_those_of_its_groups_side_by_side(tmp_path: Path, backend: str) -> None:
    if backend == "native" and not shared_library.is_built("planner"):
        pytest.skip("_planner.so is not built")
    run = made(tmp_path, user=3, genre=3)
    run = replace(run, config=replace(run.config, kernels=KernelsConfig(backend=backend)))
    batches = list(run.batches(run.schedule[0]))
    policy = run.policy(3)
    plans = list(plan_segment(policy.planner(WINDOW), batches, policy.start_slicing()))
    assert [group.tables.tables.names for group in run.groups] == [("user", "genre"), ("item",)]
    for number, (group, part) in enumerate(zip(run.groups, policy.parts, strict=True)):
        own = [group.look_ups.of(rows) for rows in batches]
        alone = list(plan_segment(part.planner(WINDOW), own, policy.start_slicing()))
        assert [encoded(plan.groups[number]) for plan in plans] == [encoded(plan) for plan in alone]
        check_policy(part, own, WINDOW)


@pytest.mark.skipif(not shared_library.is_built("planner"), reason="_planner.so is not built")
def test_plans_of_all_groups_are_written_while_later_batches_are_decided(tmp_path: Path) -> None:
    """The same as those of one thread."""
    run = made(tmp_path, user=3, genre=3)
    found = []
    for threads in (1, 8):
        kernels, cache = KernelsConfig(planner_threads=threads), CacheConfig(sharing="home")
        policy = replace(run, config=replace(run.config, kernels=kernels, cache=cache)).policy(3)
        planner = policy.planner(WINDOW)
        assert writing_threads_of(planner) == (0 if threads == 1 else 2)
        plans = plan_segment(planner, run.batches(run.schedule[0]), policy.start_slicing())
        found.append([[encoded(group) for group in plan.groups] for plan in plans])
    assert len(found[0]) > 3
    assert found[0] == found[1]


@pytest.mark.parametrize(("name", "most_missing"), [("herald", None), ("het", 300)])
def test_policies_that_hold_rows_do_so_in_each_group(tmp_path: Path, name: str, most_missing: int | None) -> None:
    """Their plans train each group's tables, whichever samples the policy of all tables gives to whom."""
    run = made(tmp_path, user=3, genre=3)
    run = replace(run, config=replace(run.config, policy=PolicyConfig(name), cache=CacheConfig(rows=400)))
    policy, batches, given = run.policy(3), list(run.batches(run.schedule[0])), []
    slicing = policy.start_slicing()

    def noted(rows: Bags) -> BatchSlices:
        given.append(slicing(rows))
        return given[-1]

    measured = policy.planner(policy.window(WINDOW))
    measure_segment(measured, batches, policy.start_slicing())
    planner = policy.planner(policy.window(WINDOW), slots_by_group(measured))
    plans = list(plan_segment(planner, batches, noted))
    for number, (group, slots) in enumerate(zip(run.groups, slots_by_group(measured), strict=True)):
        own = [group.look_ups.of(rows) for rows in batches]
        *alone, closing = [plan.groups[number] for plan in plans]
        alone = [plan.with_samples(slices) for plan, slices in zip(alone, given, strict=True)]
        executor = PlanExecutor(
            group.tables.total_rows, 3, slots.shared, slots.private, eager=True, most_missing=most_missing
        )
        executor.run([*alone, closing], own)
        np.testing.assert_array_equal(executor.store, executor.wanted_table(own))


@pytest.mark.parametrize("name", ["herald", "het", "scratchpipe"])
def test_a_segment_may_end_with_rows_of_some_groups_alone(tmp_path: Path, name: str) -> None:
    """Wherever it ends: rows that its last batch does not use can be left of some tables, and of others not."""
    run = made(tmp_path, genre=3)
    run = replace(run, config=replace(run.config, policy=PolicyConfig(name), cache=CacheConfig(rows=400)))
    batches, policy, left = list(run.batches(run.schedule[0])), run.policy(4), set()
    for count in range(1, len(batches) + 1):
        planner = policy.planner(policy.window(WINDOW))
        *_, closing = plan_segment(planner, batches[:count], policy.start_slicing())
        assert len({plan.shared.retire_group for plan in closing.groups}) == 1
        left.add(tuple(any(part.rows_written for part in plan.trainers) for plan in closing.groups))
    assert (True, False) in left or name != "herald"


def test_policies_are_told_how_many_rows_fit(tmp_path: Path) -> None:
    """Those of a group have a part by its look-ups, of which a user and a genre have some and an item most."""
    run = made(tmp_path, user=3, genre=3)
    run = replace(run, config=replace(run.config, cache=CacheConfig(rows=1000)))
    whole, parts = made(tmp_path).policy(2).parts[0].facts, [part.facts for part in run.policy(2).parts]
    assert whole.cache_rows == 0
    shares = whole.batch_look_ups / whole.batch_look_ups.sum()
    assert [part.cache_rows for part in parts] == [int(1000 * (shares[0] + shares[2])), int(1000 * shares[1])]


def test_caches_are_measured_for_each_group(tmp_path: Path) -> None:
    """And `cache.rows` counts the slots of all of them."""
    need = choose_window(made(tmp_path / "several", user=3, genre=3), trainers=2)
    alone = choose_window(made(tmp_path / "one"), trainers=2)
    assert len(need.groups) == 2
    assert need.total_rows == sum(group.total for group in need.groups)
    assert alone.total_rows <= need.total_rows  # peaks of the groups need not be at the same batch
    several = made(tmp_path / "small", user=3, genre=3)
    small = replace(
        several, config=replace(several.config, cache=replace(several.config.cache, rows=need.total_rows - 1))
    )
    fitting = choose_window(small, trainers=2)
    assert fitting.total_rows < need.total_rows
    assert fitting.window.lookahead < need.window.lookahead


class Retiring:
    """A planner that retires a group of batches in its first plan."""

    window = WINDOW

    def __init__(self, plan: BatchPlan, group: int) -> None:
        self._plan = replace(plan, shared=replace(plan.shared, retire_group=group))

    def plan(self, _: int) -> BatchPlan:
        return self._plan


def test_groups_that_retire_different_batches_are_refused(tmp_path: Path) -> None:
    run = made(tmp_path)
    policy = run.policy(1)
    plan = next(plan_segment(policy.planner(WINDOW), run.batches(run.schedule[0]), policy.start_slicing()))
    parts: list[Any] = [Retiring(plan, 4), Retiring(plan, 4), Retiring(plan, 2)]
    assert len(GroupedPlanner(parts[:2], ()).plan(0).groups) == 2
    with pytest.raises(PlanError, match="batch 0: the policy retires group 4 of some tables and 2 of others"):
        GroupedPlanner(parts, ()).plan(0)


class TakesNoSlots(LookaheadPolicy):
    def planner(self, window: Window) -> Any:  # type: ignore[override]
        raise AssertionError(window)


class ForgetsPlanner(LookaheadPolicy):
    def planner(self, window: Window, shared: int = UNLIMITED, private: int = UNLIMITED) -> Any:  # noqa: ARG002
        return None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (TakesNoSlots, r"TakesNoSlots': planner fails: TypeError: .*takes 2 positional arguments but 4 were given"),
        (ForgetsPlanner, r"ForgetsPlanner: planner gives None: return a Planner, such as a RulePlanner"),
    ],
)
def test_a_policy_that_makes_no_planner_is_named(tmp_path: Path, kind: type, message: str) -> None:
    run = made(tmp_path)
    policy = replace(run.config, policy=PolicyConfig(f"{__name__}:{kind.__name__}"))
    with pytest.raises(BagpipeError, match=message):
        replace(run, config=policy).policy(2).planner(WINDOW)


class FailsWhenAsked(LookaheadPolicy):
    def _fail(self, *_: object) -> Any:
        raise KeyError("no such setting")

    smaller_state = property(_fail)  # type: ignore[assignment]
    window = least_bytes = remark = expected_slots = _fail


@pytest.mark.parametrize(
    ("asked", "ask"),
    [
        ("smaller_state", lambda policy: policy.smaller_state),
        ("window", lambda policy: policy.window(WINDOW)),
        ("least_bytes", lambda policy: policy.least_bytes(WINDOW, 9)),
        ("remark", lambda policy: policy.remark(9)),
        ("expected_slots", lambda policy: policy.expected_slots([CacheSlots(1, 1)])),
    ],
)
def test_a_policy_that_fails_when_it_is_asked_is_named(
    tmp_path: Path, asked: str, ask: Callable[[RunPolicy], object]
) -> None:
    run = made(tmp_path)
    policy = replace(run.config, policy=PolicyConfig(f"{__name__}:FailsWhenAsked"))
    with pytest.raises(BagpipeError, match=rf"FailsWhenAsked': {asked} fails: KeyError: 'no such setting'"):
        ask(replace(run, config=policy).policy(2))


class GivesNumbers(LookaheadPolicy):
    def window(self, wanted: Window) -> Any:
        return wanted.lookahead, wanted.group

    def remark(self, most_batches: int) -> str:
        return f"{most_batches} batches are many"


def test_a_window_that_is_none_is_refused_and_a_remark_passed_on(tmp_path: Path) -> None:
    run = made(tmp_path)
    policy = replace(run.config, policy=PolicyConfig(f"{__name__}:GivesNumbers"))
    made_of_it = replace(run, config=policy).policy(2)
    with pytest.raises(PlanError, match=r"GivesNumbers\.window gives \(4, 2\): return a Window\(lookahead, group\)"):
        made_of_it.window(WINDOW)
    assert made_of_it.remark(9) == "9 batches are many"


def test_each_group_s_cache_is_expected_by_its_own_beginning(tmp_path: Path) -> None:
    policy = made(tmp_path, user=3, genre=3).policy(2)
    beginning = [CacheSlots(8, 20), CacheSlots(12, 4)]
    first, second = (part.expected_slots(slots) for part, slots in zip(policy.parts, beginning, strict=True))
    assert policy.expected_slots(beginning) == (first, second)
    assert first != second


def test_as_many_plans_are_written_beside_as_each_group_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "writing_threads_of", lambda part: part.threads)
    parts: list[Any] = [SimpleNamespace(threads=count) for count in (3, 1, 2)]
    assert GroupedPlanner(parts, ()).writing_threads == 1


def test_a_wrong_row_is_named_in_its_group(tmp_path: Path) -> None:
    run = made(tmp_path, item=3)
    (batch, *_) = run.batches(run.schedule[0])
    items = np.flatnonzero(batch.columns == 2)
    batch.values[items[4]] = run.table_offsets[2] + 1  # that of a genre
    with pytest.raises(
        DataError, match=r"of features 1, 2 alone, .* sample 4, feature 1.*: the feature's table has rows 0"
    ):
        run.policy(2).planner(WINDOW).load(batch)


def test_samples_are_told_once(tmp_path: Path) -> None:
    """In the first group's part, where a trainer looks for them."""
    run = made(tmp_path, user=3)
    own = [np.asarray([3, 1]), np.arange(16)[[0, 2, *range(4, 16)]]]
    policy = run.policy(2)
    policy.parts[0].assignment = lambda: lambda rows: own if rows.samples == 16 else None  # type: ignore[method-assign]
    slicing = policy.parts[0].start_slicing()
    first = next(plan_segment(policy.planner(WINDOW), run.batches(run.schedule[0]), slicing))
    assert [part.samples.tolist() for part in first.trainers if part.samples is not None] == [
        part.tolist() for part in own
    ]
    (other,) = first.others
    assert all(part.samples is None for part in other.trainers)
    assert [part.positions.size for part in first.trainers] == [2, 14]  # a user each


def test_whole_tables_of_every_width_are_shared_out(tmp_path: Path) -> None:
    """A server that holds the only table of a width gets none of the next one."""
    run = made(tmp_path, user=2, genre=3)
    run = replace(run, config=replace(run.config, tables=TablesConfig(placement="by_table")))
    assert [[part.rows_on(server) for server in range(3)] for part in run.partitions(3)] == [
        [23, 0, 0],
        [0, 40, 0],
        [0, 0, 7],
    ]


def test_a_width_of_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.embedding_dim_of = .*: 'usr' is no table; the data has user, item"):
        made(tmp_path, usr=3)


def test_a_run_says_what_widths_cost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Records have a number of state beside the weights: rows of 4 and of 9 numbers, or all of 9."""
    caplog.set_level("INFO")
    run = made(tmp_path, item=3)
    rows = dict(zip(run.tables.names, run.tables.rows, strict=True))
    narrow, wide = rows["item"], rows["user"] + rows["genre"]
    said = f"rows of 2 widths ({wide} of 8, {narrow} of 3 numbers): "
    assert said in caplog.text
    assert f"({(narrow + wide) * 9 / (narrow * 4 + wide * 9):.2f} times)" in caplog.text
