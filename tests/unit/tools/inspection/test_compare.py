"""Every altered value is found, named and measured; nothing else is."""

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checkpoints import saved_rows
from bagpipe_hpc.tools.inspection.compare import PartDifference, compare
from tests.unit.checkpoint_samples import sample_records, sample_tables, trained_dense, write_checkpoint, write_tables

TABLES = (5, 1, 70)
ROWS = sum(TABLES)


@pytest.fixture(params=[1, 8 << 20], ids=["row by row", "in one piece"])
def _piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_rows, "STREAM_BYTES", request.param)


@pytest.mark.usefixtures("_piece")
def test_the_number_of_servers_makes_no_difference(tmp_path: Path) -> None:
    records = sample_records(TABLES, 5)
    one = write_checkpoint(tmp_path / "one", records, TABLES, servers=1)
    three = write_checkpoint(tmp_path / "three", records, TABLES, servers=3)
    comparison = compare(one, three)
    assert comparison.largest() == 0.0
    assert [table.values for table in comparison.tables] == [20, 4, 280]
    assert comparison.parts[0].values == ROWS
    assert all(part.differing == 0 and part.where == "" for part in (*comparison.tables, *comparison.parts))
    assert "3 of 3 embedding tables are equal; largest difference 0" in comparison.report()


def test_tables_that_are_called_otherwise_are_told(tmp_path: Path) -> None:
    records = sample_records(TABLES, 5)
    one, other = (write_checkpoint(tmp_path / name, records, TABLES) for name in ("one", "other"))
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps(manifest | {"table_names": ["C1", "user", "item"]}))
    comparison = compare(one, other)
    assert comparison.largest() == 0.0
    told = "Tables were matched by their order: C2 of the first is called user in the second."
    assert told in comparison.report().splitlines()
    assert "order" not in compare(one, one).report()


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize(("table", "row", "column"), [(0, 0, 0), (1, 0, 3), (2, 69, 1), (2, 17, 4)])
def test_one_altered_value_is_found_where_it_is(tmp_path: Path, table: int, row: int, column: int) -> None:
    records = np.linspace(-1, 1, ROWS * 5, dtype=np.float32).reshape(ROWS, 5)
    altered = records.copy()
    place = sum(TABLES[:table]) + row, column
    altered[place] += 0.125
    expected = float(np.float64(altered[place]) - np.float64(records[place]))
    comparison = compare(
        write_checkpoint(tmp_path / "one", records, TABLES, servers=2),
        write_checkpoint(tmp_path / "two", altered, TABLES, servers=3),
    )
    found = [part for part in (*comparison.tables, *comparison.parts) if part.differing]
    assert [part.part for part in found] == [f"table C{table + 1}" if column < 4 else "optimizer state of rows"]
    assert (found[0].largest, found[0].differing) == (expected, 1)
    assert found[0].where == f"table C{table + 1}, id {row}, column {column if column < 4 else 0}"
    assert comparison.largest() == expected


@pytest.mark.usefixtures("_piece")
def test_the_largest_of_many_is_named_and_all_are_counted(tmp_path: Path) -> None:
    records = np.zeros((ROWS, 5), np.float32)
    altered = records.copy()
    altered[6:40, :2] = 0.5
    altered[33, 1] = -2
    altered[2, 0] = 1
    comparison = compare(
        write_checkpoint(tmp_path / "one", records, TABLES), write_checkpoint(tmp_path / "two", altered, TABLES)
    )
    assert [table.differing for table in comparison.tables] == [1, 0, 68]
    assert comparison.tables[2].where == "table C3, id 27, column 1"
    lines = comparison.report().splitlines()
    assert "1 of 3 embedding tables are equal; largest difference 2" in lines[-1]
    (total,) = (line for line in lines if line.startswith("embedding tables"))
    assert " ".join(total.split()) == "embedding tables 2 69 of 304 table C3, id 27, column 1"
    assert len({line.index("table C3, id") for line in lines if "table C3, id" in line}) == 1


@pytest.mark.parametrize(
    ("value", "other", "difference", "differing"),
    [
        (math.nan, math.nan, math.inf, 1),
        (math.nan, 1.0, math.inf, 1),
        (math.inf, math.inf, 0.0, 0),
        (math.inf, -math.inf, math.inf, 1),
        (math.inf, 3.0, math.inf, 1),
        (0.0, -0.0, 0.0, 0),
        (3e38, -3e38, 2 * float(np.float32(3e38)), 1),
        (1e-45, 0.0, float(np.float32(1e-45)), 1),
    ],
)
def test_values_that_are_no_ordinary_numbers(
    tmp_path: Path, value: float, other: float, difference: float, differing: int
) -> None:
    one, two = (np.full((1, 1), number, np.float32) for number in (value, other))
    comparison = compare(
        write_checkpoint(tmp_path / "one", one, (1,), state_columns=0),
        write_checkpoint(tmp_path / "two", two, (1,), state_columns=0),
    )
    assert comparison.largest() == difference
    assert comparison.tables[0].differing == differing


ROWS_OF_WIDTHS, WIDTHS = (5, 3, 7, 2), (4, 2, 4, 2)


@pytest.mark.usefixtures("_piece")
@pytest.mark.parametrize(("table", "row", "column"), [(0, 4, 3), (1, 2, 1), (2, 0, 0), (3, 1, 4)])
def test_one_altered_value_in_a_table_of_any_width_is_found_where_it_is(
    tmp_path: Path, table: int, row: int, column: int
) -> None:
    tables = [np.ones_like(own) for own in sample_tables(ROWS_OF_WIDTHS, WIDTHS)]
    altered = copy.deepcopy(tables)
    altered[table][row, column] += 0.25
    one, two = write_tables(tmp_path / "one", tables), write_tables(tmp_path / "two", altered, servers=3)
    assert compare(one, one).largest() == 0.0
    comparison = compare(one, two)
    assert [part.values for part in comparison.tables] == [20, 6, 28, 4]
    assert comparison.parts[0].values == 12 * 5 + 5 * 3
    found = [part for part in (*comparison.tables, *comparison.parts) if part.differing]
    is_weight = column < WIDTHS[table]
    assert [part.part for part in found] == [f"table C{table + 1}" if is_weight else "optimizer state of rows"]
    assert (found[0].largest, found[0].differing) == (0.25, 1)
    assert found[0].where == f"table C{table + 1}, id {row}, column {column if is_weight else column - WIDTHS[table]}"


def test_dense_differences_are_found_where_they_are(tmp_path: Path) -> None:
    records = sample_records((3,), 2)
    model, optimizer = trained_dense()
    altered_model, altered_optimizer = copy.deepcopy(model), copy.deepcopy(optimizer)
    altered_model["2.weight"][0, 3] += 0.25
    altered_optimizer["state"][1]["exp_avg"][2] -= 4
    altered_optimizer["param_groups"][0]["lr"] = 0.5
    comparison = compare(
        write_checkpoint(tmp_path / "one", records, (3,), dense=(model, optimizer)),
        write_checkpoint(tmp_path / "two", records, (3,), dense=(altered_model, altered_optimizer)),
    )
    _, weights, state = comparison.parts
    assert (weights.where, weights.differing) == ("2.weight[0, 3]", 1)
    assert weights.largest == pytest.approx(0.25, rel=1e-6)
    assert (state.where, state.differing) == ("state/1/exp_avg[2]", 2)
    assert comparison.largest() == state.largest == pytest.approx(4, rel=1e-6)


def test_other_steps_are_mentioned_and_output_folders_taken(tmp_path: Path) -> None:
    records = sample_records((3,), 2)
    write_checkpoint(tmp_path, records, (3,), step=5)
    write_checkpoint(tmp_path, records, (3,), step=6)
    comparison = compare(tmp_path / "checkpoints" / "step-00000005", tmp_path)
    assert comparison.steps == (5, 6)
    assert "The first is of step 5, the second of step 6." in comparison.report()
    assert "is of step" not in compare(tmp_path, tmp_path).report()


def test_checkpoints_without_counterparts_are_refused_with_both_values(tmp_path: Path) -> None:
    records = sample_records((6,), 4)
    model, optimizer = trained_dense()
    base = write_checkpoint(tmp_path / "base", records, (6,))
    without_bias = {name: value for name, value in model.items() if name != "2.bias"}
    wider = {**model, "2.bias": torch.zeros(2)}
    doubled = {**model, "2.bias": model["2.bias"].double()}
    amsgrad = copy.deepcopy(optimizer)
    amsgrad["param_groups"][0]["amsgrad"] = True
    others = {
        "table_rows is (6,) in the first and (2, 4) in the second": {"table_rows": (2, 4)},
        "embedding_dim is 3 in the first and 2 in the second": {"state_columns": 2},
        "row_optimizer is rowwise_adagrad in the first and sgd in the second": {"row_optimizer": "sgd"},
        "2.bias is float32 [1] in the first and absent in the second": {"dense": (without_bias, optimizer)},
        "2.bias is float32 [1] in the first and float32 [2] in the second": {"dense": (wider, optimizer)},
        "2.bias is float32 [1] in the first and float64 [1] in the second": {"dense": (doubled, optimizer)},
        "amsgrad is False in the first and True in the second": {"dense": (model, amsgrad)},
    }
    for number, (message, change) in enumerate(others.items()):
        path = write_checkpoint(tmp_path / str(number), records, **{"table_rows": (6,), **change})  # type: ignore[arg-type]
        with pytest.raises(CheckpointError) as raised:
            compare(base, path)
        assert message in str(raised.value)


def test_tables_of_other_widths_have_no_counterparts(tmp_path: Path) -> None:
    one = write_tables(tmp_path / "one", sample_tables((5, 3), (4, 2)))
    two = write_tables(tmp_path / "two", sample_tables((5, 3), (4, 1)))
    with pytest.raises(CheckpointError, match=r"widths is \(4, 2\) in the first and \(4, 1\) in the second"):
        compare(one, two)


def test_integers_beyond_those_of_a_float_differ_by_what_they_do() -> None:
    found = PartDifference("dense weights")
    found.add(np.array([5, 1 << 60]), np.array([5, (1 << 60) + 1]), lambda place: f"number {place[0]}")
    assert (found.largest, found.where, found.differing, found.values) == (1.0, "number 1", 1, 2)
