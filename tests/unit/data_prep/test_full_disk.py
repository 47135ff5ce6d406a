"""A disk that is full while rows are prepared is named, and the same command goes on once there is room."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

import data_prep.prepare
import data_prep.stages.write
from bagpipe_hpc.errors import CapacityError
from data_prep.parsed_rows import Part
from data_prep.preparation_state import WorkFolder
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.click_rows import random_rows
from tests.unit.data_prep.plain_preparation import assert_holds, prepare_naively, silent, small_blocks, write_text


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = write_text(tmp_path / "clicks", random_rows(3, seed=4))
    monkeypatch.setattr(data_prep.stages.write, "write_encoded_shard", fail)
    monkeypatch.setattr(data_prep.stages.write, "write_shard", fail)
    with pytest.raises(CapacityError, match=r"out: the disk is full.* run bagpipe prepare again"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)
    with pytest.raises(CapacityError, match=r"^found.csv: the disk is full; free some space and start again$"):
        prepare_clicks([source], tmp_path / "rows", PrepareSettings(), silent, made_for=Path("found.csv"))


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_a_shard_that_fails_leaves_its_rows_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """The next one, which another thread has begun meanwhile, would hold them under its own name."""
    out, chosen = tmp_path / "out", PrepareSettings(rows_per_shard=20, compression=compression)
    lines = random_rows(100, seed=4)
    source = write_text(tmp_path / "clicks", lines)

    def failing_first(write: Callable[..., object]) -> Callable[..., object]:
        def written(path: Path, *arguments: object, **settings: object) -> object:
            if path.name == "train-00000.h5":
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(path, *arguments, **settings)

        return written

    with monkeypatch.context() as patch:
        for name in ("write_shard", "write_encoded_shard"):
            patch.setattr(data_prep.stages.write, name, failing_first(getattr(data_prep.stages.write, name)))
        with pytest.raises(CapacityError, match="out: the disk is full"):
            prepare_clicks([source], out, chosen, silent)
    assert not list(out.glob("t*.h5"))
    assert_holds(out, prepare_clicks([source], out, chosen, silent), prepare_naively(lines, 2, 0.1))


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_part_is_noted_once_it_is_there_and_its_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Whether it is the first of its range, which another one follows, or the last."""
    small_blocks(monkeypatch, part_rows=15)
    noted: list[int] = []

    def note(work: WorkFolder, part: Part) -> None:
        assert (work.parts_folder / part.file).is_file()
        noted.append(part.number)
        if part.number == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(WorkFolder, "note_part", note)
    source = write_text(tmp_path / "clicks", random_rows(40, seed=4))
    with pytest.raises(CapacityError, match="out: the disk is full"):
        prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)
    assert noted == list(range(failing + 1))


def test_a_disk_that_is_full_at_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    source = write_text(tmp_path / "clicks", random_rows(3, seed=4))
    with monkeypatch.context() as patch:
        patch.setattr(data_prep.prepare, "save_manifest", fail)
        with pytest.raises(CapacityError, match="out: the disk is full"):
            prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)
    prepare_clicks([source], tmp_path / "out", PrepareSettings(), silent)
