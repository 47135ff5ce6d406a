"""Makes the partition that `tables.placement` names, and checks that it keeps its laws before anything is allocated."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import PLACEMENTS, SettingError
from bagpipe_hpc.config.schema import TablesConfig
from bagpipe_hpc.rows.partition import RowPartition, Tables
from bagpipe_hpc.terminal import counted

_MEMBERS = ("servers", "owner", "offset", "rows_of", "rows_on")
_ALL_ROWS = 1 << 20
"""Tables of up to so many rows are checked row by row, which proves the laws; of larger ones a sample is checked."""
_PIECE = 1024
_PIECES = 8
"""Pieces of each server's rows that are looked at, besides its first and its last piece."""
_SINGLE_ROWS = 64


def place_rows(config: TablesConfig, tables: Tables, servers: int) -> RowPartition:
    """The partition that the settings ask for.

    Args:
        config: what places the rows.
        tables: the tables.
        servers: number of servers.

    Raises:
        ConfigError: it cannot place these tables.
    """
    kind = _placement_class(config)
    with PLACEMENTS.blaming(config.placement, f"its place() fails for {counted(servers, 'server')}"):
        partition: RowPartition = kind.place(tables, servers, config.settings)
    return partition


def _placement_class(config: TablesConfig) -> Any:
    kind = PLACEMENTS.implementation(config.placement)
    if not callable(getattr(kind, "place", None)):
        raise SettingError(
            PLACEMENTS.key, config.placement, "must have a class method place(tables, servers, settings)"
        )
    return kind


def place_groups(config: TablesConfig, groups: Iterable[tuple[Tables, int]], servers: int) -> tuple[RowPartition, ...]:
    """The partitions of tables of several widths.

    A class with `place_all` is asked once for all of them. Any other is asked once for each width, and told what the
    servers hold by then (`Tables.held`).

    Args:
        config: what places the rows.
        groups: the tables of each width, and the bytes of one of their rows.
        servers: number of servers.

    Raises:
        ConfigError: it cannot place these tables.
    """
    first, *others = (replace(tables, row_bytes=row_bytes) for tables, row_bytes in groups)
    if (place_all := getattr(_placement_class(config), "place_all", None)) is not None:
        with PLACEMENTS.blaming(config.placement, f"its place_all() fails for {counted(servers, 'server')}"):
            found: Sequence[RowPartition] = place_all((first, *others), servers, config.settings)
        if len(found) != 1 + len(others):
            cure = f"its place_all() returns {len(found)} partitions for {1 + len(others)} widths; return one for each"
            raise SettingError(PLACEMENTS.key, config.placement, cure)
        return tuple(found)
    partitions, held_bytes, row_bytes = [place_rows(config, first, servers)], [0] * servers, first.row_bytes
    for tables in others:
        with PLACEMENTS.blaming(config.placement, f"its rows_on() fails for {counted(servers, 'server')}"):
            held_bytes = [held + partitions[-1].rows_on(server) * row_bytes for server, held in enumerate(held_bytes)]
        row_bytes = tables.row_bytes
        held = tuple(held // row_bytes for held in held_bytes)
        partitions.append(place_rows(config, replace(tables, held=held), servers))
    return tuple(partitions)


def check_partition(partition: RowPartition, config: TablesConfig, tables: Tables, servers: int) -> None:
    """Check that a partition keeps its laws.

    The servers hold as many rows as there are, and `owner` and `offset` give back the server and the position that
    `rows_of` was asked for. Where that holds for every position, each row lies at one place, and at no other.

    Args:
        partition: what `place_rows` has made.
        config: what names it.
        tables: the tables.
        servers: number of servers.

    Raises:
        SettingError: it breaks one of them, and the message names a row; or it raises an error.
    """
    with PLACEMENTS.blaming(config.placement, "its partition fails"):
        _check_laws(partition, config, tables, servers)


def _check_laws(partition: RowPartition, config: TablesConfig, tables: Tables, servers: int) -> None:
    """As `check_partition`, but errors that the partition raises come through as they are."""

    def broken(problem: str) -> NoReturn:
        raise SettingError(
            PLACEMENTS.key, config.placement, f"{problem}; correct the class by docs/extending.md, or use round_robin"
        )

    if missing := [name for name in _MEMBERS if not hasattr(partition, name)]:
        broken(f"what its place() returns has no {missing[0]}")
    if partition.servers != servers:
        broken(f"its partition has {partition.servers} servers instead of {servers}")
    held = [partition.rows_on(server) for server in range(servers)]
    total = tables.total_rows
    if min(held) < 0 or sum(held) != total:
        broken(f"its servers hold {sum(held)} rows, {min(held)} to {max(held)} each, and the tables have {total}")

    def places_of(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        given = rows.copy()
        owners, offsets = partition.owner(rows), partition.offset(rows)
        if not np.array_equal(rows, given):
            broken("its owner or offset changes the rows that it is given, which others read")
        for name, found in (("owner", owners), ("offset", offsets)):
            if found.shape != rows.shape or found.dtype != np.int64:
                broken(f"{name} of int64 {list(rows.shape)} is {found.dtype} {list(found.shape)}: must be the same")
        return owners, offsets

    places_of(np.empty(0, dtype=np.int64))
    for server, first, last in _pieces(held, exhaustive=total <= _ALL_ROWS):
        rows = partition.rows_of(server, first, last)
        positions = np.arange(first, last, dtype=np.int64)
        if rows.shape != positions.shape or rows.dtype != np.int64:
            broken(f"rows_of({server}, {first}, {last}) is {rows.dtype} {list(rows.shape)}: must be int64")
        is_row = (rows >= 0) & (rows < total)
        if not is_row.all():
            wrong = int(np.argmin(is_row))
            broken(f"rows_of names row {rows[wrong]} at position {first + wrong} of server {server}: there is none")
        owners, offsets = places_of(rows)
        is_right = (owners == server) & (offsets == positions)
        if not is_right.all():
            wrong = int(np.argmin(is_right))
            broken(
                f"row {rows[wrong]} is at position {first + wrong} of server {server} by rows_of, and at position "
                f"{offsets[wrong]} of server {owners[wrong]} by offset and owner"
            )
    rows = _some_rows(tables)
    for row, owner, offset in zip(rows.tolist(), *(places.tolist() for places in places_of(rows)), strict=True):
        if not (0 <= owner < servers and 0 <= offset < held[owner]):
            broken(f"row {row} is at position {offset} of server {owner} by offset and owner: there is no such place")
        if partition.rows_of(owner, offset, offset + 1).tolist() != [row]:
            broken(f"row {row} is at position {offset} of server {owner} by offset and owner, and not by rows_of")


def partition_mark(partition: RowPartition, tables: Tables) -> int:
    """A checksum of some rows' places, by which ranks see whether they have made the same partition."""
    rows = _some_rows(tables)
    return crc32(np.concatenate((partition.owner(rows), partition.offset(rows))).tobytes())


def require_same_partition(partition: RowPartition, config: TablesConfig, tables: Tables, mark: int) -> None:
    """Check that this rank has made the partition that the oracle has made.

    Raises:
        SettingError: it is another: trainers would take one row for another in silence.
    """
    if partition_mark(partition, tables) != mark:
        raise SettingError(
            PLACEMENTS.key,
            config.placement,
            "its place() gives different ranks different partitions; let it depend on nothing but its arguments",
        )


def _pieces(held: list[int], *, exhaustive: bool) -> Iterator[tuple[int, int, int]]:
    """Server, first and last position of the pieces that are looked at."""
    rng = np.random.default_rng(0)
    for server, rows in enumerate(held):
        starts = [0, max(0, rows - _PIECE), *rng.integers(0, max(1, rows), _PIECES).tolist()]
        for first in range(0, rows, _PIECE) if exhaustive else starts:
            if first < rows:
                yield server, first, min(first + _PIECE, rows)


def _some_rows(tables: Tables) -> NDArray[np.int64]:
    """Rows at the bounds of some tables, and others."""
    bounds = tables.offsets[1:]
    some = bounds[:: max(1, len(bounds) // _SINGLE_ROWS)]
    others = np.random.default_rng(1).integers(0, tables.total_rows, _SINGLE_ROWS)
    return np.unique(np.clip(np.concatenate((some - 1, some, others)), 0, tables.total_rows - 1))
