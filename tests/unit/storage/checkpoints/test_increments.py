"""An increment and what it builds on give back every bit, whoever wrote the layers and whoever reads them."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.partition import RoundRobinPartition, RowPartition
from bagpipe_hpc.rows.runs import runs_of
from bagpipe_hpc.storage.checkpoints import folder, row_file, row_numbers
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import (
    KeptCheckpoints,
    find_checkpoints,
    remove_checkpoints,
    remove_increments_of,
)
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest, load_checkpoint_manifest
from tests.drawing import share_of
from tests.unit.checkpoint_samples import sample_records, write_checkpoint
from tests.unit.rows.partitions import partitions_of

TABLES = (5, 1, 7)
ROWS = sum(TABLES)


def change(records: NDArray[np.float32], updated: NDArray[np.int64], seed: int) -> NDArray[np.float32]:
    """New values in the rows `updated`."""
    after = records.copy()
    after[updated] = sample_records(TABLES, records.shape[1], seed)[updated]
    return after


def write_chain(output: Path, steps: int, servers: int = 2) -> list[Path]:
    """A checkpoint with all rows at step 10, and increments of two rows at 20, 30 ..., each on the one before."""
    records = sample_records(TABLES, 5)
    chain = [write_checkpoint(output, records, TABLES, servers=servers, step=10)]
    for step in range(20, 10 * steps + 1, 10):
        updated = np.array([step // 10, step // 10 + 4])
        records = change(records, updated, seed=step)
        chain.append(
            write_checkpoint(output, records, TABLES, servers=servers, step=step, base=chain[-1], updated=updated)
        )
    return chain


@settings(max_examples=share_of(20), deadline=None)
@given(
    writers=st.lists(partitions_of(TABLES), min_size=2, max_size=4),
    reader=partitions_of(TABLES),
    most_runs=st.sampled_from([1, 4096]),
    piece_bytes=st.sampled_from([1, 60, 1 << 20]),
    state_columns=st.integers(0, 2),
    data=st.data(),
)
def test_layers_round_trip_bit_for_bit(
    writers: list[RowPartition],
    reader: RowPartition,
    most_runs: int,
    piece_bytes: int,
    state_columns: int,
    data: st.DataObject,
) -> None:
    records = sample_records(TABLES, 3 + state_columns)
    path: Path | None = None
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_file, "COPY_BYTES", piece_bytes)
        patch.setattr(row_file, "_SOUGHT_AT_ONCE", 5)
        patch.setattr(row_file, "MOST_RUNS", most_runs)
        patch.setattr(runs_of, "__defaults__", (most_runs,))
        for step, partition in enumerate(writers):
            updated = None
            if path:
                rows = data.draw(st.lists(st.integers(0, ROWS - 1), unique=True))
                updated = np.array(rows, dtype=np.int64)
                records = change(records, updated, seed=step)
            path = write_checkpoint(
                Path(folder),
                records,
                TABLES,
                partition=partition,
                state_columns=state_columns,
                step=step,
                base=path,
                updated=updated,
            )
        assert path
        checkpoint = load_checkpoint(path)
        checkpoint.verify()
        first = data.draw(st.integers(0, ROWS))
        last = data.draw(st.integers(first, ROWS))
        assert checkpoint.read_rows(first, last).tobytes() == records[first:last].tobytes()
        with checkpoint.open_rows() as saved:
            saved.check_rows(data.draw(st.integers(0, 2)), 3)
            for server in range(reader.servers):
                rows = reader.rows_of(server, 0, reader.rows_on(server))
                window = np.full((len(rows), records.shape[1] + 1), np.nan, np.float32)
                saved.read_server(reader, server, window[:, :-1])
                assert window[:, :-1].tobytes() == records[rows].tobytes()


def test_a_missing_or_replaced_layer_is_named(tmp_path: Path) -> None:
    full, first, second = write_chain(tmp_path, 3)
    opened = load_checkpoint(second)
    assert [layer.directory for layer in opened.layers()] == [full, first, second]
    manifest = (first / "manifest.json").read_text()
    (first / "manifest.json").write_text(manifest + "\n")
    with pytest.raises(CheckpointError, match=r"step-00000030: was built on another checkpoint than .*step-00000020"):
        opened.verify()
    (first / "manifest.json").write_text(manifest)
    shutil.rmtree(full)
    with pytest.raises(CheckpointError, match=r"step-00000020: holds only .*step-00000010, which is absent"):
        opened.read_rows(0, 1)


def test_layers_of_other_tables_are_refused(tmp_path: Path) -> None:
    full = write_checkpoint(tmp_path, sample_records((4,), 5), (4,), step=10)
    path = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, base=full, updated=np.array([1]))
    with pytest.raises(CheckpointError, match=r"step-00000100: table_rows = .*and \(4,\) in .*step-00000010"):
        load_checkpoint(path).read_rows(0, 1)


def test_damage_below_an_increment_is_found_by_name(tmp_path: Path) -> None:
    full, first, _ = write_chain(tmp_path, 3)
    for damaged in (full, first):
        path = damaged / "rows-00001-of-00002.h5"
        contents = path.read_bytes()
        path.write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
        with pytest.raises(CheckpointError, match=f"{damaged.name}/rows-00001-of-00002.h5: its SHA-256"):
            load_checkpoint(tmp_path).verify()
        path.write_bytes(contents)
    load_checkpoint(tmp_path).verify()
    (full / "dense.h5").unlink()  # only the newest is read
    load_checkpoint(tmp_path).verify()


@pytest.mark.parametrize("rows", [[-1, 2], [2, 13], [3, 3], [4, 1], [2**62, 2**63 - 1]])
def test_false_rows_are_refused(tmp_path: Path, rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = write_chain(tmp_path, 2, servers=1)
    with h5py.File(path / "rows-00000-of-00001.h5", "r+") as file:
        file["rows"][:] = rows
    for at_once in (1, 2):
        monkeypatch.setattr(row_numbers, "_CHECKED_AT_ONCE", at_once)
        with (
            load_checkpoint(path).open_rows() as saved,
            pytest.raises(CheckpointError, match="rows are not ascending numbers from 0 to 12"),
        ):
            saved.read_server(RoundRobinPartition(ROWS, 1), 0, np.zeros((ROWS, 5), np.float32))


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_the_lists_of_all_files_are_checked_by_one_of_several(tmp_path: Path, damaged: int) -> None:
    """Those of increments, too, before any row is read."""
    full = write_chain(tmp_path, 1)[0]
    updated = np.arange(ROWS)
    path = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, servers=3, base=full, updated=updated)
    with h5py.File(path / f"rows-0000{damaged}-of-00003.h5", "r+") as file:
        file["rows"][0] = ROWS - 1
    with load_checkpoint(path).open_rows() as saved:
        saved.check_rows((damaged + 1) % 2, 2)
        with pytest.raises(CheckpointError, match=f"rows-0000{damaged}-of-00003.h5: rows are not ascending"):
            saved.check_rows(damaged % 2, 2)


def test_a_server_whose_rows_are_not_all_there_is_told(tmp_path: Path) -> None:
    path = write_chain(tmp_path, 1)[0]
    with h5py.File(path / "rows-00001-of-00002.h5", "r+") as file:
        file["runs"][:] = [[0, 2, ROWS // 2]]
    with (
        load_checkpoint(path).open_rows() as saved,
        pytest.raises(CheckpointError, match=r"step-00000010: has 0 of the 6 rows of server 1; use another"),
    ):
        saved.read_server(RoundRobinPartition(ROWS, 2), 1, np.zeros((6, 5), np.float32))


def test_row_numbers_must_be_as_many_as_records(tmp_path: Path) -> None:
    _, path = write_chain(tmp_path, 2)
    with h5py.File(path / "rows-00000-of-00002.h5", "r+") as file:
        del file["rows"]
        file["rows"] = np.arange(3)
    with pytest.raises(CheckpointError, match=r"weights is float32 .*must be float32 \(3, 4\)"):
        load_checkpoint(path).read_rows(0, 1)


def test_what_a_kept_checkpoint_builds_on_is_kept(tmp_path: Path) -> None:
    chain = write_chain(tmp_path, 3)
    again = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=40)
    KeptCheckpoints(2).remove_older(again)
    assert find_checkpoints(tmp_path) == [*chain, again]
    KeptCheckpoints(1).remove_older(again)
    assert find_checkpoints(tmp_path) == [again]


def test_a_chain_is_read_once_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many checkpoints are kept: it is looked at after each new one, beside training."""
    chain = write_chain(tmp_path, 8)
    kept = KeptCheckpoints(5)
    read: list[Path] = []

    def load(path: Path) -> CheckpointManifest:
        read.append(path.parent)
        return load_checkpoint_manifest(path)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "load_checkpoint_manifest", load)
        for newest in chain[5:]:
            kept.remove_older(newest)
    assert sorted(read) == chain
    assert find_checkpoints(tmp_path) == chain


class KilledError(Exception):
    """Stands for a kill."""


REMOVALS: dict[str, Callable[[list[Path]], None]] = {
    "but the newest": lambda found: KeptCheckpoints(1).remove_older(found[-1]),
    "what builds on the first": lambda found: remove_increments_of(found[0]),
    "all": remove_checkpoints,
}


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_removal_that_is_cut_short_leaves_whole_ones(
    removal: str, removed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No increment without its base, and none that lacks files."""
    write_chain(tmp_path, 4)
    write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=50)
    found = find_checkpoints(tmp_path)
    left = iter(range(removed))

    def remove(directory: Path, *, ignore_errors: bool) -> None:
        (directory / "dense.h5").unlink()
        if next(left, None) is None:
            raise KilledError
        shutil.rmtree(directory, ignore_errors=ignore_errors)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "shutil", SimpleNamespace(rmtree=remove))
        with pytest.raises(KilledError):
            REMOVALS[removal](found)
    still = find_checkpoints(tmp_path)
    assert len(still) == len(found) - removed - 1
    for path in still:
        load_checkpoint(path).verify()


def test_an_increment_under_the_name_of_its_base_ends_nobody(tmp_path: Path) -> None:
    """Which a chain of bases would come back to for ever. And who looks may find one gone."""
    base, increment, newest = write_chain(tmp_path, 3)
    shutil.rmtree(base)
    shutil.copytree(increment, base)
    KeptCheckpoints(1).remove_older(newest)
    assert newest in find_checkpoints(tmp_path)


def test_replacing_a_checkpoint_removes_what_builds_on_it(tmp_path: Path) -> None:
    full, first, _ = write_chain(tmp_path, 3)
    other = write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=40)
    write_checkpoint(tmp_path, sample_records(TABLES, 5, seed=9), TABLES, step=20, base=full, updated=np.array([1]))
    assert find_checkpoints(tmp_path) == [full, first, other]
    for path in find_checkpoints(tmp_path):
        load_checkpoint(path).verify()


def test_one_without_its_manifest_is_replaced(tmp_path: Path) -> None:
    """Of which a removal that was cut short has left the rest; what is gone altogether needs none."""
    path = write_chain(tmp_path, 1)[0]
    (path / "manifest.json").unlink()
    assert write_chain(tmp_path, 1) == find_checkpoints(tmp_path) == [path]
    load_checkpoint(path).verify()
    remove_checkpoints([path.with_name("step-00000005")])
    assert find_checkpoints(tmp_path) == [path]


def test_kills_around_two_renames_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier checkpoint has another name in between, and keeps it until the later one is there."""

    def write() -> Path:
        return write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, step=10)

    def be_killed(*_: object) -> None:
        raise KilledError

    path = write()
    aside = path.rename(path.with_name("step-00000010.replaced"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", be_killed)
        with pytest.raises(KilledError):
            write()
    assert find_checkpoints(tmp_path) == [aside]
    load_checkpoint(tmp_path).verify()
    write()
    assert find_checkpoints(tmp_path) == [path]
    assert not aside.exists()
    shutil.copytree(path, aside)  # a kill behind the second rename
    assert find_checkpoints(tmp_path) == [path]
    write()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_weights_are_read_without_their_state(tmp_path: Path) -> None:
    """As if there were none, of all files, increments among them."""
    records = sample_records((5, 3), 6)
    base = write_checkpoint(tmp_path, records, (5, 3), servers=2, state_columns=2, step=80)
    updated = np.array([1, 6])
    changed = records.copy()
    changed[updated] += np.float32(1)
    later = write_checkpoint(tmp_path, changed, (5, 3), servers=2, state_columns=2, step=90, base=base, updated=updated)
    with load_checkpoint(later).open_rows(weights_only=True) as rows:
        assert np.array_equal(rows.read(0, 8), changed[:, :4])
        partition = RoundRobinPartition(8, 3)
        window = np.empty((partition.rows_on(1), 4), np.float32)
        rows.read_server(partition, 1, window)
    assert np.array_equal(window, changed[partition.rows_of(1, 0, partition.rows_on(1)), :4])
