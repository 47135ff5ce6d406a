"""Whatever `bagpipe prepare` is given: one clear message with file and cure, and nothing lost or half written."""

import gzip
import io
import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.errors import ConfigError
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.click_rows import random_rows

GOOD = "\n".join(random_rows(30, seed=1)).encode() + b"\n"
FIELDS = GOOD.splitlines()[0].split(b"\t")


def with_field(number: int, text: bytes) -> bytes:
    """Good rows, the third of which has another field."""
    fields = [*FIELDS]
    fields[number] = text
    lines = GOOD.splitlines()
    return b"\n".join([*lines[:2], b"\t".join(fields), *lines[3:]])


def zipped() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("clicks", GOOD)
    return made.getvalue()


def archived() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("clicks")
        entry.size = len(GOOD)
        archive.addfile(entry, io.BytesIO(GOOD))
    return made.getvalue()


TEXTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "clicks: is empty"),
    "blank lines": (b"\n\n\r\n\n", "0 good rows; check the inputs"),
    "zeros": (b"\0" * 5_000_000, "no end of line in 2097152 bytes"),
    "a line of 3 MB": (GOOD + b"x" * 3_000_000 + b"\n", "clicks:31: 1 tab-separated fields instead"),
    "UTF-16": (GOOD.decode().encode("utf-16"), "is text in UTF-16"),
    "zip": (zipped(), "is a zip archive"),
    "tar.gz": (archived(), "is a tar archive"),
    "gzip cut off": (gzip.compress(GOOD)[:-20], "damaged or cut off"),
    "gzip with more": (gzip.compress(GOOD) + b"more", "damaged or cut off"),
    "lz4": (b"\x04\x22\x4d\x18" + GOOD, "is compressed with lz4"),
    "Parquet": (b"PAR1" + GOOD, "is a Parquet file"),
    "a header": (b"label\tI1\n" + GOOD, "clicks:1: 2 tab-separated fields instead of 40"),
    "commas": (GOOD.replace(b"\t", b","), "clicks:1: 1 tab-separated fields instead of 40"),
    "a field too few": (GOOD + b"\t".join(FIELDS[:-1]), "clicks:31: 39 tab-separated fields"),
    "a label of 2": (with_field(0, b"2"), "clicks:3: label is '2'"),
    "a long integer": (with_field(1, b"9" * 30), "clicks:3: I1 is "),
    "a fraction": (with_field(13, b"1.5"), "clicks:3: I13 is '1.5', which is no integer"),
    "a space": (with_field(2, b" 7"), "clicks:3: I2 is ' 7'"),
    "9 digits": (with_field(14, b"123456789"), "clicks:3: C1 is '123456789' instead of 1 to 8 hexadecimal digits"),
    "a zero byte": (with_field(39, b"a\0"), "clicks:3: C26 is"),
    "commands to a terminal": (with_field(14, b"\x1b[2J"), r"clicks:3: C1 is '\x1b[2J'"),
}


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that the command says."""
    assert main(["prepare", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    [line] = [line for line in said.err.splitlines() if line.startswith("bagpipe: error: ")]
    assert "Traceback" not in said.err
    assert line.isprintable()
    return line


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_that_is_none_of_clicks(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    text, words = TEXTS[kind]
    (tmp_path / "clicks").write_bytes(text)
    assert words in refusal(capsys, "--input", tmp_path / "clicks", "--output", tmp_path / "out")
    assert (tmp_path / "clicks").read_bytes() == text
    assert not list(tmp_path.glob("out/*.h5"))
    assert not (tmp_path / "out" / "manifest.json").exists()


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def a_link(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "gone")
    return folder / "link"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder / "absent", "absent: no such input file"),
        (lambda folder: folder / "no[thing]*", "no such input file"),
        (lambda folder: folder, "is a folder"),
        (a_link, "is a link to"),
        (a_pipe, "is a pipe or a device"),
        (lambda _: Path("/dev/null"), "is a pipe or a device"),
        (lambda _: Path("/proc/self/mem"), "/proc/self/mem: Input/output error; the disk or the file system fails"),
        (lambda folder: folder / "clicks" / "below", "clicks/below"),
        (lambda folder: folder / ("x" * 300), "use a shorter name"),
        (lambda folder: folder / "clicks", "named twice"),
    ],
)
def test_an_input_that_is_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], Path], words: str
) -> None:
    (tmp_path / "clicks").write_bytes(GOOD)
    said = refusal(capsys, "--input", tmp_path / "clicks", make(tmp_path), "--output", tmp_path / "out")
    assert words in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("thesis.tex", b"x", "not empty and holds no preparation"),
        ("preparation.json", b"{", "preparation.json: is no JSON"),
        ("preparation.json", b'{"version": 3}', "preparation.json: version is 3 instead of 4"),
        ("preparation.json", b"[]", "preparation.json"),
        ("manifest.json", b"{}", "manifest.json"),
    ],
)
def test_an_output_folder_of_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, words: str
) -> None:
    (tmp_path / "clicks").write_bytes(GOOD)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(content)
    assert words in refusal(capsys, "--input", tmp_path / "clicks", "--output", tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {name: content}


NO_TEXT = "b\udcff"
"""How a name arrives that holds the byte ff."""
NOT_TEXT = r"'[^']*b\\udcff[^']*': holds bytes that are no text in this locale \(.*\); use one of UTF-8, such as LC_ALL"


@pytest.mark.parametrize(
    ("named", "output"), [(NO_TEXT, "out"), ("*", "out"), (f"{NO_TEXT}*", "out"), ("good", NO_TEXT)]
)
def test_names_that_are_no_text_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str, output: str
) -> None:
    for name in (NO_TEXT, "good"):
        (tmp_path / name).write_bytes(GOOD)
    before = set(tmp_path.iterdir())
    said = refusal(capsys, "--input", tmp_path / named, "--output", tmp_path / f"{output}.d")
    assert re.search(NOT_TEXT, said)
    assert set(tmp_path.iterdir()) == before
    assert main(["schema", str(tmp_path / NO_TEXT)]) != 0
    assert re.search(NOT_TEXT, capsys.readouterr().err)


def test_a_folder_that_is_no_text_is_named_where_rows_are_prepared_for_a_file(tmp_path: Path) -> None:
    """As `bagpipe predict` has them prepared, beside its output."""
    (tmp_path / "good").write_bytes(GOOD)
    (tmp_path / NO_TEXT).mkdir()
    found = tmp_path / NO_TEXT / "found.csv"
    with pytest.raises(ConfigError, match=rf"^'{tmp_path}/b\\udcff': holds bytes that are no text"):
        prepare_clicks([str(tmp_path / "good")], found.parent / "shards", PrepareSettings(), print, made_for=found)
    assert list(found.parent.iterdir()) == []
