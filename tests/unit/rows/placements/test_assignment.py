"""Whole tables on servers: greedy ones are near the best there is, no server holds too much, the laws hold."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import log10
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import PLACEMENTS, SettingError
from bagpipe_hpc.config.schema import TablesConfig
from bagpipe_hpc.errors import ConfigError, DataError
from bagpipe_hpc.rows.partition import Tables
from bagpipe_hpc.rows.placement import check_partition, place_groups
from bagpipe_hpc.rows.placements.assignment import (
    AssignedTables,
    WholeTable,
    deal_greedily,
    server_bytes,
    whole_tables,
)
from bagpipe_hpc.rows.placements.planned import PlannedTables
from bagpipe_hpc.rows.placements.settings import PlannedSettings, RandomSettings, StatisticsSettings
from tests.statistics_files import write_accesses

BY_NAME = ("random", "greedy_size", "greedy_dim")
BY_ACCESSES = ("greedy_lookup", "greedy_size_lookup")
GROUPS = [
    (Tables((30, 7, 11), ("C1", "C3", "C4"), width=8), 36),
    (Tables((50, 2), ("C2", "C5"), width=2), 12),
    (Tables((9,), ("C6",), width=4), 20),
]
ACCESSES = {
    name: [1 + row % 3 for row in range(rows)]
    for tables, _ in GROUPS
    for name, rows in zip(tables.names, tables.rows, strict=True)
}
costs_of_tables = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=8)


def whole(sizes: Sequence[int]) -> list[WholeTable]:
    return [WholeTable(f"C{number}", rows, 4, 1) for number, rows in enumerate(sizes)]


def loads_of(costs: Sequence[float], holders: Sequence[int], servers: int) -> list[float]:
    loads = [0.0] * servers
    for cost, holder in zip(costs, holders, strict=True):
        loads[holder] += cost
    return loads


@given(costs_of_tables, st.integers(1, 3))
def test_the_dearest_server_is_within_a_third_of_the_best(found: list[tuple[int, int]], servers: int) -> None:
    """Of every way to deal up to eight tables."""
    costs, sizes = [float(cost) for cost, _ in found], [size for _, size in found]
    holders = deal_greedily(whole(sizes), costs, servers, float("inf"))
    best = min(max(loads_of(costs, way, servers)) for way in product(range(servers), repeat=len(costs)))
    assert max(loads_of(costs, holders, servers)) <= best * (4 / 3 - 1 / (3 * servers)) + 1e-9


def test_of_several_cheapest_servers_the_one_that_holds_least_gets_a_table() -> None:
    """So tables that all cost the same are spread by size, as AutoShard's baselines do it."""
    assert deal_greedily(whole([8, 5, 4, 3, 2, 1]), [1.0] * 6, 2, float("inf")) == [0, 1, 1, 0, 1, 0]


@given(costs_of_tables, st.integers(1, 3), st.integers(1, 30))
def test_no_server_holds_more_than_it_may(found: list[tuple[int, int]], servers: int, limit: int) -> None:
    """Where no way to deal the tables has room, and perhaps where few have, they are refused."""
    costs, tables = [float(cost) for cost, _ in found], whole([size for _, size in found])
    has_room = any(
        max(server_bytes(tables, way, servers)) <= limit for way in product(range(servers), repeat=len(tables))
    )
    try:
        holders = deal_greedily(tables, costs, servers, limit)
    except SettingError:
        return
    assert has_room
    assert max(server_bytes(tables, holders, servers)) <= limit


def config_of(name: str, path: Path, **settings: Any) -> TablesConfig:
    chosen = TablesConfig(placement=name)
    if isinstance(chosen.settings, StatisticsSettings):
        settings["statistics"] = str(write_accesses(path / "accesses.npz", ACCESSES))
    return replace(chosen, settings=replace(chosen.settings, **settings))


@pytest.mark.parametrize("name", [*BY_NAME, *BY_ACCESSES])
@pytest.mark.parametrize("servers", [1, 2, 9])
def test_tables_of_all_widths_stay_whole(name: str, servers: int, tmp_path: Path) -> None:
    config = config_of(name, tmp_path)
    for (tables, _), partition in zip(GROUPS, place_groups(config, GROUPS, servers), strict=True):
        check_partition(partition, config, tables, servers)
        for first, last in pairwise(tables.offsets):
            assert np.unique(partition.owner(np.arange(first, last))).size == 1
    assert place_groups(config, GROUPS, servers) == place_groups(config, GROUPS, servers)


def holders_of(config: TablesConfig, servers: int) -> dict[str, int]:
    parts = zip(GROUPS, place_groups(config, GROUPS, servers), strict=True)
    return {
        name: int(owner)
        for (tables, _), partition in parts
        for name, owner in zip(tables.names, partition.owner(tables.offsets[:-1]), strict=True)
    }


def test_each_placement_balances_what_it_is_named_after(tmp_path: Path) -> None:
    """Dealt by hand: the dearest table first, each to the cheaper of two servers, or to the one that holds less."""
    tables = {
        name: (rows, group.width, row_bytes)
        for group, row_bytes in GROUPS
        for name, rows in zip(group.names, group.rows, strict=True)
    }
    look_ups = {name: sum(counts) / 100 for name, counts in ACCESSES.items()}
    costs = {
        "greedy_size": {name: rows * row_bytes for name, (rows, _, row_bytes) in tables.items()},
        "greedy_dim": {name: width for name, (_, width, _) in tables.items()},
        "greedy_lookup": {name: width * look_ups[name] for name, (_, width, _) in tables.items()},
        "greedy_size_lookup": {name: width * look_ups[name] * log10(rows) for name, (rows, width, _) in tables.items()},
    }
    for placement, of_tables in costs.items():
        loads, held, expected = [0.0, 0.0], [0, 0], {}
        sizes = {name: rows * row_bytes for name, (rows, _, row_bytes) in tables.items()}
        for name in sorted(tables, key=lambda name: (-of_tables[name], -sizes[name])):
            chosen = min((0, 1), key=lambda server, loads=loads, held=held: (loads[server], held[server]))
            expected[name] = chosen
            loads[chosen] += of_tables[name]
            held[chosen] += sizes[name]
        config = config_of(placement, tmp_path)
        assert holders_of(config, 2) == expected, placement
        groups = [replace(group, row_bytes=row_bytes) for group, row_bytes in GROUPS]
        model = PLACEMENTS.implementation(placement).expected(whole_tables(groups), 2, config.settings)
        assert model == pytest.approx(loads), placement


def test_random_tables_follow_their_seed_and_fill_no_server(tmp_path: Path) -> None:
    ways = {tuple(holders_of(config_of("random", tmp_path, placement_seed=seed), 2).values()) for seed in range(20)}
    assert len(ways) > 5
    limit_gb = 1200 / 1e9  # of 2,448 bytes
    for seed in range(20):
        try:
            parts = place_groups(config_of("random", tmp_path, placement_seed=seed, server_gb=limit_gb), GROUPS, 3)
        except SettingError:
            continue
        for server in range(3):
            held = sum(part.rows_on(server) * size for part, (_, size) in zip(parts, GROUPS, strict=True))
            assert held <= 1200


def test_a_server_that_would_hold_too_much_is_refused(tmp_path: Path) -> None:
    config = config_of("greedy_size", tmp_path, server_gb=1000 / 1e9)
    with pytest.raises(SettingError, match=r"tables\.server_gb = 1e-06: no server has room for table C1 of 1\.08e-06"):
        place_groups(config, GROUPS, 2)


class Misplaced(AssignedTables):
    """Gives tables to servers that are not there, or too much to one."""

    @classmethod
    def assign(cls, tables: Sequence[WholeTable], servers: int, settings: RandomSettings) -> list[int]:
        return [settings.placement_seed - 1] * len(tables) if servers > 1 else []


def test_what_an_assignment_may_not_say_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"6 tables are given to servers \[\] of 1"):
        Misplaced.place_all([tables for tables, _ in GROUPS], 1, RandomSettings())
    with pytest.raises(ConfigError, match=r"servers \[2, 2, 2, 2, 2, 2\] of 2"):
        Misplaced.place_all([tables for tables, _ in GROUPS], 2, RandomSettings(placement_seed=3))
    groups = [replace(tables, row_bytes=size) for tables, size in GROUPS]
    with pytest.raises(SettingError, match=r"server 1 would hold 2\.532e-06 GB"):
        Misplaced.place_all(groups, 2, RandomSettings(placement_seed=2, server_gb=2e-6))


@pytest.mark.parametrize("name", BY_ACCESSES)
def test_statistics_must_be_named_and_fit(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        SettingError, match=r"tables\.statistics = '': none is named; name a file that `bagpipe inspect"
    ):
        place_groups(TablesConfig(placement=name), GROUPS, 2)
    other = [(Tables((30, 7), ("C1", "C9"), width=8), 36)]
    with pytest.raises(DataError, match="knows no table 'C9'"):
        place_groups(config_of(name, tmp_path), other, 2)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingError, match=r"server_gb = -1\.0: use a number of GB, or 0 for any"):
        StatisticsSettings(server_gb=-1.0)
    with pytest.raises(SettingError, match="placement_seed = -1: use 0 or more"):
        RandomSettings(placement_seed=-1)


def test_a_class_may_not_forget_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AssignedTables, "place_all", classmethod(lambda *_: ()))
    with pytest.raises(SettingError, match=r"its place_all\(\) returns 0 partitions for 3 widths"):
        place_groups(TablesConfig(placement="random"), GROUPS, 2)


class OnTheLast(AssignedTables):
    """As a user writes it, without settings of its own."""

    @classmethod
    def assign(cls, tables: Sequence[WholeTable], servers: int, settings: Any) -> list[int]:  # noqa: ARG003
        return [servers - 1] * len(tables)


def test_ones_own_has_the_settings_of_whole_tables() -> None:
    name = f"{__name__}:OnTheLast"
    own = PLACEMENTS.settings_class(name)
    parts = place_groups(TablesConfig(placement=name, settings=own()), GROUPS, 2)
    assert [part.rows_on(0) for part in parts] == [0, 0, 0]
    with pytest.raises(SettingError, match=r"tables\.server_gb = 1e-09: server 1 would hold"):
        place_groups(TablesConfig(placement=name, settings=own(server_gb=1e-9)), GROUPS, 2)
    assert PlannedTables.Settings is PlannedSettings
