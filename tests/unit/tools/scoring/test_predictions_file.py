"""Predictions are written whole or not at all, and read back as the same numbers."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
from numpy.typing import NDArray

from bagpipe_hpc.errors import BagpipeError, ConfigError, FileError
from bagpipe_hpc.evaluation.click_evaluation import predictions
from bagpipe_hpc.storage.scratch_folder import scratch_folder
from bagpipe_hpc.tools.scoring import predictions_file
from bagpipe_hpc.tools.scoring.predictions_file import check_predictions_file, columns_of, write_predictions


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pa_parquet.read_table(path)
    options = pa_csv.ParseOptions(delimiter="," if path.suffix == ".csv" else "\t")
    return pa_csv.read_csv(path, parse_options=options)


def write(path: Path, logits: NDArray[np.float32], labels: list[str], *, with_logits: bool) -> None:
    with scratch_folder(path) as scratch:
        write_predictions(scratch, logits, labels, with_logits=with_logits)


@pytest.fixture
def logits() -> NDArray[np.float32]:
    """Of all sizes, among them neighbours."""
    rng = np.random.default_rng(1)
    drawn = rng.normal(0, 4, (900, 2)).astype(np.float32)
    drawn[:3] = [[-88.0, 12.5], [np.nextafter(np.float32(1), np.float32(2)), 1.0], [1.0, -0.0]]
    return drawn


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_every_number_is_read_back(
    suffix: str, logits: NDArray[np.float32], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions_file, "_AT_ONCE", 128)
    path = tmp_path / f"found{suffix}"
    write(path, logits, ["click", "a, b"], with_logits=True)
    table = read(path)
    names = ["probability_click", "probability_a, b", "logit_click", "logit_a, b"]
    assert table.column_names == names == columns_of(["click", "a, b"], logits=True)
    for number in range(2):
        found = table.column(number).to_numpy()
        assert found.dtype == np.float64
        assert np.array_equal(found, predictions(logits[:, number]))
        assert np.array_equal(table.column(2 + number).to_numpy().astype(np.float32), logits[:, number])
    assert len(np.unique(table.column(0).to_numpy())) == len(np.unique(logits[:, 0]))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_one_label_is_not_named(logits: NDArray[np.float32], tmp_path: Path) -> None:
    write(tmp_path / "found.csv", logits[:2, :1], ["label"], with_logits=False)
    first, *rows = (tmp_path / "found.csv").read_text().splitlines()
    assert first == "probability"
    assert [float(row) for row in rows] == predictions(logits[:2, 0]).tolist()


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("found.txt", ConfigError, "ends in .csv, .tsv, .parquet"),
        ("found.csv.gz", ConfigError, "ends in"),
        ("found", ConfigError, "ends in"),
        ("there.csv", FileError, "there already"),
        ("link.csv", FileError, "there already"),
        ("absent/found.csv", FileError, "is no folder"),
        ("there.csv/found.csv", FileError, "Not a directory"),
    ],
)
def test_a_name_that_cannot_be_written_is_refused(
    name: str, error: type[BagpipeError], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "there.csv").write_text("kept")
    (tmp_path / "link.csv").symlink_to("nowhere")
    with pytest.raises(error, match=reason):
        check_predictions_file(tmp_path / name)
    assert (tmp_path / "there.csv").read_text() == "kept"


def test_a_file_that_comes_meanwhile_stays(logits: NDArray[np.float32], tmp_path: Path) -> None:
    path = tmp_path / "found.csv"
    path.write_text("of somebody else")
    with pytest.raises(FileError, match="there already"):
        write(path, logits, ["a", "b"], with_logits=False)
    assert path.read_text() == "of somebody else"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
