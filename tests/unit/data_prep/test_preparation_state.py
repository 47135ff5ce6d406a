"""An unfinished preparation goes on from what is whole, and only as what it began as."""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.shards.entries import InputInfo, ShardInfo
from data_prep.inputs.text_blocks import TextPosition
from data_prep.parsed_rows import Part
from data_prep.preparation_state import FITTED, PreparationState, describe_inputs, resume_or_start

WANTED = PreparationState(
    inputs=(InputInfo("day_0", 10, 1), InputInfo("day_1", 20, 2)),
    settings={"source_format": "criteo", "min_count": 2, "dense": ("I1", "I2")},
    layout=("label", "I1", "C1"),
    range_bytes=100,
)
PART = Part(0, 0, 5, 100, TextPosition(0, 100), True, ())


def begun(output: Path, state: PreparationState = WANTED) -> Path:
    """A folder with one finished part."""
    output.mkdir()
    resume_or_start(output, state).note_part(PART)
    return output


def test_an_input_is_told_by_name_size_and_time_and_not_by_its_folder(tmp_path: Path) -> None:
    first, moved = tmp_path / "clicks", tmp_path / "moved" / "clicks"
    moved.parent.mkdir()
    for path in (first, moved):
        path.write_text("1\t2")
        os.utime(path, ns=(5, 5))
    before = describe_inputs([first])
    assert describe_inputs([moved]) == before
    os.utime(moved, ns=(5, 6))
    assert describe_inputs([moved]) != before
    moved.write_text("1\t2\t3")
    os.utime(moved, ns=(5, 5))
    assert describe_inputs([moved]) != before
    assert describe_inputs([first.rename(tmp_path / "other")]) != before


def test_what_was_noted_and_is_whole_is_finished(tmp_path: Path) -> None:
    work = resume_or_start(begun(tmp_path / "out"), WANTED)
    assert work.parts == (PART,)
    vocabularies = FileInfo("vocabularies.h5", 3, "a" * 64)
    shards = [ShardInfo(f"{split}-00000.h5", 5, 1, 4, "b" * 64) for split in ("train", "test")]
    work.note_vocabularies(vocabularies)
    for shard in shards:
        work.note_shard(shard)
    missing = resume_or_start(work.output, WANTED)
    assert (missing.vocabularies, missing.shards) == (None, {})
    for info in (vocabularies, *shards):
        (work.output / info.file).write_bytes(b"x" * info.bytes)
    again = resume_or_start(work.output, WANTED)
    assert again.vocabularies == vocabularies
    assert again.shards == {shard.file: shard for shard in shards}
    for file in ("vocabularies.h5", "test-00000.h5"):
        (work.output / file).write_bytes(b"xx")
    cut = resume_or_start(work.output, WANTED)
    assert (cut.vocabularies, list(cut.shards)) == (None, ["train-00000.h5"])


def test_parts_come_in_the_order_of_the_input_up_to_a_gap_in_their_range(tmp_path: Path) -> None:
    work = resume_or_start(begun(tmp_path / "out"), WANTED)
    parts = [
        replace(PART, range=number, number=at)
        for number, at in ((1, 0), (1, 1), (0, 3), (0, 1), (10**6, 0), (999_999, 0))
    ]
    for part in parts:
        work.note_part(part)
    assert resume_or_start(work.output, WANTED).parts == (PART, parts[3], parts[0], parts[1], parts[5], parts[4])


def test_parts_have_the_ranges_that_they_were_begun_with(tmp_path: Path) -> None:
    work = resume_or_start(begun(tmp_path / "out"), replace(WANTED, range_bytes=200))
    assert work.state.range_bytes == 100


def test_what_was_half_written_goes(tmp_path: Path) -> None:
    """In a folder where nothing else is, it is no preparation of somebody else's."""
    output = tmp_path / "out"
    output.mkdir()
    (output / ".preparation.json.7.partial").touch()
    begun_there = resume_or_start(output, WANTED)
    (begun_there.parts_folder / ".rows-000000-00000.arrow.7.partial").touch()
    resume_or_start(output, WANTED)
    assert [path.name for path in output.rglob("*.partial")] == []


@pytest.mark.parametrize("failing", ["preparation.json", "parsed"])
def test_a_folder_that_was_left_in_the_first_moment_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Here by a disk that is full when the first or the second of its files is made; a kill there leaves the same."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    output = tmp_path / "out"
    output.mkdir()
    with monkeypatch.context() as patch:
        if failing == "parsed":
            patch.setattr(Path, "mkdir", full)
        else:
            patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space left on device"):
            resume_or_start(output, WANTED)
    resume_or_start(output, WANTED).note_part(PART)
    assert resume_or_start(output, WANTED).parts == (PART,)


def test_an_empty_folder_of_parts_is_no_other_file_but_a_full_one_is(tmp_path: Path) -> None:
    """Earlier versions left an empty one."""
    for name in ("empty", "full"):
        (tmp_path / name / "parsed").mkdir(parents=True)
    resume_or_start(tmp_path / "empty", WANTED).note_part(PART)
    (tmp_path / "full" / "parsed" / "notes.txt").touch()
    with pytest.raises(DataError, match="the folder is not empty and holds no preparation"):
        resume_or_start(tmp_path / "full", WANTED)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (replace(WANTED, inputs=WANTED.inputs[::-1]), r"other inputs \(in another order\)"),
        (replace(WANTED, inputs=WANTED.inputs[:1]), r"other inputs \(different or changed: day_1\)"),
        (replace(WANTED, settings=WANTED.settings | {"unseen_buckets": 3}), "unseen_buckets = None instead of 3"),
        (replace(WANTED, settings={"source_format": "criteo", "min_count": 2}), "dense = .* instead of None"),
        (replace(WANTED, settings=WANTED.settings | {FITTED: {"age": 3}}), f"{FITTED} = None instead of"),
        (replace(WANTED, layout=(*WANTED.layout, "C2")), "a format with no more columns instead of C2"),
        (replace(WANTED, layout=WANTED.layout[:2]), "a format with C1 instead of no more columns"),
    ],
)
def test_another_preparation_is_refused_where_there_is_something_to_lose(
    tmp_path: Path, wanted: PreparationState, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        resume_or_start(begun(tmp_path / "out"), wanted)
    empty = tmp_path / "empty"
    empty.mkdir()
    resume_or_start(empty, WANTED)
    assert resume_or_start(empty, wanted).state == wanted
    assert len(resume_or_start(empty, wanted).state.inputs) == len(wanted.inputs)


def rewritten(change: Callable[[dict[str, Any]], object], output: Path) -> None:
    path = output / "preparation.json"
    text = json.loads(path.read_text())
    change(text)
    path.write_text(json.dumps(text))


def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    output = begun(tmp_path / "out")
    rewritten(lambda text: text.update(version=text["version"] + 1), output)
    with pytest.raises(DataError, match=r"version.*which this version of bagpipe writes.*remove"):
        resume_or_start(output, WANTED)


@pytest.mark.parametrize("name", ["preparation.json", f"parsed/{PART.name}.json"])
def test_damage_of_what_is_recorded_is_named_with_the_cure(tmp_path: Path, name: str) -> None:
    output = begun(tmp_path / "out")
    for content in (b"\xff", b"", (output / name).read_bytes()[:-3]):
        (output / name).write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}: is no .*; remove {output} and run bagpipe prepare again"):
            resume_or_start(output, WANTED)


def test_what_the_rows_themselves_tell_is_no_other_setting(tmp_path: Path) -> None:
    found = replace(WANTED, settings=WANTED.settings | {FITTED: {"age": 3}})
    assert resume_or_start(begun(tmp_path / "out", found), WANTED).parts == (PART,)
