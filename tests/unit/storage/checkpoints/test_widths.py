"""Tables of several widths: each width has row files and row numbers of its own, and none is forgotten."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.checkpoints.finite_files import require_finite
from tests.unit.checkpoint_samples import sample_records, sample_tables, write_checkpoint, write_tables
from tests.unit.rows.partitions import PLACEMENTS

ROWS = (5, 3, 7, 2, 4)
WIDTHS = (4, 2, 4, 1, 2)
GROUPS = ((0, 2), (1, 4), (3,))
"""Numbers of the tables of each width, in the order of their first tables."""


def records_of(tables: list[NDArray[np.float32]], group: int) -> NDArray[np.float32]:
    """Rows of the tables of one width in the order of their numbers."""
    return np.concatenate([tables[number] for number in GROUPS[group]])


def updated_by(tables: list[NDArray[np.float32]], updated: list[list[int]], seed: int) -> list[NDArray[np.float32]]:
    """New values in some ids of each table."""
    after = [table.copy() for table in tables]
    for table, new, ids in zip(after, sample_tables(ROWS, WIDTHS, seed), updated, strict=True):
        table[ids] = new[ids]
    return after


def require_rows(
    checkpoint: Checkpoint, tables: list[NDArray[np.float32]], reader: type[RowPartition], servers: int
) -> None:
    """See that a checkpoint gives the servers of another world every row of these tables."""
    checkpoint.verify()
    for number, group in enumerate(checkpoint.manifest.groups):
        expected = records_of(tables, number)
        assert checkpoint.read_rows(1, len(expected), number).tobytes() == expected[1:].tobytes()
        with checkpoint.open_rows(number) as saved:
            saved.check_rows(0, 1)
            partition = reader.place(group.tables, servers, None)
            for server in range(servers):
                rows = partition.rows_of(server, 0, partition.rows_on(server))
                window = np.full((len(rows), 2 * group.width + 2), np.nan, np.float32)
                saved.read_server(partition, server, window[:, :-1])
                assert window[:, :-1].tobytes() == expected[rows].tobytes()


@pytest.mark.parametrize("number", range(len(PLACEMENTS)))
def test_every_width_is_read_whatever_placed_it(tmp_path: Path, number: int) -> None:
    """All rows, and then increments, each written and read by another placement and number of servers."""
    placements = PLACEMENTS[number:] + PLACEMENTS[:number]
    tables = sample_tables(ROWS, WIDTHS)
    path = write_tables(tmp_path, tables, placement=placements[0], servers=3 - number % 2, step=1)
    require_rows(load_checkpoint(path), tables, placements[1], number + 1)
    for step, updated in ((2, [[0, 4], [2], [], [1], [3, 0]]), (3, [[4], [], [6, 2, 1], [0], [0, 1]])):
        tables = updated_by(tables, updated, seed=9 * step)
        path = write_tables(
            tmp_path, tables, placement=placements[step], servers=step, step=step, base=path, updated=updated
        )
    require_rows(load_checkpoint(path), tables, placements[2], number + 2)


def test_files_and_rows_are_those_of_one_width(tmp_path: Path) -> None:
    path = write_tables(tmp_path, sample_tables(ROWS, WIDTHS))
    assert sorted(file.name for file in path.glob("rows-*")) == [
        f"rows-width-{width}-0000{server}-of-00002.h5" for width in (1, 2, 4) for server in (0, 1)
    ]
    manifest = load_checkpoint(path).manifest
    assert (manifest.version, manifest.widths, manifest.total_rows) == (7, WIDTHS, sum(ROWS))
    assert [group.numbers for group in manifest.groups] == list(GROUPS)
    assert [manifest.record_columns(width) for width in (4, 2, 1)] == [9, 5, 3]
    for width, total in ((4, 12), (2, 7), (1, 2)):
        with h5py.File(path / f"rows-width-{width}-00001-of-00002.h5") as file:
            assert file.attrs["total_rows"] == total
            assert file["runs"][:].tolist() == [[1, 2 if total > 2 else 1, total // 2]]


def test_with_one_width_the_names_are_without_it(tmp_path: Path) -> None:
    """Be it said for each table or for all, and be it `model.embedding_dim` or not."""
    plain = write_checkpoint(tmp_path / "plain", sample_records((5, 3), 5), (5, 3), servers=2)
    each = write_tables(tmp_path / "each", sample_tables((5, 3), (4, 4)))
    of_tables = write_tables(tmp_path / "tables", sample_tables((5, 3), (4, 4)), embedding_dim=8, row_state_columns=9)
    names = [sorted(file.name for file in path.iterdir()) for path in (plain, each, of_tables)]
    assert names[0] == ["dense.h5", "manifest.json", "rows-00000-of-00002.h5", "rows-00001-of-00002.h5"]
    assert names[0] == names[1] == names[2]
    assert load_checkpoint(plain).manifest.table_widths is None
    whole = np.concatenate(sample_tables((5, 3), (4, 4)))
    assert load_checkpoint(of_tables).read_rows(0, 8).tobytes() == whole.tobytes()


@pytest.mark.parametrize("width", WIDTHS[1:4])
@pytest.mark.parametrize("is_base", [False, True])
def test_damage_in_a_file_of_any_width_is_found_by_name(tmp_path: Path, width: int, is_base: bool) -> None:
    tables = sample_tables(ROWS, WIDTHS)
    full = write_tables(tmp_path, tables, step=10)
    path = write_tables(tmp_path, tables, step=20, base=full, updated=[[1]] * 5)
    damaged = (full if is_base else path) / f"rows-width-{width}-00000-of-00002.h5"
    contents = damaged.read_bytes()
    damaged.write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=f"{damaged.parent.name}/{damaged.name}: its SHA-256"):
        load_checkpoint(path).verify()
    damaged.unlink()
    with pytest.raises(CheckpointError, match=f"{damaged.name}: is absent"):
        load_checkpoint(path).verify(quick=True)
    group = (4, 2, 1).index(width)
    with pytest.raises(CheckpointError, match=f"{damaged.name}: is absent"):
        load_checkpoint(path).read_rows(0, 1, group)
    assert len(load_checkpoint(path).read_rows(0, 1, (group + 1) % 3)) == 1


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("rows-width-2-00001-of-00002.h5", r"a list with rows-width-4-00001-of-00002\.h5"),
        ("rows-00001-of-00002.h5", r"a list with rows-width-4-00001-of-00002\.h5"),
        ("rows-width-4-00001-of-00003.h5", r"a list with rows-width-4-00001-of-00002\.h5"),
        ("", "7 files, one a server and width and dense.h5"),
    ],
)
def test_a_manifest_lists_each_file_of_each_width(tmp_path: Path, listed: str, said: str) -> None:
    path = write_tables(tmp_path, sample_tables(ROWS, WIDTHS)) / "manifest.json"
    document = json.loads(path.read_text())
    [number] = [n for n, file in enumerate(document["files"]) if file["file"] == "rows-width-4-00001-of-00002.h5"]
    document["files"][number]["file"] = listed
    if not listed:
        del document["files"][number]
    path.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match=rf"manifest\.json: files is .* instead of {said}"):
        load_checkpoint(path.parent)


def test_a_file_too_many_is_refused(tmp_path: Path) -> None:
    path = write_tables(tmp_path, sample_tables(ROWS, WIDTHS)) / "manifest.json"
    document = json.loads(path.read_text())
    document["files"].append({"file": "rows-00000-of-00002.h5", "bytes": 5, "sha256": "0" * 64})
    path.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match="instead of 7 files"):
        load_checkpoint(path.parent)


def test_files_of_another_width_are_refused(tmp_path: Path) -> None:
    """Also where there are as many rows."""
    path = write_tables(tmp_path, sample_tables((6, 6), (4, 2)))
    shutil.copy(path / "rows-width-4-00000-of-00002.h5", path / "rows-width-2-00000-of-00002.h5")
    with pytest.raises(
        CheckpointError, match=r"rows-width-2-.*: weights is float32 \(3, 4\): must be float32 \(3, 2\)"
    ):
        load_checkpoint(path).read_rows(0, 1, 1)
    other = write_tables(tmp_path / "other", sample_tables((6, 8), (4, 2)))
    shutil.copy(other / "rows-width-2-00001-of-00002.h5", path)
    shutil.copy(other / "rows-width-2-00000-of-00002.h5", path)
    with pytest.raises(CheckpointError, match=r"attribute total_rows = .*8.*must be 6"):
        load_checkpoint(path).read_rows(0, 1, 1)


def test_the_state_is_that_of_the_width(tmp_path: Path) -> None:
    path = write_tables(tmp_path, sample_tables(ROWS, WIDTHS))
    name = "rows-width-1-00000-of-00002.h5"
    with h5py.File(path / name, "r+") as file:
        del file["optimizer_state"]
        file["optimizer_state"] = np.zeros((1, 5), np.float32)
    with pytest.raises(CheckpointError, match=rf"{name}: optimizer_state is .*must be float32 \(1, 2\)"):
        load_checkpoint(path).read_rows(0, 1, 2)


@pytest.mark.parametrize("group", [-1, 3])
def test_widths_that_there_are_not_are_refused(tmp_path: Path, group: int) -> None:
    path = write_tables(tmp_path, sample_tables(ROWS, WIDTHS))
    with pytest.raises(ValueError, match=f"group {group} is not among the 3 widths"):
        load_checkpoint(path).read_rows(0, 0, group)
    with pytest.raises(ValueError, match="rows 0 to 8 are not among the 7 of these tables"):
        load_checkpoint(path).read_rows(0, 8, 1)


def test_layers_of_other_widths_are_refused(tmp_path: Path) -> None:
    full = write_tables(tmp_path, sample_tables((5, 3), (4, 2)), step=10)
    path = write_tables(tmp_path, sample_tables((5, 3), (4, 1)), step=20, base=full, updated=[[1], [2]])
    said = r"step-00000020: widths = \(4, 1\), and \(4, 2\) in .*step-00000010"
    with pytest.raises(CheckpointError, match=said):
        load_checkpoint(path).read_rows(0, 1)


def test_an_increment_may_say_for_each_table_what_its_base_says_for_all(tmp_path: Path) -> None:
    tables = sample_tables((5, 3), (4, 4))
    full = write_tables(tmp_path, tables, step=10, table_widths=None)
    path = write_tables(tmp_path, tables, step=20, base=full, updated=[[1], [2]])
    assert load_checkpoint(path).read_rows(0, 8).tobytes() == np.concatenate(tables).tobytes()


@pytest.mark.parametrize(
    ("width", "place", "row"),
    [(4, 5, "table C3, row 6"), (2, 0, "table C2, row 1"), (2, 2, "table C5, row 2"), (1, 0, "table C4, row 1")],
)
@pytest.mark.parametrize("part", ["weights", "optimizer_state"])
def test_a_row_that_is_not_finite_is_named(tmp_path: Path, width: int, place: int, row: str, part: str) -> None:
    path = write_tables(tmp_path, sample_tables(ROWS, WIDTHS))
    manifest = load_checkpoint(path).manifest
    name = f"rows-width-{width}-00001-of-00002.h5"
    with h5py.File(path / name, "r+") as file:
        file[part][place, -1] = np.inf
    for info in manifest.files:
        if info.file != name:
            require_finite(path, manifest, info)
    with pytest.raises(CheckpointError, match=f"{name}: {part} of {row} holds NaN or infinity"):
        require_finite(path, manifest, FileInfo(name, 1, file_sha256(path / name)))


def test_a_row_that_is_in_no_file_is_named(tmp_path: Path) -> None:
    path = write_tables(tmp_path, sample_tables(ROWS, WIDTHS))
    with h5py.File(path / "rows-width-2-00001-of-00002.h5", "r+") as file:
        file["runs"][:] = [[1, 1, 3]]
    with load_checkpoint(path).open_rows(1) as saved, pytest.raises(CheckpointError, match="table C5, row 2 is in no"):
        saved.check_rows(0, 1)
    with load_checkpoint(path).open_rows(0) as saved:
        saved.check_rows(0, 1)


def test_rows_of_other_widths_are_none_of_a_file(tmp_path: Path) -> None:
    """Of 7 rows of that width, among 21."""
    tables = sample_tables(ROWS, WIDTHS)
    full = write_tables(tmp_path, tables, step=10)
    path = write_tables(tmp_path, tables, step=20, base=full, updated=[[], [0], [], [], [3]])
    with h5py.File(path / "rows-width-2-00000-of-00002.h5", "r+") as file:
        file["rows"][-1] = 7
    with (
        load_checkpoint(path).open_rows(1) as saved,
        pytest.raises(CheckpointError, match="rows are not ascending numbers from 0 to 6"),
    ):
        saved.check_rows(0, 1)
    with h5py.File(full / "rows-width-2-00001-of-00002.h5", "r+") as file:
        file["runs"][:] = [[3, 2, 3]]
    with pytest.raises(CheckpointError, match=r"runs holds \(3, 2, 3\): .* among 0 to 6"):
        load_checkpoint(full).read_rows(0, 1, 1)


def test_a_replayed_step_with_fewer_widths_leaves_no_stray_files(tmp_path: Path) -> None:
    write_tables(tmp_path, sample_tables(ROWS, WIDTHS))
    partial = tmp_path / "checkpoints" / "step-00000200.partial"
    shutil.copytree(tmp_path / "checkpoints" / "step-00000100", partial)
    path = write_tables(tmp_path, sample_tables(ROWS, (4, 2, 4, 2, 2)), step=200)
    assert len(list(path.iterdir())) == 6
    path = write_tables(tmp_path, sample_tables(ROWS, (4, 2, 4, 2, 2)), step=100)
    assert len(list(path.iterdir())) == 6


def test_the_same_tables_give_the_same_manifest(tmp_path: Path) -> None:
    one, two = (write_tables(tmp_path / name, sample_tables(ROWS, WIDTHS)) for name in ("one", "two"))
    assert load_checkpoint(one).manifest == load_checkpoint(two).manifest
    assert replace(load_checkpoint(one).manifest).to_json() == (two / "manifest.json").read_text()
