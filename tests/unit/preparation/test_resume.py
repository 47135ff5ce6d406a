"""A run goes on from a checkpoint only if that is whole."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.preparation.resume import find_start, verify_share
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from tests.unit.checkpoint_samples import (
    sample_records,
    sample_tables,
    trained_dense,
    write_checkpoint,
    write_tables,
)
from tests.unit.resumed_runs import SHARDS, TABLES, settings, write_run, write_two_checkpoints


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """With two checkpoints."""
    write_two_checkpoints(tmp_path)
    return tmp_path


def test_nothing_is_resumed_unasked(output: Path) -> None:
    assert find_start(settings(output, resume=""), SHARDS) is None


def test_auto_takes_the_newest_or_starts_anew(output: Path, tmp_path: Path) -> None:
    found = find_start(settings(output), SHARDS)
    assert found is not None
    assert found.manifest.step == 200
    assert find_start(settings(tmp_path / "new"), SHARDS) is None


@pytest.mark.parametrize(("path", "step"), [("checkpoints/step-00000100", 100), (".", 200)])
def test_a_named_checkpoint_or_output_folder_is_taken(output: Path, tmp_path: Path, path: str, step: int) -> None:
    found = find_start(settings(tmp_path / "new", str(output / path)), SHARDS)
    assert found is not None
    assert found.manifest.step == step


def test_a_checkpoint_that_is_not_there_is_an_error(output: Path) -> None:
    with pytest.raises(CheckpointError, match="step-00000300"):
        find_start(settings(output, str(output / "checkpoints" / "step-00000300")), SHARDS)


def test_a_truncated_file_is_named_and_the_checkpoint_before_it_offered(output: Path) -> None:
    path = output / "checkpoints" / "step-00000200" / "rows-00001-of-00002.h5"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"rows-00001-of-00002\.h5: has .*train\.resume=.*step-00000100"):
        find_start(settings(output), SHARDS)


@pytest.mark.parametrize(("column", "what"), [(1, "weights"), (-1, "optimizer_state")])
@pytest.mark.parametrize("number", [np.nan, -np.inf])
@pytest.mark.parametrize("is_increment", [False, True])
def test_rows_that_are_not_finite_are_refused_by_name(
    tmp_path: Path, column: int, what: str, number: float, is_increment: bool
) -> None:
    """Also those of an increment, whose file holds some rows only."""
    records = sample_records(TABLES, 5)
    good = write_checkpoint(tmp_path, records, TABLES, servers=2, step=100)
    records[5, column] = number
    increment = {"base": good, "updated": np.asarray([1, 2, 5])} if is_increment else {}
    write_checkpoint(tmp_path, records, TABLES, servers=2, step=200, **increment)
    start = load_checkpoint(tmp_path)
    expected = (
        rf"rows-00001-of-00002\.h5: {what} of table C2, row 0 holds NaN or infinity.*: train\.resume=\S+step-00000100"
    )
    with pytest.raises(CheckpointError, match=expected):
        verify_share(start, 0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dense_numbers_that_are_not_finite_are_refused_by_name(tmp_path: Path, dtype: torch.dtype) -> None:
    model, optimizer = trained_dense()
    for state, name in ((model, "model/2.bias"), (optimizer["state"][1], "optimizer/state/1/exp_avg_sq")):
        key = name.rpartition("/")[2]
        before, state[key] = state[key], state[key].to(dtype)
        write_checkpoint(tmp_path / name, sample_records(TABLES, 5), TABLES, dense=(model, optimizer))
        start = load_checkpoint(tmp_path / name)
        verify_share(start, 0, 1)
        state[key] = state[key].clone()
        state[key].view(-1)[0] = torch.inf
        write_checkpoint(tmp_path / name, sample_records(TABLES, 5), TABLES, step=101, dense=(model, optimizer))
        start = load_checkpoint(tmp_path / name)
        with pytest.raises(CheckpointError, match=f"dense.h5: {name} holds NaN or infinity"):
            verify_share(start, 0, 1)
        state[key] = before


@pytest.mark.parametrize(
    ("name", "part", "place", "row"),
    [
        ("width-2-00001", "weights", 1, "table C4, row 0"),
        ("width-4-00000", "optimizer_state", 3, "table C3, row 1"),
    ],
)
def test_rows_of_any_width_that_are_not_finite_are_refused_by_name(
    tmp_path: Path, name: str, part: str, place: int, row: str
) -> None:
    path = write_tables(tmp_path, sample_tables((5, 3, 6, 3), (4, 2, 4, 2)))
    verify_share(load_checkpoint(path), 0, 1)
    with h5py.File(path / f"rows-{name}-of-00002.h5", "r+") as file:
        file[part][place, 0] = np.nan
    spoil(path / f"rows-{name}-of-00002.h5", "nothing else")
    with pytest.raises(CheckpointError, match=rf"rows-{name}-of-00002\.h5: {part} of {row} holds NaN"):
        verify_share(load_checkpoint(path), 0, 1)


@pytest.mark.parametrize(("width", "row"), [(4, "table C1, row 0"), (2, "table C2, row 0")])
def test_files_of_any_width_must_hold_every_row(tmp_path: Path, width: int, row: str) -> None:
    path = write_tables(tmp_path, sample_tables((5, 3, 7, 3), (4, 2, 4, 2)))
    name = f"rows-width-{width}-00000-of-00002.h5"
    with h5py.File(path / name, "r+") as file:
        file["runs"][0, 0] = 1
    spoil(path / name, "nothing else")
    with pytest.raises(CheckpointError, match=f"{row} is in no row file"):
        verify_share(load_checkpoint(path), 0, 2)


def test_damage_is_found_by_whoever_has_the_file_in_its_share(output: Path) -> None:
    """Three files over two ranks: the dense file and server 1's are the first one's."""
    path = output / "checkpoints" / "step-00000200" / "dense.h5"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    start = find_start(settings(output), SHARDS)
    assert start is not None
    verify_share(start, 1, 2)
    with pytest.raises(CheckpointError, match=r"dense\.h5: its SHA-256 is .*A checkpoint before it: .*step-00000100"):
        verify_share(start, 0, 2)


def spoil(path: Path, what: str) -> None:
    """Write a file of a checkpoint anew, its digest too, as a stranger could; with `nothing else` the digest alone."""
    if what == "no HDF5":
        path.write_bytes(path.read_bytes()[::-1])
    elif what == "a broken group":
        contents = bytearray(path.read_bytes())
        place = contents.index(b"TREE")
        contents[place : place + 24] = bytes(24)
        path.write_bytes(contents)
    elif what != "nothing else":
        name, values = {
            "rows fall": ("rows", np.array([2, 1])),
            "rows beyond the tables": ("rows", np.array([1, 99])),
            "weights are text": ("weights", np.full((2, 4), b"text")),
            "weights of another width": ("weights", np.zeros((2, 3), np.float32)),
        }[what]
        with h5py.File(path, "r+") as file:
            del file[name]
            file[name] = values
    manifest_path = path.with_name("manifest.json")
    manifest = load_checkpoint(path.parent).manifest
    info = FileInfo(path.name, path.stat().st_size, file_sha256(path))
    files = tuple(info if old.file == path.name else old for old in manifest.files)
    manifest_path.write_text(replace(manifest, files=files).to_json())


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no HDF5", "cannot be read as HDF5"),
        ("a broken group", "cannot be read as HDF5"),
        ("rows fall", "rows are not ascending"),
        ("rows beyond the tables", "rows are not ascending numbers from 0 to 7"),
        ("weights are text", "weights is |S4"),
        ("weights of another width", r"weights is float32 \(2, 3\): must be float32 \(2, 4\)"),
    ],
)
def test_what_cannot_be_read_is_found_before_anybody_reads_it(tmp_path: Path, what: str, message: str) -> None:
    """In a checkpoint whose digests are right: an increment of rows 0, 2 (server 0) and 1 (server 1)."""
    records = sample_records(TABLES, 5)
    base = write_checkpoint(tmp_path, records, TABLES, servers=2, step=100)
    path = write_checkpoint(tmp_path, records, TABLES, servers=2, step=200, base=base, updated=np.array([0, 1, 2]))
    verify_share(load_checkpoint(tmp_path), 0, 1)
    spoil(path / "rows-00000-of-00002.h5", what)
    with pytest.raises(CheckpointError, match=rf"step-00000200/rows-00000-of-00002\.h5: .*{message}.*step-00000100$"):
        verify_share(load_checkpoint(tmp_path), 0, 1)


@pytest.mark.parametrize("size", ["same size", "cut off"])
def test_no_increment_on_a_damaged_checkpoint_is_offered(output: Path, size: str) -> None:
    """Steps 300 and 400 hold what was updated since 200."""
    path = output / "checkpoints" / "step-00000200"
    for step, base in ((300, path), (400, path.with_name("step-00000300"))):
        write_run(output, step, base=base, updated=np.array([step % 7]))
    start = find_start(settings(output), SHARDS)
    assert start is not None
    assert start.manifest.step == 400
    damaged = path / "rows-00000-of-00002.h5"
    contents = damaged.read_bytes()
    damaged.write_bytes(contents[:-1] + (b"" if size == "cut off" else bytes([contents[-1] ^ 1])))
    with pytest.raises(CheckpointError, match=r"step-00000200/rows-00000.*before it: train\.resume=.*step-00000100$"):
        verify_share(start, 0, 1)
    if size == "cut off":
        with pytest.raises(CheckpointError, match=r"rows-00000-of-00002\.h5: has .*step-00000100$"):
            find_start(settings(output), SHARDS)


def test_a_damaged_manifest_offers_the_checkpoint_before_it(output: Path) -> None:
    (output / "checkpoints" / "step-00000200" / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"is no JSON.*train\.resume=.*step-00000100"):
        find_start(settings(output), SHARDS)


def test_the_only_checkpoint_has_none_before_it(output: Path) -> None:
    (output / "checkpoints" / "step-00000100" / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"use another checkpoint, or the version that wrote this one$"):
        find_start(settings(output, str(output / "checkpoints" / "step-00000100")), SHARDS)
