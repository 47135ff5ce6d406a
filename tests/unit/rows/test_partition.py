"""Partitions keep their laws: every row lies at one place of one server, and both directions agree."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.config.doors import PLACEMENTS as DOOR
from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import TablesConfig
from bagpipe_hpc.rows import placement
from bagpipe_hpc.rows.partition import RoundRobinPartition, RowPartition, Tables, most_rows, table_offsets, total_rows
from bagpipe_hpc.rows.placement import check_partition, partition_mark, place_groups, place_rows, require_same_partition
from bagpipe_hpc.rows.ranges import ContiguousPartition, TablePartition
from tests.unit.rows.partitions import PLACEMENTS, ShuffledPartition, partitions, tables_of

CONFIG = TablesConfig()


@given(partitions)
def test_owner_and_offset_invert_rows_of(partition: RowPartition) -> None:
    for server in range(partition.servers):
        held = partition.rows_on(server)
        rows = partition.rows_of(server, 0, held)
        assert (partition.owner(rows) == server).all()
        assert partition.offset(rows).tolist() == list(range(held))


@given(partitions)
def test_the_servers_hold_every_row_once(partition: RowPartition) -> None:
    counts = [partition.rows_on(server) for server in range(partition.servers)]
    placed = np.concatenate([partition.rows_of(server, 0, held) for server, held in enumerate(counts)])
    assert sorted(placed.tolist()) == list(range(total_rows(partition)))
    assert most_rows(partition) == max(counts)


@given(partitions, st.data())
def test_a_range_of_offsets_is_that_part_of_all_rows(partition: RowPartition, data: st.DataObject) -> None:
    server = data.draw(st.integers(0, partition.servers - 1))
    held = partition.rows_on(server)
    first = data.draw(st.integers(0, held))
    last = data.draw(st.integers(first, held))
    assert np.array_equal(partition.rows_of(server, first, last), partition.rows_of(server, 0, held)[first:last])


@pytest.mark.parametrize("kind", [RoundRobinPartition, ContiguousPartition])
@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 12))
def test_servers_get_equal_shares(kind: type[RowPartition], rows: list[int], servers: int) -> None:
    partition = kind.place(tables_of(tuple(rows)), servers, None)
    counts = [partition.rows_on(server) for server in range(servers)]
    assert max(counts) - min(counts) <= 1


def test_whole_tables_of_many_widths_fill_servers_evenly() -> None:
    """Those of one width go to the servers that hold least of the widths before, in bytes."""
    groups = [(Tables((100,), (f"C{width}",)), width) for width in range(8, 0, -1)]
    placed = place_groups(TablesConfig(placement="by_table"), groups, 3)
    held = [
        sum(part.rows_on(server) * width for part, (_, width) in zip(placed, groups, strict=True))
        for server in range(3)
    ]
    assert held == [1300, 1200, 1100]


def test_tables_of_one_width_see_nothing_on_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next ones see what these have brought, as a number of their own rows."""
    seen: list[tuple[int, ...]] = []

    def note(tables: Tables, servers: int, settings: Any) -> RowPartition:  # noqa: ARG001
        seen.append(tables.held)
        return RoundRobinPartition(tables.total_rows, servers)

    monkeypatch.setattr(RoundRobinPartition, "place", note)
    groups = [(tables_of((9,)), 40), (tables_of((3, 2)), 8), (tables_of((1,)), 16)]
    place_groups(CONFIG, groups[:1], 2)
    place_groups(CONFIG, groups, 2)
    assert seen == [(), (), (25, 20), (14, 11)]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(1, 6))
def test_tables_stay_whole_and_fill_servers_evenly(rows: list[int], servers: int) -> None:
    tables = tables_of(tuple(rows))
    partition = TablePartition.place(tables, servers, None)
    for first, last in zip(tables.offsets, tables.offsets[1:], strict=False):
        assert len(set(partition.owner(np.arange(first, last)).tolist())) == 1
    lower_bound = max(-(-sum(rows) // servers), *rows)
    assert most_rows(partition) <= lower_bound * 4 / 3 + max(rows) * (servers < len(rows)) / 3


def test_large_tables_need_64_bits() -> None:
    partition = RoundRobinPartition(total_rows=2**40, servers=3)
    row = np.array([2**40 - 1])
    server, offset = int(partition.owner(row)[0]), int(partition.offset(row)[0])
    assert partition.rows_of(server, offset, offset + 1).tolist() == row.tolist()
    assert partition.rows_on(server) == offset + 1


def test_table_offsets() -> None:
    assert table_offsets((3, 1, 4)).tolist() == [0, 3, 4, 8]


WITHOUT_STATISTICS = [name for name in DOOR.entries if not hasattr(DOOR.settings_class(name)(), "statistics")]
"""Others: tests/unit/rows/placements."""


@pytest.mark.parametrize("name", WITHOUT_STATISTICS)
@pytest.mark.parametrize("rows", [(7,), (5, 1, 9), (3_000_000, 10, 2_000_000)])
@pytest.mark.parametrize("servers", [1, 2, 5, 40])
def test_what_comes_with_the_package_keeps_the_laws(name: str, rows: tuple[int, ...], servers: int) -> None:
    """Of tables of which every row is looked at, and of those where a sample is."""
    config = TablesConfig(placement=name)
    check_partition(place_rows(config, tables_of(rows), servers), config, tables_of(rows), servers)


@pytest.mark.parametrize("name", WITHOUT_STATISTICS)
def test_tables_of_any_size_are_placed_at_once(name: str) -> None:
    rows = (6 * 10**9, 5, 4 * 10**9)
    config = TablesConfig(placement=name)
    check_partition(place_rows(config, tables_of(rows), 8), config, tables_of(rows), 8)


@dataclass(frozen=True)
class Mutant:
    """Round-robin, with one member that is wrong."""

    right: RoundRobinPartition
    wrong: dict[str, Callable[..., Any]]

    def __getattr__(self, name: str) -> Any:
        wrong = self.wrong.get(name)
        right = getattr(self.right, name)
        if wrong is None:
            return right
        return wrong(right) if name == "servers" else lambda *arguments: wrong(right(*arguments), *arguments)


MUTANTS: dict[str, tuple[dict[str, Callable[..., Any]], str]] = {
    "other servers": ({"servers": lambda servers: servers + 1}, "its partition has 4 servers instead of 3"),
    "a row too many": ({"rows_on": lambda rows, server: rows + (server == 1)}, r"hold {total_and_1} rows"),
    "negative": ({"rows_on": lambda rows, server: (-1, rows, rows)[server]}, r"-1 to"),
    "owners beyond": ({"owner": lambda owners, _: owners + 1}, r"row 0 is at position 0 of server 0 by rows_of, and"),
    "two rows at a place": ({"offset": lambda offsets, _: offsets // 2}, r"row 3 is at position 1 of server 0"),
    "one row": ({"offset": lambda offsets, rows: offsets + (rows == 4)}, r"row 4 is at position 1 of server 1"),
    "rows that are none": ({"rows_of": lambda rows, *_: rows - 3}, r"names row -3 at position 0 of server 0"),
    "no 64 bits": ({"owner": lambda owners, _: owners.astype(np.int32)}, r"owner of int64 \[0\] is int32"),
    "a list too short": ({"rows_of": lambda rows, *_: rows[1:]}, r"rows_of\(0, 0, .*must be int64"),
    "changed rows": ({"offset": lambda offsets, rows: [offsets, rows.fill(0)][0]}, "changes the rows that it is given"),
    "another shape": ({"offset": lambda offsets, _: offsets[None]}, r"offset of int64 \[0\] is int64 \[1, 0\]"),
}


@pytest.mark.parametrize("total", [20, 3_000_000])
@pytest.mark.parametrize("name", MUTANTS)
def test_a_partition_that_breaks_a_law_is_refused_with_a_row(name: str, total: int) -> None:
    wrong, problem = MUTANTS[name]
    mutant: Any = Mutant(RoundRobinPartition(total, 3), wrong)
    with pytest.raises(SettingError, match=problem.format(total_and_1=total + 1)) as raised:
        check_partition(mutant, CONFIG, tables_of((total,)), 3)
    assert str(raised.value).startswith("tables.placement = 'round_robin': ")
    assert "docs/extending.md" in str(raised.value)


def test_a_row_that_only_the_other_direction_misplaces_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where positions are only sampled, rows are looked at too."""
    monkeypatch.setattr(placement, "_pieces", lambda *_, **__: [])
    last = 3_000_000 - 1
    for name, wrong in {"offset": 10**9, "owner": 3}.items():
        members = {name: lambda found, rows, wrong=wrong: np.where(rows == last, wrong, found)}
        mutant: Any = Mutant(RoundRobinPartition(last + 1, 3), members)
        with pytest.raises(SettingError, match=f"row {last} is at position .* there is no such place"):
            check_partition(mutant, CONFIG, tables_of((last + 1,)), 3)
    swapped: Any = Mutant(
        RoundRobinPartition(last + 1, 3), {"offset": lambda found, rows: np.where(rows == last, 0, found)}
    )
    with pytest.raises(SettingError, match=f"row {last} is at position 0 of server 2 .*, and not by rows_of"):
        check_partition(swapped, CONFIG, tables_of((last + 1,)), 3)


def test_a_class_that_is_no_placement_is_refused() -> None:
    config = TablesConfig(placement="builtins:dict")
    with pytest.raises(SettingError, match=r"tables\.placement = 'builtins:dict': must have a class method place"):
        place_rows(config, tables_of((3,)), 1)
    with pytest.raises(SettingError, match="has no owner"):
        check_partition(Tables3(), CONFIG, tables_of((3,)), 1)  # type: ignore[arg-type] # the fault


class Fails:
    """A placement of which something fails."""

    @classmethod
    def place(cls, tables: Tables, *_: object) -> RowPartition:
        return [][tables.total_rows]


def test_a_placement_that_fails_is_named() -> None:
    tables, name = tables_of((3,)), f"{__name__}:Fails"
    with pytest.raises(SettingError, match=r"Fails': its place\(\) fails for 2 servers: IndexError: .*test_partition"):
        place_rows(TablesConfig(placement=name), tables, 2)
    unhappy: Any = Mutant(RoundRobinPartition(3, 2), {"owner": lambda owners, _: owners[7]})
    with pytest.raises(SettingError, match="'round_robin': its partition fails: IndexError"):
        check_partition(unhappy, CONFIG, tables, 2)


def test_ranks_that_made_different_partitions_are_told_apart() -> None:
    tables = tables_of((500, 40))
    mark = partition_mark(ShuffledPartition(540, 2), tables)
    require_same_partition(ShuffledPartition(540, 2), CONFIG, tables, mark)
    with pytest.raises(SettingError, match="gives different ranks different partitions"):
        require_same_partition(ShuffledPartition(540, 2, seed=4), CONFIG, tables, mark)


class Tables3:
    """Has one member of a partition."""

    servers = 1


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_a_partition_is_a_value(kind: type[RowPartition]) -> None:
    """Every rank makes its own, and all are equal."""
    tables = tables_of((5, 9))
    assert kind.place(tables, 2, None) == kind.place(tables, 2, None) != kind.place(tables, 3, None)
