"""Rows of Parquet files are read in blocks from any row to any other, and what is no such file is named."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

import data_prep.inputs.parquet_blocks
from bagpipe_hpc.errors import DataError
from data_prep.formats.criteo import Criteo
from data_prep.inputs.parquet_blocks import column_types, is_parquet, read_rows, row_group_bounds
from data_prep.inputs.text_blocks import TextPosition

ROWS = 50


@pytest.fixture
def clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of row groups of 20, 20 and 10 rows, read in blocks of at most 8."""
    monkeypatch.setattr(data_prep.inputs.parquet_blocks, "BLOCK_ROWS", 8)
    table = pa.table({"click": [row % 2 for row in range(ROWS)], "item": list(range(ROWS)), "page": ["x"] * ROWS})
    pa_parquet.write_table(table, tmp_path / "clicks", row_group_size=20)
    return tmp_path / "clicks"


def test_what_a_file_holds_is_known_before_it_is_read(clicks: Path) -> None:
    assert is_parquet(clicks)
    assert column_types(clicks) == {"click": pa.int64(), "item": pa.int64(), "page": pa.string()}
    assert row_group_bounds(clicks) == [0, 20, 40, 50]


@pytest.mark.parametrize(("first", "last"), [(0, None), (0, 50), (20, 40), (7, 43), (19, 20), (20, 20), (49, None)])
def test_any_range_of_rows_is_read_with_its_place(clicks: Path, first: int, last: int | None) -> None:
    at, items = first, []
    for block in read_rows(clicks, 3, ("item", "click"), first, last):
        assert block.columns.schema.names == ["item", "click"]
        assert 0 < len(block.columns) <= 8
        assert block.start == TextPosition(3, at, at)
        at += len(block.columns)
        assert block.end == TextPosition(3, at, at)
        items += block.columns.column("item").to_pylist()
    assert items == list(range(first, ROWS if last is None else last))


def test_blocks_do_not_depend_on_where_reading_began(clicks: Path) -> None:
    whole = [block.start.line for block in read_rows(clicks, 0, ("item",))]
    assert whole == [0, 8, 16, 20, 28, 36, 40, 48]
    assert [block.start.line for block in read_rows(clicks, 0, ("item",), 20)] == whole[3:]


def test_long_rows_come_in_smaller_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last rows of each batch, too; a row that is larger than a block is a block of its own."""
    monkeypatch.setattr(data_prep.inputs.parquet_blocks, "BLOCK_BYTES", 8000)
    lists = [[row] * length for row, length in enumerate([100] * 60 + [3000] * 5 + [1] * 5)]
    pa_parquet.write_table(pa.table({"item": lists}), tmp_path / "lists", row_group_size=40)
    blocks = list(read_rows(tmp_path / "lists", 0, ("item",), 3))
    assert [row for block in blocks for row in block.columns.column("item").to_pylist()] == lists[3:]
    assert [block.end for block in blocks[:-1]] == [block.start for block in blocks[1:]]
    assert all(block.columns.nbytes <= 8000 or len(block.columns) == 1 for block in blocks)
    assert len(blocks) < 20


def test_a_damaged_file_is_named(clicks: Path) -> None:
    clicks.write_bytes(clicks.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"/clicks: cannot be read as Parquet .*; it may be damaged or cut off"):
        list(read_rows(clicks, 0, ("item",)))


def test_damaged_rows_are_named(clicks: Path) -> None:
    contents = bytearray(clicks.read_bytes())
    contents[4:400] = bytes(396)
    clicks.write_bytes(contents)
    with pytest.raises(DataError, match=r"/clicks: cannot be read as Parquet"):
        list(read_rows(clicks, 0, ("item", "page")))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["item", "item"])
    pa_parquet.write_table(table, tmp_path / "clicks")
    with pytest.raises(DataError, match=r"/clicks: has two columns named 'item'"):
        column_types(tmp_path / "clicks")


def test_a_format_of_text_refuses_the_file(clicks: Path) -> None:
    with pytest.raises(DataError, match=r"/clicks: is a Parquet file, which this format does not read; .*--schema"):
        Criteo(None).open_input(clicks, native=True)
