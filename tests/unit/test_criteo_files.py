"""`make train CRITEO=...` trains on the files that are named, all of them, and on none that another name stood for."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "criteo_files.sh"


@pytest.fixture
def days(tmp_path: Path) -> Path:
    for name in ("day_1", "day_2", "day_10", "my clicks/day_3", "my clicks/it's [1].tsv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def key(folder: Path, named: str) -> str:
    finished = run(folder, "--key", named)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize(
    ("named", "files"),
    [
        ("day_1", ["day_1"]),
        ("day_*", ["day_1", "day_2", "day_10"]),
        ("day_2 day_1", ["day_2", "day_1"]),
        ("my clicks/day_3", ["my clicks/day_3"]),
        ("my clicks/day_*", ["my clicks/day_3"]),
        ("my clicks/it's [1].tsv", ["my clicks/it's [1].tsv"]),
        ("'my clicks/day_3' day_1*", ["my clicks/day_3", "day_1", "day_10"]),
        (r"my\ clicks/day_3 day_1", ["my clicks/day_3", "day_1"]),
    ],
)
def test_names_patterns_and_blanks(days: Path, named: str, files: list[str]) -> None:
    assert run(days, named).stdout.split("\0")[:-1] == files


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("day_7", "no such file: day_7"),
        ("day_1 day_7", "no such file: day_7"),
        ("day_1 none_*", "no such file: none_*"),
        ("my clicks/day_3 day_1", "no such file: my"),
        ("my clicks", "my clicks is a folder; name its files, such as my clicks/day_*"),
        ("/dev/null", "/dev/null is no regular file"),
        ("day_1 'day_2", "a quote is not closed"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--key"]])
def test_what_is_no_file_is_refused(days: Path, options: list[str], named: str, problem: str) -> None:
    finished = run(days, *options, named)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert f"CRITEO='{named}': {problem}" in finished.stderr


def test_the_key_stands_for_all_files(days: Path) -> None:
    first = key(days, "day_*")
    assert key(days, "day_1 day_2 day_10") == first
    others = {key(days, named) for named in ("day_1", "day_2", "day_1 day_2", "day_2 day_1 day_10")}
    assert len(others - {first}) == 4
    os.utime(days / "day_10", ns=(1, 1))
    touched = key(days, "day_*")
    assert touched != first
    (days / "day_11").touch()
    assert key(days, "day_*") != touched


def test_make_prepares_them_in_a_folder_of_their_own(days: Path) -> None:
    printed = []
    for named in (f"{days}/my clicks/it's [1].tsv", f"{days}/day_*"):
        command = ["make", "-n", "train", f"CRITEO={named}"]
        printed.append(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        assert f"build/criteo-{key(days, named).strip()}/shards" in printed[-1]
    assert f"'{days}/my clicks/it'\\''s [1].tsv'" in printed[0]


def test_make_refuses_rows_that_are_not_there(tmp_path: Path) -> None:
    command = ["make", "-n", "train", f"CRITEO={tmp_path}/day_*"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert f"no such file: {tmp_path}/day_*" in finished.stderr
    assert "bagpipe generate" not in finished.stdout
    assert "bagpipe prepare" not in finished.stdout
