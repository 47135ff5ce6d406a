"""Looks at a format of a user's own: rows that it parses itself, what it takes from them, what it makes of them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from bagpipe_hpc.errors import ConfigError, DataError
from data_prep.formats.columns import Dense, Label, Sparse, Values
from data_prep.formats.delimited import BadLine
from data_prep.formats.layout import TextLayout
from data_prep.formats.source_format import Refine, SourceFormat
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings


def silent(_: str) -> None:
    """Takes the progress."""


class OwnParser(SourceFormat):
    """Gives what a test wants of each block; two rows of a label, a number and an id by itself."""

    change: Callable[[pa.RecordBatch], object] = staticmethod(lambda batch: (batch, []))

    def describe(self, settings: object) -> TextLayout:  # noqa: ARG002
        return TextLayout((Label("y"), Dense("x"), Sparse("user", Values.INTEGER)))

    def parse_block(self, text: bytes) -> tuple[pa.RecordBatch, list[BadLine]]:
        count = text.count(b"\n")
        dense = pa.FixedSizeListArray.from_arrays(pa.array([0.5] * count, pa.float32()), 1)
        arrays = [pa.array([1] * count, pa.uint8()), dense, pa.array(range(count), pa.int64())]
        found: Any = type(self).change(pa.record_batch(arrays, schema=self.schema))
        return found


def with_column(number: int, values: pa.Array) -> Callable[[pa.RecordBatch], Any]:
    """Rows with another column."""
    return lambda batch: (batch.set_column(number, batch.schema.field(number).with_type(values.type), values), [])


NUMBERS = pa.list_(pa.float32(), 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda _: None, "NoneType: return a pyarrow.RecordBatch, and a list of BadLine"),
        (lambda batch: batch, "RecordBatch: return a pyarrow.RecordBatch, and a list"),
        (lambda batch: (batch, ["bad"]), r"\['RecordBatch', 'list'\]: return"),
        (
            with_column(2, pa.array([1, 2], pa.int32())),
            r"columns .*user: int32: it must be .*user: int64 \(self",
        ),
        (with_column(0, pa.array([7, 0], pa.uint8())), "a label of 7: it must be 0 or 1"),
        (with_column(0, pa.array([None, 0], pa.uint8())), "a label that is null: leave such rows out"),
        (with_column(1, pa.array([[0.5], [float("nan")]], NUMBERS)), "a dense of nan: it must be finite"),
        (with_column(1, pa.array([[0.5], None], NUMBERS)), "a dense that is null"),
    ],
)
def test_wrong_rows_of_a_format_that_parses_itself_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[pa.RecordBatch], object], problem: str
) -> None:
    """They would stand in the shards, or end the preparation in a traceback."""
    source = tmp_path / "rows"
    source.write_text("a\nb\n", encoding="utf-8")
    settings = PrepareSettings(f"{__name__}:OwnParser", min_count=1, test_fraction=0)
    assert prepare_clicks([str(source)], tmp_path / "right", settings, silent).rows("train") == 2
    monkeypatch.setattr(OwnParser, "change", staticmethod(change))
    with pytest.raises(DataError, match=rf"rows: --format = '{__name__}:OwnParser': of a block it gives {problem}"):
        prepare_clicks([str(source)], tmp_path / "wrong", settings, silent)


def test_a_format_that_fails_in_a_block_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "rows"
    source.write_text("a\nb\n", encoding="utf-8")
    monkeypatch.setattr(OwnParser, "change", staticmethod(lambda batch: batch["nothing"]))
    with pytest.raises(DataError, match=r"rows: --format = .*: parsing a block fails: KeyError: .*\(test_checked"):
        prepare_clicks([str(source)], tmp_path / "out", PrepareSettings(f"{__name__}:OwnParser"), silent)


class OwnNumbers(SourceFormat):
    """Takes what a test wants from the training rows, and makes of each batch what a test wants."""

    taken: ClassVar[Any] = {"means": (0.5,)}
    change: Callable[[pa.RecordBatch], object] = staticmethod(lambda batch: batch)

    def describe(self, settings: object) -> TextLayout:  # noqa: ARG002
        return TextLayout((Label("y"), Dense("x"), Sparse("user", Values.INTEGER)))

    def fit(self, parts: object) -> Any:  # noqa: ARG002
        return type(self).taken() if callable(type(self).taken) else type(self).taken

    def refinement(self, fitted: Mapping[str, Any]) -> Refine:
        assert fitted == {"means": [0.5]}, "as the manifest gives it back"
        found: Any = type(self).change
        return found


OWN_NUMBERS = PrepareSettings(f"{__name__}:OwnNumbers", min_count=1, test_fraction=0)


def test_what_a_format_takes_is_what_the_manifest_gives_back(tmp_path: Path) -> None:
    source = tmp_path / "rows"
    source.write_text("1\t0.25\t7\n0\t0.5\t8\n", encoding="utf-8")
    manifest = prepare_clicks([str(source)], tmp_path / "out", OWN_NUMBERS, silent)
    assert (manifest.settings or {})["fitted"] == {"means": [0.5]}
    later = PrepareSettings(like=tmp_path / "out")
    assert prepare_clicks([str(source)], tmp_path / "later", later, silent).rows("test") == 2


def fails() -> None:
    """As a user's own code may."""
    raise KeyError("price")


@pytest.mark.parametrize(
    ("taken", "problem"),
    [
        (fails, r"its fit\(\) fails: KeyError: 'price' \(test_checked_rows"),
        ([0.5], r"its fit\(\) gives a list: return a dict, or None"),
        ({"means": {0.5}}, r"its fit\(\) gives what JSON does not hold: .* set .*: return"),
        ({"means": float("nan")}, r"its fit\(\) gives what JSON does not hold: Out of range.*: return"),
        ({"means": [0.75]}, r"its refinement\(\) fails: AssertionError: as the manifest"),
    ],
)
def test_what_a_format_takes_in_a_wrong_way_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: Any, problem: str
) -> None:
    source = tmp_path / "rows"
    source.write_text("1\t0.25\t7\n", encoding="utf-8")
    monkeypatch.setattr(OwnNumbers, "taken", staticmethod(taken) if callable(taken) else taken)
    with pytest.raises(ConfigError, match=rf"--format = '{__name__}:OwnNumbers': {problem}"):
        prepare_clicks([str(source)], tmp_path / "out", OWN_NUMBERS, silent)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda batch: batch.slice(1), "its refinement gives 1 row for 2: give one for each"),
        (lambda _: None, "its refinement gives NoneType: return a pyarrow.RecordBatch"),
        (lambda batch: batch["nothing"], r"refining rows fails: KeyError: .*\(test_checked_rows"),
        (
            lambda batch: with_column(1, pa.array([[0.5], [float("inf")]], NUMBERS))(batch)[0],
            "its refinement gives a dense of inf: it must be finite",
        ),
        (
            lambda batch: with_column(2, pa.array([1, 2], pa.int32()))(batch)[0],
            r"its refinement gives columns .*user: int32: it must be .*user: int64 \(row_schema",
        ),
    ],
)
def test_wrong_rows_of_a_refinement_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[pa.RecordBatch], object], problem: str
) -> None:
    """They would stand in the shards, or end the preparation in a traceback."""
    source = tmp_path / "rows"
    source.write_text("1\t0.25\t7\n0\t0.5\t8\n", encoding="utf-8")
    monkeypatch.setattr(OwnNumbers, "change", staticmethod(change))
    with pytest.raises(DataError, match=rf"--format = '{__name__}:OwnNumbers': {problem}"):
        prepare_clicks([str(source)], tmp_path / "out", OWN_NUMBERS, silent)
