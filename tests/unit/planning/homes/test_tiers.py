"""Rows in tiers train as plain training does, each is where its tier says, and each rule has a mutant that shows."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import PlanError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.batch_plan import BatchPlan, TrainerPlan
from bagpipe_hpc.plan.exchange import Exchange, Hosted
from bagpipe_hpc.planning.batch_rows import Bools, LoadedBatch
from bagpipe_hpc.planning.checking.policy_check import check_policy
from bagpipe_hpc.planning.homes.planner import Held
from bagpipe_hpc.planning.homes.slots import UsedBatch
from bagpipe_hpc.planning.homes.tiers import TieredSlots
from bagpipe_hpc.planning.lookahead.rules import LookaheadPlanner
from bagpipe_hpc.planning.planner import Planner
from bagpipe_hpc.planning.policies.pinned.policy import PinnedPolicy, PinnedTieredPlanner
from bagpipe_hpc.planning.policies.pinned.settings import PinnedSettings
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.flexshard.tiers import Links
from bagpipe_hpc.rows.placements.table_plan import write_plan
from bagpipe_hpc.simulation.batch_load import BatchLoad, Hop
from bagpipe_hpc.tools.policy_comparison.traffic import TrafficCount
from tests.drawing import share_of
from tests.unit.planning.drawn_bags import skewed_batches
from tests.unit.planning.tiered_plans import EVERYWHERE, HOSTED, NAMES, TABLES, made, plan_file


@settings(max_examples=share_of(12), deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (6, 3)]),
    st.sampled_from([(1, 1), (2, 1), (5, 2), (40, 10)]),
    st.sampled_from(["direct", "grid"]),
    st.booleans(),
    st.lists(st.integers(0, 99), unique=True, max_size=60),
    st.integers(0, 60),
)
def test_it_trains_as_plain_training_does(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    world: tuple[int, int],
    window: tuple[int, int],
    exchange: str,
    verify: bool,
    several: list[int],
    first_hosted: int,
) -> None:
    trainers, hosts = world
    everywhere, hosted = several[:first_hosted], several[first_hosted:]
    path = plan_file(tmp_path_factory.mktemp("plans") / "plan.npz", hosts, everywhere, hosted)
    policy = made(path, trainers, exchange=exchange, verify=verify)
    check_policy(policy, skewed_batches(seed, TABLES), Window(*window))


def plans_of(policy: Policy) -> list[BatchPlan]:
    return list(plan_segment(policy.planner(Window(3, 1)), skewed_batches(11, TABLES, count=20)))


def exchange_of(part: TrainerPlan) -> Exchange:
    exchange = part.exchanged
    assert exchange is not None
    return exchange


def require_places(policy: Policy) -> None:
    """Of four trainers on two hosts: who fetches, sums with whom and writes back as `EVERYWHERE` and `HOSTED` say."""
    *plans, closing = plans_of(policy)
    fetched = [np.concatenate([plan.trainers[trainer].fetch_rows for plan in plans]) for trainer in range(4)]
    written = [part.write_back_rows for part in closing.trainers]
    for number, row in enumerate(EVERYWHERE):
        assert [(rows == row).sum() for rows in fetched] == [1, 1, 1, 1]
        assert [row in rows for rows in written] == [trainer == number % 4 for trainer in range(4)]
    for number, row in enumerate(HOSTED):
        assert [(rows == row).sum() for rows in fetched] == [trainer % 2 == number % 2 for trainer in range(4)]
        assert [row in rows for rows in written] == [trainer == number % 2 for trainer in range(4)]
    before = np.concatenate([part.write_back_rows for plan in plans for part in plan.trainers])
    assert not np.isin(EVERYWHERE + HOSTED, before).any()
    for plan in plans:
        exchanges = [exchange_of(part) for part in plan.trainers]
        assert {exchange.hosted.of_host for exchange in exchanges} == {2}
        for first, second in (exchanges[::2], exchanges[1::2]):  # with the same place on their hosts
            for own, other in ((first.now, second.now), (first.later, second.later)):
                assert own.slots[: own.hosted].tolist() == other.slots[: other.hosted].tolist()


def require_that_hosted_rows_stay(policy: Policy) -> None:
    """Copies and gradients of rows that are all held once a host do not leave it; none is updated by one trainer."""
    *plans, _ = plans_of(policy)
    assert any(exchange_of(part).counts.next_to.sum() for plan in plans for part in plan.trainers)
    for plan in plans:
        for trainer, part in enumerate(plan.trainers):
            counts = exchange_of(part).counts
            elsewhere = [other for other in range(4) if other // 2 != trainer // 2]
            for of_kind in (counts.now_to, counts.later_to, counts.next_to, counts.rest_to):
                assert of_kind[elsewhere].sum() == 0
            assert part.private_slots.size == 0
        assert plan.shared.now_slots.size == plan.shared.later_slots.size == 0


def test_rows_are_where_their_tier_says(tmp_path: Path) -> None:
    require_places(made(plan_file(tmp_path / "plan.npz", 2, EVERYWHERE, HOSTED), 4))


def test_what_travels_is_the_tier_of_the_row(tmp_path: Path) -> None:
    everything = list(range(100))
    require_that_hosted_rows_stay(made(plan_file(tmp_path / "hosted.npz", 2, [], everything), 4))
    *plans, _ = plans_of(made(plan_file(tmp_path / "everywhere.npz", 2, everything, []), 4))
    for plan in plans:
        assert plan.shared.now_slots.size + plan.shared.later_slots.size == plan.shared.unique_rows
        assert all(part.own_slots.size == exchange_of(part).summed_slots.size == 0 for part in plan.trainers)


@pytest.mark.parametrize("world", [(4, 2), (4, 4), (6, 3), (8, 2), (2, 1)])
def test_tiers_move_what_the_model_of_flexshard_says(tmp_path: Path, world: tuple[int, int]) -> None:
    """Rows that an average trainer sends for a batch, where each trainer looks up each of 24 rows once."""
    trainers, hosts = world
    of_host, rows = trainers // hosts, np.arange(24)
    links = Links(trainers, hosts, 1.0, 1.0)
    batches = [Bags.one_hot(np.tile(rows, (trainers, 1)))] * 6
    for tier, hosted in ((1, rows), (2, rows[:0])):
        path = tmp_path / f"{tier}.npz"
        with path.open("wb") as file:
            table = WholeTable("C1", 24, 4, 20)
            write_plan(file, "flexshard", "ab" * 32, 1, [table], [0], {}, hosted={"C1": hosted}, trainer_hosts=hosts)
        facts = RunFacts(np.asarray([0, 24]), trainers, trainers, sharing="tiered", table_names=("C1",))
        policy = PinnedPolicy(PinnedSettings(plan=str(path)), replace(facts, feature_tables=(0,) * 24))
        _, _, plan, *_ = plan_segment(policy.planner(Window(3, 1)), batches)
        within = between = 0.0
        for trainer, part in enumerate(plan.trainers):
            exchange, host = exchange_of(part), trainer // of_host
            counts = exchange.counts
            sent = counts.now_to + counts.later_to + counts.next_to + counts.rest_to
            at_home = np.arange(trainers) // of_host == host
            within += sent[at_home].sum() / trainers
            neighbours = (host > 0) + (host + 1 < hosts)
            over_hosts = (exchange.hosted.now_rows + exchange.hosted.later_rows) * neighbours
            between += (sent[~at_home].sum() + over_hosts) / trainers
        expected = links.bytes_in_tiers(np.ones(1), np.ones(1, np.int64))
        assert (within, between) == pytest.approx([24 * of_tier[tier, 0] for of_tier in expected])


def test_what_sums_over_hosts_cost_is_counted(tmp_path: Path) -> None:
    """Three hosts of two: a message from each to the next and back, of what the busiest place of a host sums."""
    policy = made(plan_file(tmp_path / "plan.npz", 3, [], list(range(100))), 6)
    plan = next(plan for plan in plans_of(policy) if exchange_of(plan.trainers[0]).hosted.now_rows)
    hosted = [exchange_of(part).hosted for part in plan.trainers]
    load = BatchLoad.of_plan(plan)
    assert load.now_over_hosts == (Hop(max(of.now_rows for of in hosted), 1),) * 4
    assert load.later_over_hosts == (Hop(max(of.later_rows for of in hosted), 1),) * 4
    of_homes = replace(load, now_over_hosts=(), later_over_hosts=())
    sums = load.now_over_hosts[0].rows + load.later_over_hosts[0].rows
    assert load.rows_exchanged == of_homes.rows_exchanged + 2 * sums, "the second host's sends there and back"
    group = SimpleNamespace(width=4, record=SimpleNamespace(bytes=20))
    run: Any = SimpleNamespace(groups=[group], config=SimpleNamespace(train=SimpleNamespace(row_sums="bfloat16")))
    count = TrafficCount(run, 6)
    count.add(plan)
    found = count.traffic(3, 0)
    assert found.bytes["now"] == pytest.approx(16 * 4 / 3 * sum(of.now_rows for of in hosted) / 6)
    assert found.bytes["later"] == pytest.approx(16 * 4 / 3 * sum(of.later_rows for of in hosted) / 6)


def test_on_one_host_hosted_rows_have_one_home(tmp_path: Path) -> None:
    policy = made(plan_file(tmp_path / "plan.npz", 1, [], HOSTED), 2)
    *plans, _ = plans_of(policy)
    assert {exchange_of(part).hosted for plan in plans for part in plan.trainers} == {Hosted(2, 0, 0)}
    assert any(np.isin(HOSTED, part.fetch_rows).any() for plan in plans for part in plan.trainers)


class FirstHolderGives(TieredSlots):
    """Trainers of all hosts take their copies from the first host's holder."""

    def pair_homes(self, unique: Any, homes: Any, rows: Any, users: Any) -> Any:  # noqa: ARG002
        return homes[rows]


class ForgetsThePool(TieredSlots):
    """Rows that several hold take a slot from the pool of their first holder."""

    def _are_fixed(self, batch: UsedBatch) -> Bools:
        return np.zeros(batch.unique.size, dtype=np.bool_)


class Mutant(PinnedTieredPlanner):
    """With other slots, or other rules."""

    slots: type[TieredSlots] = TieredSlots

    def new_slots(self, *arguments: Any, **settings: Any) -> TieredSlots:
        return self.slots(*arguments, tiers=self._tiers, **settings)


class TakesCopiesFromTheFirstHost(Mutant):
    slots = FirstHolderGives


class TakesSlotsOfOthers(Mutant):
    slots = ForgetsThePool


class UpdatesAlone(Mutant):
    """A holder updates a hosted row at once where nobody else of its host uses it."""

    def are_alone(self, batch: UsedBatch) -> Bools:
        return np.ones(batch.unique.size, dtype=np.bool_)


class SumsWithinTheHost(Mutant):
    """What holders sum does not go on to the next host."""

    def held_by(self, rows: Any, homes: Any, trainer: int) -> Held:
        return Held(super().held_by(rows, homes, trainer).rows)


class FetchesAtTheFirstHost(Mutant):
    """Only the first holder fetches a hosted row."""

    def held_by(self, rows: Any, homes: Any, trainer: int) -> Held:
        found = super().held_by(rows, homes, trainer)
        return found if trainer < self._tiers.of_host else Held(found.rows[found.hosted :])


class SumsLate(Mutant):
    """Rows that all hold are summed behind the next batch, though it uses them."""

    def is_needed_now(self, batch: LoadedBatch, following: LoadedBatch | None, private: Bools) -> Bools:
        return super().is_needed_now(batch, following, private) & ~self.rows.are_everywhere(batch.unique)


class LetsThemDie(Mutant):
    """Rows that several hold leave with the window."""

    def is_dead(self, number: int, batch: LoadedBatch) -> Bools:
        return LookaheadPlanner.is_dead(self, number, batch)


class LeavesThemOut(Mutant):
    """What all hold is in no list of the plan."""

    def are_shared(self, batch: UsedBatch) -> Bools:
        return np.zeros(batch.unique.size, dtype=np.bool_)


LEFT = "end otherwise than in plain training"
MUTANTS = {
    TakesSlotsOfOthers: "which still holds row",
    UpdatesAlone: LEFT,
    SumsWithinTheHost: LEFT,
    FetchesAtTheFirstHost: "looks for row 2 in slot 7; it is in none",
    SumsLate: LEFT,
    LeavesThemOut: "looks for row 0 in slot",
}


def broken(mutant: type[PinnedTieredPlanner], path: Path) -> Policy:
    """The policy with a broken rule."""

    class Mutated(PinnedPolicy):
        @property
        def rule(self) -> Callable[..., Planner]:
            return partial(mutant, tiers=self.tiers, pinned=self.pinned)

    facts = RunFacts(np.asarray([0, 40, 100]), 4, 9, sharing="tiered", table_names=NAMES)
    return Mutated(PinnedSettings(plan=str(path)), facts)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_is_noticed(tmp_path: Path, mutant: type[PinnedTieredPlanner]) -> None:
    path = plan_file(tmp_path / "plan.npz", 2, EVERYWHERE, HOSTED)
    batches = skewed_batches(5, TABLES)
    check_policy(broken(PinnedTieredPlanner, path), batches, Window(3, 1))
    with pytest.raises(PlanError, match=MUTANTS[mutant]):
        check_policy(broken(mutant, path), batches, Window(3, 1))


def test_rules_that_only_cost_more_are_noticed(tmp_path: Path) -> None:
    """They train as plain training does, and move rows that their tier leaves where they are."""
    some = plan_file(tmp_path / "some.npz", 2, EVERYWHERE, HOSTED)
    everything = plan_file(tmp_path / "all.npz", 2, [], list(range(100)))
    batches = skewed_batches(5, TABLES)
    for mutant, path, require in (
        (LetsThemDie, some, require_places),
        (TakesCopiesFromTheFirstHost, everything, require_that_hosted_rows_stay),
    ):
        check_policy(broken(mutant, path), batches, Window(3, 1))
        with pytest.raises(AssertionError):
            require(broken(mutant, path))
