"""Checkpoints are complete or absent, give back every bit, and say which file is damaged."""

import errno
import os
import resource
import shutil
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.storage.checkpoints import row_file, writer
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.finite_files import require_finite
from bagpipe_hpc.storage.checkpoints.folder import (
    KeptCheckpoints,
    find_checkpoints,
    remove_partial_checkpoints,
)
from bagpipe_hpc.storage.checkpoints.writer import CheckpointWriter
from tests.drawing import share_of
from tests.unit.checkpoint_samples import sample_records, trained_dense, write_checkpoint

TABLES = (5, 1, 7)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, sample_records(TABLES, 5), TABLES, servers=2)


@settings(max_examples=share_of(25), deadline=None)
@given(
    tables=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    dim=st.integers(1, 4),
    state_columns=st.integers(0, 2),
    servers=st.integers(1, 5),
    new_servers=st.integers(1, 6),
    piece_bytes=st.sampled_from([1, 60, 1 << 20]),
    data=st.data(),
)
def test_rows_round_trip_bit_for_bit(
    tables: tuple[int, ...],
    dim: int,
    state_columns: int,
    servers: int,
    new_servers: int,
    piece_bytes: int,
    data: st.DataObject,
) -> None:
    records = sample_records(tables, dim + state_columns)
    total = len(records)
    first = data.draw(st.integers(0, total))
    last = data.draw(st.integers(first, total))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_file, "COPY_BYTES", piece_bytes)
        path = write_checkpoint(Path(folder), records, tables, servers=servers, state_columns=state_columns)
        checkpoint = load_checkpoint(path)
        checkpoint.verify()
        assert checkpoint.read_rows(first, last).tobytes() == records[first:last].tobytes()
        with checkpoint.open_rows() as rows:
            for server in range(new_servers):
                held = RoundRobinPartition(total, new_servers).rows_on(server)
                window = np.full((held, dim + state_columns + 1), np.nan, np.float32)
                rows.read_server(RoundRobinPartition(total, new_servers), server, window[:, :-1])
                assert window[:, :-1].tobytes() == records[server::new_servers].tobytes()


def test_every_bit_pattern_survives(tmp_path: Path) -> None:
    bits = np.array([[0x7F800001, 0xFFC12345], [0x80000000, 0x00000001], [0x7F800000, 0xFF7FFFFF]], np.uint32)
    path = write_checkpoint(tmp_path, bits.view(np.float32), (3,), servers=2)
    assert load_checkpoint(path).read_rows(0, 3).view(np.uint32).tolist() == bits.tolist()


def test_a_column_slice_of_a_window_is_written_without_its_other_columns(tmp_path: Path) -> None:
    window = sample_records((6,), 4)
    path = write_checkpoint(tmp_path, window[:, :3], (6,))
    assert load_checkpoint(path).read_rows(0, 6).tobytes() == window[:, :3].tobytes()


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    records = sample_records(TABLES, 5)
    one = write_checkpoint(tmp_path / "one", records, TABLES, servers=2)
    two = write_checkpoint(tmp_path / "two", records, TABLES, servers=2)
    assert load_checkpoint(one).manifest == load_checkpoint(two).manifest


def test_records_of_another_shape_or_type_are_refused(tmp_path: Path) -> None:
    writer, partition = CheckpointWriter(tmp_path, 1), RoundRobinPartition(4, 1)
    for records in (np.zeros((3, 2), np.float32), np.zeros((4, 1), np.float32), np.zeros((4, 2))):
        with pytest.raises(ValueError, match="must be float32"):
            writer.write_rows(0, partition, records, 2)
    assert find_checkpoints(tmp_path) == []


def test_ranges_and_windows_outside_the_rows_are_refused(checkpoint: Path) -> None:
    opened = load_checkpoint(checkpoint)
    for first, last in ((-1, 2), (3, 2), (0, 14)):
        with pytest.raises(ValueError, match="are not among"):
            opened.read_rows(first, last)
    with opened.open_rows() as rows, pytest.raises(ValueError, match="window of server 0"):
        rows.read_server(RoundRobinPartition(13, 1), 0, np.zeros((12, 5), np.float32))


def test_the_newest_complete_checkpoint_of_an_output_folder_is_taken(tmp_path: Path) -> None:
    records = sample_records((3,), 2)
    for step in (20, 100_000_000, 3):
        write_checkpoint(tmp_path, records, (3,), step=step)
    folder = tmp_path / "checkpoints"
    shutil.copytree(folder / "step-00000003", folder / "step-999999999.partial")
    (folder / "step-00000500").mkdir()
    shutil.copytree(folder / "step-00000003", folder / "before-the-change")
    assert [path.name for path in find_checkpoints(tmp_path)] == ["step-00000003", "step-00000020", "step-100000000"]
    assert load_checkpoint(tmp_path).manifest.step == 100_000_000
    assert load_checkpoint(folder / "before-the-change").manifest.step == 3
    with pytest.raises(CheckpointError, match="never completed"):
        load_checkpoint(folder / "step-999999999.partial")
    with pytest.raises(CheckpointError, match=r"manifest\.json: is absent"):
        load_checkpoint(folder / "step-00000500")


def test_where_there_is_no_checkpoint_the_error_says_so(tmp_path: Path) -> None:
    assert find_checkpoints(tmp_path) == []
    with pytest.raises(CheckpointError, match=r"manifest\.json: is absent"):
        load_checkpoint(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        load_checkpoint(tmp_path)


# Python warns of a fork beside torch's threads; the child touches no tensor arithmetic.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("moment", ["rows", "dense", "digest", "manifest", "rename"])
def test_a_kill_at_any_moment_leaves_the_earlier_checkpoint(tmp_path: Path, moment: str) -> None:
    records = sample_records((4,), 2)
    earlier = write_checkpoint(tmp_path, records, (4,), step=1)
    dense = trained_dense()
    process = os.fork()
    if process == 0:
        with pytest.MonkeyPatch.context() as patch:
            module = "bagpipe_hpc.storage.checkpoints.writer"
            target = {
                "rows": f"{module}.write_row_file",
                "dense": "bagpipe_hpc.storage.checkpoints.dense_file.write_dense_file",
                "digest": f"{module}.file_sha256",
                "manifest": "pathlib.Path.write_text",
                "rename": "pathlib.Path.rename",
            }[moment]
            patch.setattr(target, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
            write_checkpoint(tmp_path, records, (4,), step=2, servers=2, dense=dense)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert find_checkpoints(tmp_path) == [earlier]
    load_checkpoint(tmp_path).verify()

    path = write_checkpoint(tmp_path, records, (4,), step=2, servers=1)
    assert sorted(entry.name for entry in path.iterdir()) == ["dense.h5", "manifest.json", "rows-00000-of-00001.h5"]
    assert [entry.name for entry in sorted(path.parent.iterdir())] == ["step-00000001", "step-00000002"]
    load_checkpoint(tmp_path).verify()


def test_a_replayed_step_replaces_its_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, sample_records((4,), 2, seed=1), (4,), servers=3)
    records = sample_records((4,), 2, seed=2)
    path = write_checkpoint(tmp_path, records, (4,), servers=1)
    assert list(path.parent.iterdir()) == [path]
    load_checkpoint(path).verify()
    assert load_checkpoint(path).read_rows(0, 4).tobytes() == records.tobytes()


def test_commit_refuses_what_is_not_there(tmp_path: Path) -> None:
    manifest = load_checkpoint(write_checkpoint(tmp_path / "other", sample_records((4,), 2), (4,))).manifest
    writer = CheckpointWriter(tmp_path, manifest.step)
    writer.write_dense(*trained_dense())
    with pytest.raises(CheckpointError, match=r"rows-00000-of-00001\.h5: is not there"):
        writer.commit(manifest)
    (writer.directory.with_name("step-00000100.partial") / "rows-00000-of-00001.h5").write_bytes(b"a part of it")
    with pytest.raises(CheckpointError, match=r"rows-00000-of-00001\.h5: is not there with \d+ bytes"):
        writer.commit(manifest)
    with pytest.raises(ValueError, match="step 100, the writer of step 101"):
        CheckpointWriter(tmp_path, 101).commit(manifest)
    assert find_checkpoints(tmp_path) == []


def test_names_are_on_the_disk_before_the_earlier_checkpoint_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the checkpoint, and that of the folder of checkpoints, which may be new."""
    forced: list[tuple[str, int]] = []
    folder = tmp_path / "checkpoints"
    monkeypatch.setattr(writer, "fsync", lambda path: forced.append((path.name, len(list(folder.iterdir())))))
    for left in (1, 2):
        path = write_checkpoint(tmp_path, sample_records((4,), 2), (4,))
        assert forced == [("checkpoints", left), (tmp_path.name, left)]
        assert list(folder.iterdir()) == [path]
        forced.clear()


def test_a_checkpoint_that_does_not_get_its_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = write_checkpoint(tmp_path, sample_records((4,), 2), (4,), step=1)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "rename", fail)
    said = r"step-00000002: cannot be written \(.*nput/output error.*\); .* Earlier checkpoints are unharmed"
    with pytest.raises(CheckpointError, match=said):
        write_checkpoint(tmp_path, sample_records((4,), 2), (4,), step=2)
    assert find_checkpoints(tmp_path) == [earlier]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file is in the way")
    with pytest.raises(CheckpointError, match=r"dense\.h5: cannot be written"):
        CheckpointWriter(tmp_path, 1).write_dense({}, {})


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("limit_bytes", [0, 3000, 20_000])
def test_a_full_disk_is_reported_and_leaves_the_earlier_checkpoint(tmp_path: Path, limit_bytes: int) -> None:
    earlier = write_checkpoint(tmp_path, sample_records((4,), 2), (4,), step=1)
    records, dense = sample_records((20_000,), 2), trained_dense()
    process = os.fork()
    if process == 0:
        # A limit on the size of files fails as a full disk does.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        try:
            write_checkpoint(tmp_path, records, (20_000,), step=2, dense=dense)
        except CheckpointError as error:
            os._exit(3 if "rows-00000-of-00001.h5: cannot be written" in str(error) else 4)
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 3
    assert find_checkpoints(tmp_path) == [earlier]


@pytest.mark.parametrize("name", ["rows-00000-of-00002.h5", "rows-00001-of-00002.h5", "dense.h5"])
def test_damage_is_caught_by_name(checkpoint: Path, name: str) -> None:
    opened = load_checkpoint(checkpoint)
    path = checkpoint / name
    contents = path.read_bytes()

    flipped = bytearray(contents)
    flipped[-1] ^= 1
    path.write_bytes(flipped)
    opened.verify(quick=True)
    with pytest.raises(CheckpointError, match=f"{name}: its SHA-256"):
        opened.verify()

    path.write_bytes(contents[:-1])
    with pytest.raises(CheckpointError, match=f"{name}: has {len(contents) - 1} bytes"):
        opened.verify(quick=True)

    path.unlink()
    with pytest.raises(CheckpointError, match=f"{name}: is absent"):
        opened.verify()
    with pytest.raises(CheckpointError, match=f"{name}: is absent"):
        opened.read_dense() if name == "dense.h5" else opened.read_rows(0, 2)


@pytest.mark.parametrize("contents", [b"", b"not HDF5", b"\x89HDF\r\n\x1a\n" + b"\0" * 500])
def test_reading_what_is_no_hdf5_file_names_it(checkpoint: Path, contents: bytes) -> None:
    for name in ("rows-00001-of-00002.h5", "dense.h5"):
        (checkpoint / name).write_bytes(contents)
    opened = load_checkpoint(checkpoint)
    with pytest.raises(CheckpointError, match=r"rows-00001-of-00002\.h5: cannot be read as HDF5"):
        opened.read_rows(0, 2)
    with pytest.raises(CheckpointError, match=r"dense\.h5: cannot be read as HDF5"):
        opened.read_dense()


def test_reading_a_truncated_row_file_names_it(checkpoint: Path) -> None:
    path = checkpoint / "rows-00000-of-00002.h5"
    contents = path.read_bytes()
    for length in range(0, len(contents), 97):
        path.write_bytes(contents[:length])
        with pytest.raises(CheckpointError, match=r"rows-00000-of-00002\.h5"):
            load_checkpoint(checkpoint).read_rows(0, 13)


def test_row_files_of_another_place_are_refused(checkpoint: Path) -> None:
    first, second = (checkpoint / f"rows-0000{server}-of-00002.h5" for server in (0, 1))
    shutil.copy(second, first)
    with pytest.raises(CheckpointError, match=r"rows-00000-of-00002\.h5: attribute server = .*1.*must be 0"):
        load_checkpoint(checkpoint).read_rows(0, 2)


def test_an_attribute_of_another_kind_is_refused(checkpoint: Path) -> None:
    path = next(checkpoint.glob("rows-*"))
    with h5py.File(path, "r+") as file:
        file.attrs["server"] = np.zeros(2, [("a", "i4")])[0]
    with pytest.raises(CheckpointError, match=rf"{path.name}: attribute server = .* must be [01]"):
        load_checkpoint(checkpoint).read_rows(0, 1)


@pytest.mark.parametrize("values", [np.zeros((8, 1), "S3"), np.zeros(8, np.float32)])
def test_rows_of_another_kind_are_not_looked_at(values: np.ndarray, checkpoint: Path) -> None:
    loaded = load_checkpoint(checkpoint)
    info = next(info for info in loaded.manifest.files if info.file.startswith("rows-"))
    with h5py.File(checkpoint / info.file, "r+") as file:
        del file["weights"]
        file["weights"] = values
    with pytest.raises(CheckpointError, match=rf"{info.file}: weights is .* instead of float32"):
        require_finite(checkpoint, loaded.manifest, info)


def test_datasets_outside_the_file_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    name = "rows-00000-of-00002.h5"
    elsewhere = tmp_path / "elsewhere.h5"
    shutil.copy(checkpoint / name, elsewhere)
    raw = tmp_path / "raw"
    raw.write_bytes(bytes(7 * 4 * 4))
    layout = h5py.VirtualLayout((7, 4), "<f4")
    layout[:] = h5py.VirtualSource(elsewhere, "weights", (7, 4))
    hostile = {
        "external link": lambda file: file.__setitem__("weights", h5py.ExternalLink(elsewhere, "weights")),
        "soft link": lambda file: file.__setitem__("weights", h5py.SoftLink("/optimizer_state")),
        "external storage": lambda file: file.create_dataset("weights", (7, 4), "<f4", external=[(raw, 0, 112)]),
        "virtual": lambda file: file.create_virtual_dataset("weights", layout),
        "never written": lambda file: file.create_dataset("weights", (7, 4), "<f4"),
        "compressed": lambda file: file.create_dataset("weights", data=np.zeros((7, 4), "<f4"), compression="gzip"),
        "no data at all": lambda file: file.create_dataset("weights", data=h5py.Empty("<f4")),
        "group": lambda file: file.create_group("weights"),
        "other type": lambda file: file.create_dataset("weights", data=np.zeros((7, 4), "<f8")),
        "other shape": lambda file: file.create_dataset("weights", data=np.zeros((4, 7), "<f4")),
        "absent": lambda _: None,
    }
    for put in hostile.values():
        with h5py.File(checkpoint / name, "r+") as file:
            del file["weights"]
            put(file)
        with pytest.raises(CheckpointError, match=r"rows-00000-of-00002\.h5: .*weights"):
            load_checkpoint(checkpoint).read_rows(0, 2)
        shutil.copy(elsewhere, checkpoint / name)


def test_manifest_of_other_tables_does_not_fit_the_files(checkpoint: Path) -> None:
    path = checkpoint / "manifest.json"
    manifest = load_checkpoint(checkpoint).manifest
    for change in ({"table_rows": (5, 1, 8)}, {"embedding_dim": 3}, {"row_state_columns": 0, "row_state": ()}):
        path.write_text(replace(manifest, **change).to_json())
        with pytest.raises(CheckpointError, match=r"rows-00000-of-00002\.h5: .* must be .* manifest"):
            load_checkpoint(checkpoint).read_rows(0, 2)


def test_a_folder_of_another_step_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But a copy may have any other name."""
    rows = sample_records((5, 3), 3)
    path = write_checkpoint(tmp_path, rows, (5, 3), step=100)
    copy = path.rename(path.with_name("best"))
    assert load_checkpoint(copy).manifest.step == 100
    other = copy.rename(path.with_name("step-00000200"))
    with pytest.raises(CheckpointError, match=r"manifest\.json: step = 100: its folder is that of step 200"):
        load_checkpoint(tmp_path)
    monkeypatch.chdir(other)
    with pytest.raises(CheckpointError, match=r"its folder is that of step 200"):
        load_checkpoint(Path())
    write_checkpoint(tmp_path, rows, (5, 3), step=300, base=other, updated=np.array([2]))
    with pytest.raises(CheckpointError, match=r"absent|folder is that of step 200"):
        load_checkpoint(tmp_path).layers()


def test_older_checkpoints_are_removed_beyond_those_that_are_kept(tmp_path: Path) -> None:
    """Newer ones, which a run that went back has left, stay; so does what is no checkpoint."""
    rows = sample_records((5, 3), 3)
    written = {step: write_checkpoint(tmp_path, rows, (5, 3), step=step) for step in (100, 200, 300, 400)}
    (tmp_path / "checkpoints" / "notes").mkdir()
    KeptCheckpoints(0).remove_older(written[300])
    assert find_checkpoints(tmp_path) == list(written.values())
    KeptCheckpoints(2).remove_older(written[300])
    assert find_checkpoints(tmp_path) == [written[200], written[300], written[400]]
    KeptCheckpoints(1).remove_older(written[300])
    assert find_checkpoints(tmp_path) == [written[300], written[400]]
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-00000300", "step-00000400", "notes"}


def test_what_killed_runs_began_is_removed(tmp_path: Path) -> None:
    whole = write_checkpoint(tmp_path, sample_records((5, 3), 3), (5, 3))
    (tmp_path / "checkpoints" / "step-00000200.partial").mkdir()
    (tmp_path / "checkpoints" / "step-00000200.partial" / "dense.h5").touch()
    remove_partial_checkpoints(tmp_path)
    assert list((tmp_path / "checkpoints").iterdir()) == [whole]
    remove_partial_checkpoints(tmp_path / "new")
