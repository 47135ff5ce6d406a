"""`bagpipe prepare` under mpirun: killed in any stage, it goes on with another number of ranks to the same bytes."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.click_rows import random_rows
from tests.ranks import run_ranks

PROGRAM = (sys.executable, "-m", "tests.end_to_end.prepare_killed")
slow = pytest.mark.slow


def prepare(ranks: int, folder: Path, stage: str, rank: int, output: Path) -> subprocess.CompletedProcess[str]:
    settings = ("--rows-per-shard", "40", "--compression", "gzip", "--input", folder / "a", folder / "b")
    return run_ranks(ranks, *PROGRAM, stage, str(rank), *settings, "--output", output, timeout_s=60)


def digests(output: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in output.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs, and the output of one process that nothing disturbed."""
    folder = tmp_path_factory.mktemp("clicks")
    for number, name in enumerate("ab"):
        (folder / name).write_text("\n".join(random_rows(120, seed=number)))
    command = [*PROGRAM, "none", "0", "--rows-per-shard", "40", "--compression", "gzip"]
    inputs = ["--input", str(folder / "a"), str(folder / "b"), "--output", str(folder / "whole")]
    subprocess.run([*command, *inputs], check=True, capture_output=True, cwd=Path(__file__).parents[2])
    return folder


@pytest.mark.parametrize(
    ("stage", "killed", "before", "after"),
    [
        ("parse", 1, 2, 3),
        pytest.param("count", 1, 3, 2, marks=slow),
        pytest.param("vocabularies", 0, 2, 4, marks=slow),
        pytest.param("write", 1, 4, 2, marks=slow),
        pytest.param("end", 0, 2, 3, marks=slow),
    ],
)
def test_a_killed_rank_loses_little(
    folder: Path, tmp_path: Path, stage: str, killed: int, before: int, after: int
) -> None:
    ended = prepare(before, folder, stage, killed, tmp_path / "out")
    assert ended.returncode != 0
    noted = [path.stem for path in (tmp_path / "out" / "parsed").glob("*.json")]
    assert noted
    shards = [tmp_path / "out" / f"{name}.h5" for name in noted if name.startswith("t")]
    times = [path.stat().st_mtime_ns for path in shards]
    ended = prepare(after, folder, "none", 0, tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    assert digests(tmp_path / "out") == digests(folder / "whole")
    assert [path.stat().st_mtime_ns for path in shards] == times
    assert bool(shards) == (stage in ("write", "end"))


@pytest.mark.slow
def test_a_mistake_is_said_once(tmp_path: Path) -> None:
    """By the first rank, with the exit code of all mistakes; nothing is left."""
    ended = prepare(3, tmp_path, "none", 0, tmp_path / "out")
    assert ended.stderr.count("bagpipe: error:") == 1
    assert "/a: no such input file" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 2
    assert not (tmp_path / "out").exists()
