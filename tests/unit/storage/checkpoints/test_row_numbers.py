"""A row file says which rows it holds; one that says it falsely is refused, and files of before are read."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.partition import RoundRobinPartition, RowPartition
from bagpipe_hpc.rows.ranges import ContiguousPartition, TablePartition
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from tests.unit.checkpoint_samples import sample_records, write_checkpoint
from tests.unit.rows.partitions import PLACEMENTS, ShuffledPartition, tables_of

TABLES = (5, 1, 7)
ROWS = sum(TABLES)
SECOND = "rows-00001-of-00002.h5"


def write(output: Path, placement: type[RowPartition] = RoundRobinPartition) -> Path:
    partition = placement.place(tables_of(TABLES), 2, None)
    return write_checkpoint(output, sample_records(TABLES, 5), TABLES, partition=partition)


def read_by_a_server(path: Path) -> None:
    """The first of three servers of another partition."""
    partition = TablePartition.place(tables_of(TABLES), 3, None)
    with load_checkpoint(path).open_rows() as rows:
        rows.read_server(partition, 0, np.zeros((partition.rows_on(0), 5), np.float32))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_few_numbers_tell_the_rows_where_they_can(tmp_path: Path, placement: type[RowPartition]) -> None:
    path = write(tmp_path, placement)
    with h5py.File(path / SECOND) as file:
        told = {name: file[name][:].tolist() for name in ("runs", "rows") if name in file}
    expected = {
        RoundRobinPartition: {"runs": [[1, 2, 6]]},
        ContiguousPartition: {"runs": [[6, 1, 7]]},
        TablePartition: {"runs": [[0, 1, 6]]},
    }
    if placement in expected:
        assert told == expected[placement]


def test_many_runs_are_a_list(tmp_path: Path) -> None:
    rows = (20_000,)
    partition = ShuffledPartition(20_000, 2)
    path = write_checkpoint(tmp_path, sample_records(rows, 2), rows, partition=partition)
    with h5py.File(path / SECOND) as file:
        assert "runs" not in file
        assert file["rows"][:].tolist() == sorted(partition.rows_of(1, 0, 10_000).tolist())
    assert load_checkpoint(path).read_rows(0, 20_000).tobytes() == sample_records(rows, 2).tobytes()


@pytest.mark.parametrize(
    "runs", [[[-1, 2, 6]], [[1, 0, 6]], [[3, 2, 6]], [[1, 2, 7], [1, 2, -1]], [[1, 2**62, 6]], [[1, 2]], [[1, 2, 5]]]
)
def test_false_runs_are_refused(tmp_path: Path, runs: list[list[int]]) -> None:
    path = write(tmp_path)
    with h5py.File(path / SECOND, "r+") as file:
        del file["runs"]
        file["runs"] = np.array(runs, dtype=np.int64)
    with pytest.raises(CheckpointError, match=rf"{SECOND}: (runs|weights)"):
        load_checkpoint(path).read_rows(0, ROWS)


@pytest.mark.parametrize(
    ("runs", "row", "name"), [([[0, 2, 6]], 1, "table C1, row 1"), ([[1, 1, 6]], 7, "table C3, row 1")]
)
def test_each_row_is_in_one_file(tmp_path: Path, runs: list[list[int]], row: int, name: str) -> None:
    """What a false file would leave out, nobody reads as if it were there."""
    path = write(tmp_path)
    with h5py.File(path / SECOND, "r+") as file:
        file["runs"][:] = runs
    with pytest.raises(CheckpointError, match=f"{name} is in no row file"):
        load_checkpoint(path).read_rows(0, ROWS)
    with load_checkpoint(path).open_rows() as rows, pytest.raises(CheckpointError, match=f"{name} is in no row"):
        rows.check_rows(row // 7, 2)


def test_a_server_misses_rows_that_no_file_has(tmp_path: Path) -> None:
    path = write(tmp_path)
    with h5py.File(path / SECOND, "r+") as file:
        file["runs"][:] = [[1, 1, 6]]
    with pytest.raises(CheckpointError, match="has 5 of the 7 rows of server 0"):
        read_by_a_server(path)


def test_a_row_in_two_files_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    with h5py.File(path / "rows-00000-of-00002.h5", "r+") as file:
        del file["runs"]
        file["runs"] = np.array([[0, 2, 6], [1, 1, 1]])  # instead of row 12
    with pytest.raises(CheckpointError, match="table C3, row 6 is in no row file"):
        load_checkpoint(path).read_rows(0, ROWS)
    with pytest.raises(CheckpointError, match="a row is in two row files"):
        load_checkpoint(path).read_rows(0, 12)


def test_a_copy_is_read_like_its_original(tmp_path: Path) -> None:
    path = write(tmp_path, ShuffledPartition)
    copy = Path(shutil.copytree(path, tmp_path / "copy"))
    assert load_checkpoint(copy).read_rows(0, ROWS).tobytes() == sample_records(TABLES, 5).tobytes()
