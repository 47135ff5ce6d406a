"""FlexShard's thresholds are the best of all tiers of rows; what a tier costs is what a replayed trace moves."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.rows.access_statistics import read_statistics
from bagpipe_hpc.rows.array_file import Int64s
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.flexshard.placement import FlexShard
from bagpipe_hpc.rows.placements.flexshard.tiers import Floats, Links, choose_tiers
from bagpipe_hpc.rows.placements.planned import Request
from bagpipe_hpc.rows.placements.settings import FlexShardSettings
from bagpipe_hpc.rows.placements.table_plan import read_plan, write_plan
from tests.drawing import share_of
from tests.statistics_files import write_accesses, zipf_counts

WORLDS = [(2, 1), (4, 1), (4, 2), (4, 4), (8, 2), (1, 1)]
"""Devices and hosts."""


def moved(devices: int, hosts: int, rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Bytes within and between hosts that an average device sends and takes in, look-up by look-up.

    Each row, of a tier, so many look-ups of every device, and so many bytes, is owned by each device in turn.
    """
    of_host = devices // hosts
    within, between = np.zeros(3), np.zeros(3)
    for tier, look_ups, size in rows:
        for owner in range(devices):
            share = 1 / devices  # of the rows like this one that this device owns
            for device in range(devices):
                if tier == 0:
                    continue
                same_host = device // of_host == owner // of_host
                holder = owner if tier == 2 or same_host else device // of_host * of_host + owner % of_host
                link = within if holder // of_host == device // of_host else between
                if holder != device:
                    link[tier] += share * 2 * look_ups * size
            if tier == 0 and devices > 1:  # a ring: each device sends 2 (G - 1) pieces of a G-th
                (within if hosts == 1 else between)[0] += share * 2 * (devices - 1) * size
            if tier == 1:  # the owners of a row on all hosts, in a ring of their own
                between[1] += share * 2 * (hosts - 1) * size
    return within / devices, between / devices


@pytest.mark.parametrize(("devices", "hosts"), WORLDS)
@pytest.mark.parametrize("tier", [0, 1, 2])
def test_a_tier_costs_what_a_trace_moves(devices: int, hosts: int, tier: int) -> None:
    links = Links(devices, hosts, 3.0, 1.0)
    for look_ups, size in ((1, 4), (7, 36), (0, 12)):
        found = moved(devices, hosts, [(tier, look_ups, size)])
        expected = links.bytes_in_tiers(np.array([float(look_ups)]), np.array([size]))
        for counted, modelled in zip(found, expected, strict=True):
            assert counted[tier] == pytest.approx(modelled[tier, 0])


class SumsWithEveryDevice(Links):
    """Rows once a host are summed by all devices of a host instead of their owner."""

    def bytes_in_tiers(self, look_ups: Floats, row_bytes: Int64s) -> tuple[Floats, Floats]:
        within, between = super().bytes_in_tiers(look_ups, row_bytes)
        return within, between * np.array([[1], [self.of_host], [1]])


class SendsThereAlone(Links):
    """What looks a row up sends no gradient back."""

    def bytes_in_tiers(self, look_ups: Floats, row_bytes: Int64s) -> tuple[Floats, Floats]:
        return super().bytes_in_tiers(look_ups / 2, row_bytes)


class OneLink(Links):
    """Owners of the same host are as far as all others."""

    def bytes_in_tiers(self, look_ups: Floats, row_bytes: Int64s) -> tuple[Floats, Floats]:
        within, between = super().bytes_in_tiers(look_ups, row_bytes)
        between[2] += within[2]
        within[2] = 0
        return within, between


@pytest.mark.parametrize("mutant", [SumsWithEveryDevice, SendsThereAlone, OneLink])
def test_a_broken_model_is_noticed(mutant: type[Links]) -> None:
    found = mutant(8, 2, 3.0, 1.0).bytes_in_tiers(np.array([7.0]), np.array([36]))
    counted = [moved(8, 2, [(tier, 7, 36)]) for tier in (0, 1, 2)]
    assert any(
        counted[tier][link][tier] != pytest.approx(found[link][tier, 0]) for tier in (0, 1, 2) for link in (0, 1)
    )


def test_on_one_host_rows_once_a_host_are_rows_once() -> None:
    within, between = Links(4, 1, 3.0, 1.0).bytes_in_tiers(np.array([2.0, 9.0]), np.array([8, 8]))
    assert within[1].tolist() == within[2].tolist()
    assert not between.any()


@settings(max_examples=share_of(40), deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=7, max_size=7),
    st.sampled_from(WORLDS),
    st.floats(1.0, 20.0),
    st.floats(0.0, 5.0),
    st.booleans(),
    st.booleans(),
)
def test_thresholds_are_the_best_tiers(
    found: list[int], world: tuple[int, int], within: float, spare_rows: float, keeps_place: bool, has_b: bool
) -> None:
    """Of all ways to put seven rows into tiers that fit."""
    links, size = Links(*world, within, 1.0), 8
    look_ups = -np.sort(-np.array(found, dtype=np.float64)) / 5
    row_bytes = np.full(7, size)
    chosen = choose_tiers(links, look_ups, row_bytes, spare_rows * size, keeps_place=keeps_place, has_tier_b=has_b)
    seconds = links.seconds(look_ups, row_bytes)
    memory = links.further_bytes(row_bytes, keeps_place=keeps_place)
    row = np.arange(7)
    ways = [np.array(way) for way in product((0, 1, 2) if has_b else (0, 2), repeat=7)]
    best = min(seconds[way, row].sum() for way in ways if memory[way, row].sum() <= spare_rows * size)
    assert chosen.seconds == pytest.approx(best)
    way = np.repeat([0, 1, 2], [chosen.first_b, chosen.first_c - chosen.first_b, 7 - chosen.first_c])
    assert seconds[way, row].sum() == pytest.approx(chosen.seconds)
    assert memory[way, row].sum() <= spare_rows * size + 1e-9
    assert has_b or chosen.first_b == chosen.first_c


def test_rows_that_are_all_looked_up_seldom_are_not_replicated() -> None:
    chosen = choose_tiers(Links(8, 2, 10.0, 1.0), np.full(50, 0.01), np.full(50, 8), 1e9)
    assert (chosen.first_b, chosen.first_c) == (0, 0)


def test_without_spare_memory_each_row_is_held_once() -> None:
    chosen = choose_tiers(Links(8, 2, 10.0, 1.0), np.full(50, 100.0), np.full(50, 8), 0.0)
    assert (chosen.first_b, chosen.first_c) == (0, 0)


def test_rows_of_tier_a_are_pinned(tmp_path: Path) -> None:
    """The hottest ones of all tables that fit, and that a trainer looks up often enough."""
    counts = {f"C{number}": zipf_counts(rows, 8000) for number, rows in enumerate((300, 2000, 40), start=1)}
    statistics = read_statistics(write_accesses(tmp_path / "accesses.npz", counts, samples=1000))
    tables = tuple(WholeTable(name, len(found), 8, 36) for name, found in counts.items())
    request = Request(tables, statistics, servers=2, batch_size=100)
    found = FlexShard.search(request, FlexShardSettings(trainers=4, trainer_hosts=2, fast_gb=36 * 20 / 1e9))
    assert sum(map(len, found.pinned.values())) == 20
    coldest = min(counts[name][row] for name, rows in found.pinned.items() for row in rows)
    others = [count for name, of in counts.items() for row, count in enumerate(of) if row not in found.pinned[name]]
    assert max(others) <= coldest
    assert set(found.holders) == {0, 1}
    assert "flexshard: 20 of" in found.report[0]
    ample = FlexShard.search(request, FlexShardSettings(trainers=4, trainer_hosts=2, fast_gb=1.0))
    look_ups = 100 / 1000 / 4  # of a trainer and batch, for each that was counted
    for name, rows in ample.pinned.items():
        of_pinned = [counts[name][row] * look_ups for row in rows]
        assert min(of_pinned, default=9.0) > 2 / 3 * 3 / 4  # where summing costs as much as fetching, or more


def test_rows_once_a_host_are_those_behind_tier_a(tmp_path: Path) -> None:
    """Where they are wanted; the report then says how to train with them, and else what they would give."""
    counts = {f"C{number}": zipf_counts(rows, 8000) for number, rows in enumerate((300, 2000, 40), start=1)}
    statistics = read_statistics(write_accesses(tmp_path / "accesses.npz", counts, samples=1000))
    tables = tuple(WholeTable(name, len(found), 8, 36) for name, found in counts.items())
    request = Request(tables, statistics, servers=2, batch_size=100)
    with_b, without = (
        FlexShard.search(
            request,
            FlexShardSettings(trainers=4, trainer_hosts=2, fast_gb=36 * 20 / 1e9, once_a_host=once_a_host),
        )
        for once_a_host in (True, False)
    )
    assert (with_b.trainer_hosts, without.trainer_hosts) == (2, 0)
    of_a, of_b = (sum(map(len, rows.values())) for rows in (with_b.pinned, with_b.hosted))
    assert of_a + of_b / 2 <= 20 < sum(map(len, without.pinned.values())) + of_b / 2
    assert f"{of_a} rows with every trainer, {of_b} once a host" in without.report[1]
    assert f"{of_a} of " in with_b.report[0]
    assert f" {of_b} once a host" in with_b.report[0]
    assert "cache.sharing = 'tiered'" in with_b.report[1]
    of_tiers = [
        [counts[name][row] for name, found in rows.items() for row in found] for rows in (with_b.pinned, with_b.hosted)
    ]
    assert min(of_tiers[0], default=9e9) >= max(of_tiers[1])
    path = tmp_path / "plan.npz"
    with path.open("wb") as file:
        of_plan = (file, "flexshard", "ab" * 32, 2, tables, with_b.holders, with_b.pinned)
        write_plan(*of_plan, hosted=with_b.hosted, trainer_hosts=with_b.trainer_hosts)
    plan = read_plan(path)
    assert plan.trainer_hosts == 2
    for (name, rows), (pinned, hosted) in zip(with_b.hosted.items(), plan.kept_rows(with_b.hosted), strict=True):
        np.testing.assert_array_equal(hosted, rows)
        np.testing.assert_array_equal(pinned, with_b.pinned[name])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"trainers": 0}, "trainers = 0"),
        ({"trainers": 4, "trainer_hosts": 3}, "trainer_hosts = 3: use a divisor of trainers = 4"),
        ({"between_gb_s": 0.0}, "between_gb_s"),
        ({"within_gb_s": 0.5}, "within_gb_s = 0.5: use 1.0 or more"),
        ({"fast_gb": -1.0}, "fast_gb"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, float], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        FlexShardSettings(**changes)  # type: ignore[arg-type] # of several fields
