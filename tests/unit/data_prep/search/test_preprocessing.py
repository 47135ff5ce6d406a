"""`bagpipe search-preprocessing`: from files to a schema that `prepare` takes, without a look at test rows."""

import csv
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.errors import ConfigError, DataError
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from data_prep.schema.columns import NumericColumn
from data_prep.schema.document import load_schema, to_document
from data_prep.search.sampled_rows import label_of, read_sample
from tests.unit.data_prep.search.planted import GROUPS, planted_rows

SCHEMA = """
[file]
missing = ["NA"]
[columns]
item = { kind = "categorical" }
click = { kind = "label" }
""" + "".join(f'x{number} = {{ kind = "numeric" }}\n' for number in range(len(GROUPS)))
DERIVED = """
[derived]
near = { kind = "numeric", from = "x1", clip = [-1, 1] }
pair = { kind = "categorical", from = "x1", bucketise = [0] }
"""


def write_rows(folder: Path, rows: int, schema: str = SCHEMA) -> tuple[str, str]:
    """A schema and a file of the planted rows, some of whose numbers are missing."""
    planted = planted_rows(rows)
    columns = [numbers.to_pylist() for numbers in planted.numbers]
    lines = [",".join(["click", *(f"x{number}" for number in range(len(GROUPS))), "item"])]
    for number in range(rows):
        fields = ["NA" if (number + place) % 19 == 0 else repr(c[number]) for place, c in enumerate(columns)]
        lines.append(",".join([str(int(planted.labels[number])), *fields, f"v{number % 3}"]))
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "given.toml").write_text(schema)
    return str(folder / "given.toml"), str(folder / "rows.csv")


def command(folder: Path, *others: str) -> list[str]:
    return [
        "search-preprocessing", "--schema", str(folder / "given.toml"), "--input", str(folder / "rows.csv"),
        "--output", str(folder / "found.toml"), "--clusters", "2", "--episodes", "3", "--draws", "8", *others,
    ]  # fmt: skip


def test_files_become_a_schema_that_prepare_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, rows = write_rows(tmp_path, 600, SCHEMA + DERIVED)
    assert main(command(tmp_path, "--tried", str(tmp_path / "tried.csv"))) == 0
    told = capsys.readouterr()
    assert "432 rows for training, 108 for validation, 6 numeric columns" in told.err
    assert "as given: log loss" in told.out
    found = load_schema(str(tmp_path / "found.toml"))
    before = load_schema(given)
    numeric = [column for column in found.columns if isinstance(column, NumericColumn)]
    assert [column.name for column in found.columns] == [column.name for column in before.columns]
    assert [column for column in found.columns if column not in numeric] == list(before.columns[:2])
    assert found.file == before.file
    assert found.derived[:2] == before.derived
    assert all(column.missing == 0 or column.fill for column in numeric)
    with (tmp_path / "tried.csv").open(newline="") as stream:
        tried = list(csv.DictReader(stream))
    assert len(tried) == 24
    best = min(float(one["log_loss"]) for one in tried)
    assert f"log loss {best:.5f}" in told.out
    assert f"log loss {best:.5f}" in (tmp_path / "found.toml").read_text()
    settings = PrepareSettings("schema", schema=to_document(found), min_count=1)
    manifest = prepare_clicks([rows], tmp_path / "shards", settings, lambda _: None)
    assert manifest.rows("train") == 540
    further = [word.replace("given.toml", "found.toml") for word in command(tmp_path)]
    further[further.index("--output") + 1] = str(tmp_path / "more.toml")
    assert main([*further, "--episodes", "1"]) == 0  # a schema with indicators is searched again, and has them once
    names = [column.name for column in load_schema(str(tmp_path / "more.toml")).derived]
    assert len(set(names)) == len(names)


def test_a_schema_that_nothing_beats_is_written_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = SCHEMA
    for number, group in enumerate(GROUPS):
        keys = "log = true, standardise = true" if group == 0 else "standardise = true"
        best = best.replace(f'x{number} = {{ kind = "numeric" }}', f'x{number} = {{ kind = "numeric", {keys} }}')
    given, _ = write_rows(tmp_path, 600, best)
    assert main([*command(tmp_path), "--clusters", "1", "--fits", "3"]) == 0
    assert "nothing was better" in capsys.readouterr().out
    assert load_schema(str(tmp_path / "found.toml")) == load_schema(given)


@pytest.mark.parametrize("total", [300, 301, 1000])
@pytest.mark.parametrize("test_fraction", [0.0, 0.1, 0.37])
def test_no_row_that_prepare_keeps_for_tests_is_kept(tmp_path: Path, total: int, test_fraction: float) -> None:
    given, rows = write_rows(tmp_path, total)
    schema = load_schema(given)
    kept = read_sample([rows], schema, "click", 280, test_fraction, 0.25)
    of_prepare = total - round(test_fraction * total)
    assert len(kept.labels) <= min(280, of_prepare)
    assert len(kept.labels) >= min(280, of_prepare) - 1
    assert kept.train == len(kept.labels) - round(0.25 * len(kept.labels))
    planted = planted_rows(total)
    assert kept.labels.tolist() == planted.labels[: len(kept.labels)].tolist()
    numbers = [math.nan if x is None else x for x in kept.numbers[2].to_pylist()]
    expected = np.array(planted.numbers[2].to_pylist())[: len(numbers)]
    expected[(np.arange(len(numbers)) + 2) % 19 == 0] = np.nan
    np.testing.assert_array_equal(numbers, expected)


def test_parquet_is_read_like_text(tmp_path: Path) -> None:
    given, rows = write_rows(tmp_path, 300)
    schema = load_schema(given)
    text = read_sample([rows], schema, "click", 200, 0.1, 0.25)
    lines = [line.split(",") for line in Path(rows).read_text().splitlines()]
    columns = dict(zip(lines[0], zip(*lines[1:], strict=True), strict=True))
    table = {
        name: values if name == "item" else [None if x == "NA" else float(x) for x in values]
        for name, values in columns.items()
    }
    table["click"] = [int(label) for label in table["click"]]
    pa_parquet.write_table(pa.table(table), tmp_path / "rows.parquet")
    read = read_sample([str(tmp_path / "rows.parquet")], schema, "click", 200, 0.1, 0.25)
    assert [numbers.to_pylist() for numbers in read.numbers] == [numbers.to_pylist() for numbers in text.numbers]
    assert read.labels.tolist() == text.labels.tolist()


def test_what_cannot_be_searched_is_refused_with_a_cure(tmp_path: Path) -> None:
    given, rows = write_rows(tmp_path, 300)
    schema = load_schema(given)
    with pytest.raises(ConfigError, match="--label buy: the schema has no such label; use one of click"):
        label_of(schema, "buy")
    with pytest.raises(ConfigError, match="--validation-fraction 0: use more than 0"):
        read_sample([rows], schema, "click", 200, 0.1, 0)
    with pytest.raises(
        ConfigError, match=r"--test-fraction 0\.9999999999999999: leaves no rows to search by; use less"
    ):
        read_sample([rows], schema, "click", 200, 0.9999999999999999, 0.2)
    with pytest.raises(DataError, match="50 training rows are too few to search by; give 100 or more"):
        read_sample([rows], schema, "click", 50, 0.1, 0.2)
    text = Path(rows).read_text().splitlines()
    text[7] = text[7].replace(",", ",dear", 1)
    Path(rows).write_text("\n".join(text) + "\n")
    with pytest.raises(DataError, match=r"rows.csv:8: x0 is 'dear.* which is no number; correct the row"):
        read_sample([rows], schema, "click", 200, 0.1, 0.2)


@pytest.mark.parametrize(
    ("others", "fault"),
    [
        (["--output", "{folder}/given.toml"], "given.toml: is there already; choose another file"),
        (["--tried", "{folder}/none/tried.csv"], "there is no folder .*none; make it first"),
        (["--tried", "/proc/tried.csv"], "--tried = '/proc/tried.csv' cannot be written: /proc: "),
        (["--tried", "{folder}/../{folder.name}/found.toml"], "found.toml: is --output as well; choose another file"),
    ],
)
def test_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], others: list[str], fault: str
) -> None:
    write_rows(tmp_path, 300)
    assert main(command(tmp_path, *(word.format(folder=tmp_path) for word in others))) != 0
    assert re.search(fault, capsys.readouterr().err)


def test_all_rows_may_be_asked_for(tmp_path: Path) -> None:
    given, rows = write_rows(tmp_path, 300)
    assert len(read_sample([rows], load_schema(given), "click", (1 << 63) - 1, 0.1, 0.2).labels) == 270


def test_there_are_no_more_groups_than_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path, 300)
    tried = tmp_path / "tried.csv"
    assert main([*command(tmp_path, "--tried", str(tried)), "--clusters", "50", "--fits", "3"]) == 0
    assert "note: 6 groups at most instead of 50, one for each column to search" in capsys.readouterr().err
    assert len(tried.read_text().splitlines()) > 3


def test_a_column_with_the_name_of_an_indicator_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path, 300, SCHEMA + '[derived]\nx1_is_missing = { kind = "numeric", from = "x2" }\n')
    assert main(command(tmp_path)) != 0
    assert "derived.x1_is_missing: the search may need this name" in capsys.readouterr().err
    assert not (tmp_path / "found.toml").exists()
