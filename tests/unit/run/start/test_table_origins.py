"""Rows of a checkpoint come to their places in tables that have grown, or whose ids mean other values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bagpipe_hpc.rows.groups import table_groups
from bagpipe_hpc.rows.partition import RoundRobinPartition, RowPartition, Tables
from bagpipe_hpc.rows.ranges import ContiguousPartition, TablePartition
from bagpipe_hpc.run.start import table_origins
from bagpipe_hpc.run.start.table_origins import Origins, SavedTables, TableOrigin, ids_by_value
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from bagpipe_hpc.storage.vocabularies.vocabulary import TableVocabulary
from tests.drawing import share_of
from tests.unit.checkpoint_samples import sample_tables, write_tables

ROWS, WIDTHS = (5, 3, 7, 4), (4, 2, 4, 2)
NEW = np.float32(-7.0)
"""In place of what the seed gives."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("earlier"), sample_tables(ROWS, WIDTHS))


def shards_of(tables: Tables) -> ShardManifest:
    infos = tuple(TableInfo(name, rows) for name, rows in zip(tables.names, tables.rows, strict=True))
    return ShardManifest(1, "criteo", 3, infos, (ShardInfo("train-00000.h5", 10, 1, 1, "0" * 64),), ())


def laid_over(
    origins: Origins, tables: Tables, widths: tuple[int, ...], placement: type[RowPartition], servers: int
) -> dict[str, np.ndarray]:
    """The records of each table, as all servers have them."""
    found = {}
    for group in table_groups(tables, widths):
        partition = placement.place(group.tables, servers, None)
        records = np.empty((group.total_rows, 2 * group.width + 1), np.float32)
        for server in range(servers):
            window = np.full((partition.rows_on(server), records.shape[1]), NEW)
            origins.lay_over(group, partition, server, window, (Path("nowhere"), shards_of(tables)))
            records[partition.rows_of(server, 0, len(window))] = window
        for name, first, rows in zip(
            group.tables.names, group.tables.offsets.tolist(), group.tables.rows, strict=False
        ):
            found[name] = records[first : first + rows]
    shards = Path("nowhere"), shards_of(tables)
    for origin in origins.tables:
        rows_before = ROWS[int(origin.table[1:]) - 1]
        taken = np.count_nonzero(found[origin.table][:, 0] != NEW)
        assert origins.rows_taken(origin.table, rows_before, shards) == taken
    return found


@pytest.mark.parametrize("placement", [RoundRobinPartition, ContiguousPartition, TablePartition])
@pytest.mark.parametrize("servers", [1, 3])
@given(st.tuples(*[st.integers(0, 4)] * len(ROWS)), st.permutations(range(len(ROWS))), st.booleans())
@settings(max_examples=share_of(10), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_row_that_was_there_has_its_record_and_another_is_new(
    checkpoint: Path,
    placement: type[RowPartition],
    servers: int,
    more: tuple[int, ...],
    order: list[int],
    with_state: bool,
) -> None:
    """Tables grow, and stand in another order."""
    names = tuple(f"C{number + 1}" for number in order)
    tables = Tables(tuple(ROWS[number] + more[number] for number in order), names)
    widths = tuple(WIDTHS[number] for number in order)
    origins = tuple(TableOrigin(f"C{number + 1}") for number in range(len(ROWS)))
    found = laid_over(
        Origins(SavedTables(load_checkpoint(checkpoint), with_state), origins), tables, widths, placement, servers
    )
    for number, earlier in enumerate(sample_tables(ROWS, WIDTHS)):
        width, records = WIDTHS[number], found[f"C{number + 1}"]
        columns = slice(None) if with_state else slice(0, width)
        assert np.array_equal(records[: len(earlier), columns], earlier[:, columns])
        assert (records[len(earlier) :] == NEW).all()
        assert with_state or (records[:, width:] == NEW).all()


def test_ids_that_are_no_longer_and_tables_without_an_origin_begin_anew(checkpoint: Path) -> None:
    tables = Tables((3, 3, 2), ("C1", "C9", "C2"))
    rows = SavedTables(load_checkpoint(checkpoint), with_state=True)
    origins = Origins(rows, (TableOrigin("C1"), TableOrigin("C2")))
    found = laid_over(origins, tables, (4, 4, 2), RoundRobinPartition, 2)
    earlier = sample_tables(ROWS, WIDTHS)
    assert np.array_equal(found["C1"], earlier[0][:3])
    assert np.array_equal(found["C2"], earlier[1][:2])
    assert (found["C9"] == NEW).all()


@pytest.mark.parametrize("says_values_itself", [False, True])
def test_rows_go_where_their_values_are(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, says_values_itself: bool
) -> None:
    """Those of one table by value, those of another by id; each is read in pieces."""
    monkeypatch.setattr(table_origins, "stream_rows", lambda _: 2)
    earlier = {"C1": np.array([50, 10, 40, 20], np.uint32)}
    later = {"C1": np.array([10, 99, 20, 50, 98], np.uint32)}
    monkeypatch.setattr(table_origins, "load_manifest", lambda path: path)

    def read(path: Path, _: object, name: str) -> TableVocabulary:
        return TableVocabulary((earlier if path == Path("before") else later)[name])

    class Exported:
        def vocabulary(self, table: str) -> TableVocabulary:
            return TableVocabulary(earlier[table])

    monkeypatch.setattr(table_origins, "read_table_vocabulary", read)
    monkeypatch.setattr(table_origins, "ExportedModel", Exported)
    values_of: Any = Exported() if says_values_itself else Path("before")
    origins = TableOrigin("C1", values_of), TableOrigin("C3")
    tables = Tables((6, 7), ("C1", "C3"))
    found = laid_over(
        Origins(SavedTables(load_checkpoint(checkpoint), with_state=True), origins),
        tables,
        (4, 4),
        RoundRobinPartition,
        2,
    )
    first, third = (sample_tables(ROWS, WIDTHS)[number] for number in (0, 2))
    assert np.array_equal(found["C1"][[0, 1, 3, 4]], first[[0, 2, 4, 1]])
    assert (found["C1"][[2, 5]] == NEW).all()
    assert np.array_equal(found["C3"], third)


def test_an_id_that_went_to_another_value_begins_anew(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the vocabulary has grown out of the checkpoint's: later rows with the same one may say that, too."""
    reborn = {"C1": np.array([1, 3, 5, 6]), "C3": np.empty(0, np.int64)}
    monkeypatch.setattr(table_origins, "read_reborn", lambda _, __, name: reborn[name])
    tables, origins = Tables((7, 7), ("C1", "C3")), (TableOrigin("C1"), TableOrigin("C3"))
    rows = SavedTables(load_checkpoint(checkpoint), with_state=True)
    grown = laid_over(Origins(rows, origins, has_grown=True), tables, (4, 4), RoundRobinPartition, 2)
    same = laid_over(Origins(rows, origins), tables, (4, 4), RoundRobinPartition, 2)
    first = sample_tables(ROWS, WIDTHS)[0]
    assert np.array_equal(grown["C1"][[0, 2, 4]], first[[0, 2, 4]])
    assert (grown["C1"][[1, 3, 5, 6]] == NEW).all()
    assert np.array_equal(same["C1"][:5], first)
    assert np.array_equal(grown["C3"], same["C3"])


@st.composite
def vocabularies(draw: st.DrawFn) -> TableVocabulary:
    """Some values, buckets of others, and ids that no value has."""
    values, buckets = draw(st.lists(st.text(max_size=2), unique=True)), draw(st.integers(0, 2))
    ids = 1 + buckets + np.arange(len(values) + draw(st.integers(0, 3)))
    free = draw(st.permutations(ids.tolist()))[: len(ids) - len(values)]
    return TableVocabulary(np.array(values, object), buckets, np.array(sorted(free), np.int64))


@given(vocabularies(), vocabularies())
def test_a_value_keeps_its_row_whatever_its_ids_are(earlier: TableVocabulary, later: TableVocabulary) -> None:
    expected = [-1] * earlier.rows
    expected[0] = 0
    if earlier.unseen_buckets == later.unseen_buckets:
        expected[: 1 + earlier.unseen_buckets] = range(1 + earlier.unseen_buckets)
    ids = dict(zip(later.values, later.ids.tolist(), strict=True))
    for value, number in zip(earlier.values, earlier.ids.tolist(), strict=True):
        expected[number] = ids.get(value, -1)
    assert ids_by_value(earlier, later).tolist() == expected


def test_texts_are_no_numbers() -> None:
    texts, numbers = TableVocabulary(np.array(["1"], object)), TableVocabulary(np.array([1], np.int64))
    assert ids_by_value(texts, numbers).tolist() == [0, -1]
