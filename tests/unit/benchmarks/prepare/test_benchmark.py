"""The figures of `python -m benchmarks prepare` are what its runs took."""

import argparse
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.report import Report
from benchmarks.prepare import benchmark
from benchmarks.prepare.benchmark import Cost
from benchmarks.prepare.texts import SPLIT, Text, criteo_text, schema_text
from data_prep.generate import generate_clicks


def _arguments(**chosen: Any) -> argparse.Namespace:
    defaults = {"clicks": None, "rows": 300, "quick": False, "runs": 1, "schema": [], "ranks": [], "path": None}
    return argparse.Namespace(**defaults | chosen)


@pytest.mark.slow
def test_every_contender_reads_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_clicks(300, tmp_path / "clicks.tsv")
    packed = tmp_path / "clicks.gz"
    packed.write_bytes(gzip.compress((tmp_path / "clicks.tsv").read_bytes()))
    shard_rows = _counted_rows(monkeypatch)
    report = benchmark.run(_arguments(clicks=packed, rows=1, quick=True))
    found = report.figures["texts"]["criteo"]
    assert found["rows"] == 300
    assert len(found["contenders"]) == 8
    assert shard_rows == [270] * 12  # six preparations, each once untimed
    for figures in found["contenders"].values():
        assert figures["rows_per_s"] > 0
    assert found["contenders"]["vocabularies, no compression"]["shard_bytes_per_row"] >= 157


@pytest.mark.slow
def test_each_schema_has_a_text_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shard_rows = _counted_rows(monkeypatch)
    report = benchmark.run(_arguments(rows=200, schema=["avazu", "movielens"]))
    texts = report.figures["texts"]
    assert [text["rows"] for text in texts.values()] == [200, 200]
    assert list(texts) == ["avazu", "movielens"]
    assert shard_rows == [180] * 8  # two preparations of each, each once untimed
    assert sum("200 rows of text" in line for line in report.lines) == 2


@pytest.mark.parametrize("schema", ["avazu", "movielens", "criteo"])
def test_the_bare_parser_reads_the_rows_and_columns_that_a_preparation_uses(schema: str, tmp_path: Path) -> None:
    text = schema_text(schema, 150, tmp_path)
    table = _parsed(text)
    assert len(table) == 150
    columns = {"avazu": 23, "movielens": 7, "criteo": 40}[schema]
    assert table.num_columns == columns  # of Avazu's 24 all but `id`, which is not used
    again = tmp_path / "again"
    again.mkdir()
    of_file = schema_text(schema, 1, again, text.file)
    assert (of_file.rows, _parsed(of_file)) == (150, table)


def test_criteos_text_and_its_schema_have_the_same_rows(tmp_path: Path) -> None:
    for name in ("plain", "schema"):
        (tmp_path / name).mkdir()
    plain = criteo_text(None, 100, tmp_path / "plain")
    described = schema_text("criteo", 1, tmp_path / "schema", plain.file)
    assert described.rows == 100
    assert _parsed(plain).drop_columns(["label"]) == _parsed(described).drop_columns(["label"])


def test_the_command_is_measured_on_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[int], list[str]]] = []

    def run_ranks(ranks: list[int], link: object, command: list[str | Path], share: Path) -> str:  # noqa: ARG001
        started.append((ranks, [Path(word).name for word in command[1:]]))
        return ""

    monkeypatch.setattr(benchmark, "run_ranks", run_ranks)
    report = benchmark.run(_arguments(schema=["movielens"], ranks=[1, 2], path=tmp_path))
    assert [ranks for ranks, _ in started] == [[1], [2], [1], [2]]
    what = ["-m", "bagpipe_hpc", "prepare", "--schema", "movielens", "--input", "clicks.csv", "--output"]
    assert [words for _, words in started[:2]] == [
        [*what, "the command, 1 rank"],
        [*what, "the command, 2 ranks"],
    ]
    contenders = report.figures["texts"]["movielens"]["contenders"]
    assert list(contenders)[3:] == ["the command, 1 rank", "the command, 2 ranks"]
    assert list(tmp_path.iterdir()) == []


def test_lists_are_split_into_their_values(tmp_path: Path) -> None:
    """Of integers and of texts; where there are none, nothing is split."""
    text = schema_text("movielens", 50, tmp_path)
    rows = pa_csv.read_csv(text.file, **text.options)
    history, genres = text._split_lists(rows.combine_chunks().to_batches()[0])
    names = {column.name: column.separator for column in text.lists}
    assert list(names) == ["history", "genres"]
    lists = {name: rows.column(name).cast(pa.string()).drop_null().to_pylist() for name in names}
    values = {name: [value for line in lists[name] for value in line.split(names[name])] for name in names}
    assert history.to_pylist() == [int(value) for value in values["history"] if value]
    assert genres.to_pylist() == values["genres"]
    assert SPLIT in text.bare_parsers()
    (tmp_path / "avazu").mkdir()
    assert SPLIT not in schema_text("avazu", 50, tmp_path / "avazu").bare_parsers()


def test_a_file_is_of_one_schema(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is one text; give one --schema"):
        benchmark.run(_arguments(clicks=tmp_path / "clicks.csv", schema=["avazu", "movielens"]))


def test_fractions_are_taken_within_a_turn(tmp_path: Path) -> None:
    turns = [
        {"bare parser, streaming": Cost(seconds, seconds), "vocabularies, lzf": Cost(2 * seconds, 4 * seconds)}
        for seconds in (1.0, 10.0, 2.0)
    ]
    report = Report("prepare", {"threads": 2})
    text = Text("criteo", tmp_path, 1_000_000, {}, {}, ())
    assert benchmark._add_table(report, text, turns, {"vocabularies, lzf": 65_000_000}) == {
        "bare parser, streaming": {
            "rows_per_s": 500_000,
            "cpu_us_per_row": 2.0,
            "fraction_of_stream": 1.0,
            "fraction_of_stream_cpu": 1.0,
        },
        "vocabularies, lzf": {
            "rows_per_s": 250_000,
            "cpu_us_per_row": 8.0,
            "fraction_of_stream": 0.5,
            "fraction_of_stream_cpu": 0.25,
            "shard_bytes_per_row": 65.0,
        },
    }
    assert "50%" in report.lines[-1]


def _counted_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The training rows of each preparation, which goes on as it is."""
    rows: list[int] = []
    prepare_clicks: Callable[..., Any] = benchmark.prepare_clicks
    monkeypatch.setattr(benchmark, "prepare_clicks", lambda *given: rows.append(prepare_clicks(*given).rows("train")))
    return rows


def _parsed(text: Text) -> pa.Table:
    """What the bare parser gives."""
    return pa_csv.read_csv(text.file, **text.options)
