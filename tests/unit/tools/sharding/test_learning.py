"""What is learned of synthetic costs, by far no sums: cost models that rank well, placements no worse than greedy ones.

Shapes: `T` tables, `S` servers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from bagpipe_hpc.tools.sharding import episodes as module
from bagpipe_hpc.tools.sharding.autoshard import AutoShardPolicy, AutoShardSettings, learn_autoshard
from bagpipe_hpc.tools.sharding.cost_model import CostModel, Ring, rank_correlation
from bagpipe_hpc.tools.sharding.dreamshard import DreamShardPolicy, DreamShardSettings, learn_dreamshard
from bagpipe_hpc.tools.sharding.episodes import ServerPolicy, ServerState, roll_out
from bagpipe_hpc.tools.sharding.learned import Learned
from bagpipe_hpc.tools.sharding.task import FEATURES, Task, slowest_ms
from tests.unit.tools.sharding.synthetic_costs import SyntheticCosts, best_greedy_ms, synthetic_task

LEARNERS: dict[str, Callable[[Task, SyntheticCosts, int], Learned]] = {
    "autoshard": lambda task, costs, seed: learn_autoshard(task, costs, AutoShardSettings(seed=seed), lambda _: None),
    "dreamshard": lambda task, costs, seed: learn_dreamshard(
        task, costs, DreamShardSettings(rounds=5, cost_updates=100, seed=seed), lambda _: None
    ),
}
POLICIES: dict[str, type[ServerPolicy]] = {"autoshard": AutoShardPolicy, "dreamshard": DreamShardPolicy}
SERVERS = 3


@dataclass(frozen=True)
class Case:
    """A task, its costs, and what was learned of it."""

    task: Task
    costs: SyntheticCosts
    learned: Learned


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks are tiny: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=list(LEARNERS))
def case(request: pytest.FixtureRequest) -> Case:
    task = synthetic_task(12, SERVERS, seed=0, room=1.4)
    costs = SyntheticCosts(task)
    return Case(task, costs, LEARNERS[request.param](task, costs, 1))


def random_ways(task: Task, count: int) -> list[list[int]]:
    found: list[list[int]] = np.random.default_rng(7).integers(0, task.servers, (count, len(task.tables))).tolist()
    return found


def test_the_best_that_is_found_is_no_worse_than_the_best_greedy_placement(case: Case) -> None:
    best = case.learned.best(case.task, case.costs)
    assert best is not None
    assert case.task.fits(best)
    found_ms = slowest_ms(case.costs, best, SERVERS)
    assert found_ms <= best_greedy_ms(case.task, case.costs)
    at_random = [slowest_ms(case.costs, way, SERVERS) for way in random_ways(case.task, 100)]
    assert found_ms < np.quantile(at_random, 0.02)


def test_the_policy_itself_beats_chance(case: Case) -> None:
    """Not only the best of what it tries."""
    drawn = [slowest_ms(case.costs, way, SERVERS) for way in case.learned.candidates(case.task)]
    at_random = [slowest_ms(case.costs, way, SERVERS) for way in random_ways(case.task, 400) if case.task.fits(way)]
    assert np.mean(drawn) < 0.95 * np.mean(at_random)


def test_the_cost_model_ranks_placements_that_it_never_saw(case: Case) -> None:
    ways = [way for way in random_ways(case.task, 60) if tuple(way) not in case.learned.seen]
    expected = [case.learned.expected_ms(case.task, way) for way in ways]
    measured = [slowest_ms(case.costs, way, SERVERS) for way in ways]
    assert rank_correlation(expected, measured) > 0.6


def test_no_server_ever_holds_too_much(case: Case) -> None:
    candidates = case.learned.candidates(case.task)
    assert len(candidates) > 10
    assert all(case.task.fits(way) for way in [*candidates, *case.learned.seen])
    assert not all(case.task.fits(way) for way in random_ways(case.task, 50))


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_what_was_learned_places_tables_on_other_numbers_of_servers(case: Case, servers: int) -> None:
    other = replace(synthetic_task(9, servers, seed=5), limit_bytes=float("inf"))
    costs = SyntheticCosts(other)
    best = case.learned.best(other, costs)
    assert best is not None
    assert len(best) == 9
    at_random = [slowest_ms(costs, way, servers) for way in random_ways(other, 100)]
    assert slowest_ms(costs, best, servers) <= np.quantile(at_random, 0.25)


@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_seed_repeats_what_is_learned(name: str) -> None:
    task = synthetic_task(6, 2, seed=2)

    def learned(seed: int) -> Learned:
        if name == "autoshard":
            few = AutoShardSettings(steps=2, cost_updates=3, seed=seed)
            return learn_autoshard(task, SyntheticCosts(task), few, lambda _: None)
        fewer = DreamShardSettings(rounds=1, cost_updates=5, policy_updates=2, seed=seed)
        return learn_dreamshard(task, SyntheticCosts(task), fewer, lambda _: None)

    weights = [
        torch.cat([parameter.flatten() for parameter in learned(seed).policy.parameters()]) for seed in (1, 1, 2)
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("name", list(POLICIES))
def test_the_order_of_tables_changes_no_placement(name: str) -> None:
    """And that of a group's tables no cost, but for the rounding of sums."""
    generator = torch.Generator().manual_seed(3)
    task = synthetic_task(10, 4, seed=3, room=1.3)
    model, policy = CostModel(2, generator), POLICIES[name](generator)
    order = np.random.default_rng(3).permutation(10)
    turned = replace(task, tables=tuple(task.tables[place] for place in order), features=task.features[order])
    with torch.no_grad():
        one, other = (roll_out(policy, model, of, 1, None).holders[0] for of in (task, turned))
    assert other.tolist() == one[order].tolist()
    members = torch.zeros(1, 10)
    members[0, :4] = 1
    costs = [
        model.predict(torch.from_numpy(of.features), m)
        for of, m in ((task, members), (turned, members[:, torch.from_numpy(order)]))
    ]
    torch.testing.assert_close(costs[0], costs[1])
    assert model.predict(torch.from_numpy(task.features), torch.zeros(1, 10)).tolist() == [[0.0, 0.0]]


class Stubborn(ServerPolicy):
    """Wants all tables on the last server."""

    def codes(self, features: torch.Tensor, encodings: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        return encodings

    def contexts(self, codes: torch.Tensor) -> torch.Tensor:
        return codes

    def scores(self, context: torch.Tensor, servers: ServerState) -> torch.Tensor:  # noqa: ARG002
        return 50.0 * torch.arange(servers.used.shape[1]).expand_as(servers.used)


def test_servers_without_room_get_no_table_and_lack_of_room_is_said() -> None:
    model = CostModel(1, torch.Generator().manual_seed(1))
    task = synthetic_task(8, 3, seed=1)
    sizes = [table.bytes for table in task.tables]
    free = roll_out(Stubborn(), model, task, 4, torch.Generator().manual_seed(1))
    assert (free.holders == 2).all()
    assert free.has_room.all()
    limited = replace(task, limit_bytes=0.5 * sum(sizes))
    episodes = roll_out(Stubborn(), model, limited, 4, torch.Generator().manual_seed(1))
    assert episodes.has_room.all()
    assert all(limited.fits(holders) for holders in episodes.holders.tolist())
    assert episodes.held_bytes.sum(dim=1).tolist() == [float(sum(sizes))] * 4
    assert episodes.log_chances.isfinite().all()
    assert episodes.entropies.isfinite().all()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_NEVER", 1e9)  # a mask that does not keep tables away is noticed
        careless = roll_out(Stubborn(), model, limited, 4, torch.Generator().manual_seed(1))
    assert not any(limited.fits(holders) for holders in careless.holders.tolist())
    short = replace(task, limit_bytes=max(sizes) - 1.0)
    assert not roll_out(Stubborn(), model, short, 2, None).has_room.any()
    never = Learned(Stubborn(), model, short, (), 1)
    assert never.best(short, SyntheticCosts(short)) is None


def test_samples_make_room_for_newer_ones() -> None:
    ring = Ring(3)
    for number in range(5):
        ring.add(torch.tensor([float(number)]), torch.tensor([2.0 * number]))
    members, costs = ring.draw(100, torch.Generator().manual_seed(1))
    assert len(ring) == 3
    assert len(members) == 3
    assert set(members.flatten().tolist()) <= {2.0, 3.0, 4.0}
    assert costs.tolist() == (2 * members).tolist()
    assert ring.mean_of_last() == 6.0


def test_ranks_correlate_as_by_definition() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)
    assert FEATURES == 21
