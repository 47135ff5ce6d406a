"""Ids of hashed tables are counted, some tables at a time, but for those that are too large."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from data_prep.backend import choose_backend
from data_prep.formats.columns import Values
from data_prep.formats.layout import IdRule, Table
from data_prep.formats.load import load_format
from data_prep.inputs.text_blocks import TextPosition
from data_prep.parsed_rows import ParsedRows, Part
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.vocabularies import hashed_counts
from data_prep.vocabularies.hashed_counts import count_hashed

LIMIT = 20


def written(folder: Path, columns: dict[str, pa.Array], parts: int) -> ParsedRows:
    """Parsed rows on disk: the same ones in each part."""
    batch = pa.RecordBatch.from_pydict(columns)
    found = [Part(0, number, len(batch), 1, TextPosition(), False, ()) for number in range(parts)]
    for part in found:
        with pa.OSFile(str(folder / part.file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as file:
            file.write_batch(batch)
    return ParsedRows(folder, found)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_counts_are_those_of_the_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setattr(hashed_counts, "MOST_COUNTED_ROWS", LIMIT)
    tables = [
        Table("A", Values.HEX, ("a", "b")),
        Table("B", Values.HEX, ("b",)),
        Table("large", Values.HEX, ("b",)),
        Table("C", Values.INTEGER, ("c",)),
        Table("D", Values.HEX, ("a",)),
    ]
    rules = [IdRule(1, -1, rows) for rows in (7, 13, LIMIT + 1, LIMIT, 2)]
    columns = {
        "a": pa.array([3, 3, None, 9], pa.uint32()),
        "b": pa.array([5, None, None, 3], pa.uint32()),
        "c": pa.array([-1, 1 << 40, None, 7], pa.int64()),
    }
    rows = written(tmp_path, columns, parts=3)
    chosen = choose_backend(backend, load_format("criteo", (), None)[0])[0]
    with ThreadPoolExecutor(2) as pool:
        found = list(count_hashed(pool, rows, 10, tables, rules, chosen))
    id_maps = chosen.id_maps(tables, [None] * len(tables), rules)
    for number, (table, rule) in enumerate(zip(tables, rules, strict=True)):
        expected = np.zeros(rule.hashed_rows, np.int64)
        for name in table.columns:
            values = pa.concat_arrays([columns[name]] * 3)[:10]
            ids = np.empty((10, 1), np.int64)
            id_maps.write_ids([values], [number], ids)
            expected += np.bincount(ids[:, 0], minlength=rule.hashed_rows)
        counts = found[number].counts
        if table.name == "large":
            assert counts is None
        else:
            assert counts is not None
            assert counts.tolist() == expected.tolist()


def test_tables_that_are_counted_together_stay_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed_counts, "MOST_COUNTED_ROWS", LIMIT)
    groups = list(hashed_counts._groups([7, 13, 21, 20, 2, 30, 31, 1, 1]))
    assert groups == [[0, 1], [], [3], [4], [], [], [7, 8]]


def test_tables_that_are_hashed_are_told_by_their_ids(tmp_path: Path) -> None:
    names = {"item": {}, "b": {"hash_rows": 7}, "a": {"hash_rows": 7}, "c": {"hash_rows": 5}}
    columns = [{"name": name, "kind": "categorical", **own} for name, own in names.items()]
    (tmp_path / "rows.csv").write_text("click,item,b,a,c\n0,x,p,p,p\n1,y,p,q,r\n")
    schema = {"columns": [{"name": "click", "kind": "label"}, *columns]}
    settings = PrepareSettings("schema", schema=schema, min_count=1, test_fraction=0)
    told: list[str] = []
    manifest = prepare_clicks([str(tmp_path / "rows.csv")], tmp_path / "out", settings, told.append)
    ids = manifest.table_rows[0]
    hashed = "c hashed to 5 ids each; b, a hashed to 7 ids each"
    assert f"built vocabularies of {ids} ids from 2 rows; {hashed}" in told
