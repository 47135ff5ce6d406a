"""Inputs are found in time order, and what holds no rows is refused by name before anything is read."""

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from bagpipe_hpc.errors import DataError
from data_prep.inputs.files import find_sources, order_note


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("0\t1\n")


def archive(kind: str) -> bytes:
    stream = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w") as zipped:
            zipped.writestr("train.txt", "0\t1\n")
    else:
        with tarfile.open(fileobj=stream, mode=kind) as packed:  # type: ignore[call-overload]
            packed.addfile(tarfile.TarInfo("train.txt"))
    return stream.getvalue()


def test_patterns_keep_their_order_and_sort_by_number(tmp_path: Path) -> None:
    write(tmp_path, "day_10", "day_2", "extra")
    found = find_sources([str(tmp_path / "extra"), str(tmp_path / "day_*")])
    assert [path.name for path in found] == ["extra", "day_2", "day_10"]


def test_a_name_with_brackets_is_itself(tmp_path: Path) -> None:
    write(tmp_path, "day[1]", "day1")
    assert [path.name for path in find_sources([str(tmp_path / "day[1]")])] == ["day[1]"]


def test_two_stars_reach_into_folders(tmp_path: Path) -> None:
    (tmp_path / "week" / "day").mkdir(parents=True)
    write(tmp_path / "week" / "day", "clicks")
    assert [path.name for path in find_sources([str(tmp_path / "**")])] == ["clicks"]


def test_wrong_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\*: no such input file"):
        find_sources([str(tmp_path / "none*")])
    with pytest.raises(DataError, match=r"^'': no such input file"):
        find_sources([""])
    write(tmp_path, "twice")
    with pytest.raises(DataError, match="twice: named twice"):
        find_sources([str(tmp_path / "twice"), str(tmp_path / "t*")])


@pytest.mark.parametrize("name", ["day_2", "day_*"])
def test_what_is_no_file_is_refused_also_when_a_pattern_finds_it(tmp_path: Path, name: str) -> None:
    write(tmp_path, "day_1")
    path = tmp_path / "day_2"
    path.mkdir()
    with pytest.raises(DataError, match=r"day_2: is a folder; name the files in it, such as '.*day_2/day_\*'"):
        find_sources([str(tmp_path / name)])
    path.rmdir()
    path.symlink_to("nowhere")
    with pytest.raises(DataError, match="day_2: is a link to nowhere, which does not exist"):
        find_sources([str(tmp_path / name)])
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match=r"day_2: is a pipe or a device; .* write the rows to a file first"):
        find_sources([str(tmp_path / name)])


def test_a_shells_order_is_noted() -> None:
    def note(*names: str) -> str | None:
        return order_note([Path(name) for name in names])

    assert "day_10 is read before day_2" in str(note("data/day_1", "data/day_10", "data/day_2"))
    assert note("day_1", "day_2", "day_10") is None
    assert note("day_10", "day_2", "day_1") is None  # nobody's sorting, so it is meant
    assert note("old", "new") is None
    assert note("day_1") is None


def test_standard_input_is_no_file() -> None:
    with pytest.raises(DataError, match="-: inputs are files"):
        find_sources(["-"])


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        (b"", "is empty; leave it out"),
        (gzip.compress(b""), "is empty; leave it out"),
        (archive("zip"), "is a zip archive, which is not read; unpack it first, as with unzip -p .*/clicks"),
        (archive("w"), "is a tar archive; unpack it first with tar -xf"),
        (archive("w:gz"), "is a tar archive; unpack it first with tar -xf"),
        (b"\x04\x22\x4d\x18....", "is compressed with lz4, which is not read"),
        ("0\t1\n".encode("utf-16"), "is text in UTF-16"),
        (gzip.compress(b"0\t1\n" * 1000)[:12], "cannot be read .* damaged or cut off"),
    ],
    ids=["empty", "empty gzip", "zip", "tar", "tar.gz", "lz4", "UTF-16", "cut off"],
)
def test_what_holds_no_rows_is_refused_whichever_input_it_is(tmp_path: Path, contents: bytes, problem: str) -> None:
    write(tmp_path, "first")
    (tmp_path / "clicks").write_bytes(contents)
    with pytest.raises(DataError, match=f"clicks: {problem}"):
        find_sources([str(tmp_path / "first"), str(tmp_path / "clicks")])
