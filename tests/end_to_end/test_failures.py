"""A failing rank ends the whole job soon, with a message that says who and why; a run that cannot start is refused."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.storage.shards.manifest import load_manifest
from tests.end_to_end.test_equality import DRIVER
from tests.end_to_end.train_many import END_OF_RUN
from tests.fork_server import forked, forked_rank

RunRanks = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    ("fault", "role", "cause"),
    [
        ("trainer fails in a step", "trainer 1 (world rank 4)", "planted failure"),
        pytest.param("mover fails in a fetch", "trainer 1 (world rank 4)", "planted failure", marks=pytest.mark.slow),
        pytest.param("server runs out of memory", "server 1 (world rank 2)", "planted failure", marks=pytest.mark.slow),
        pytest.param("oracle fails", "oracle 0 (world rank 0)", "planted failure", marks=pytest.mark.slow),
    ],
)
def test_a_failing_rank_ends_the_job(
    fault: str, role: str, cause: str, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([[f"train.output={tmp_path / 'out'}"]]))
    finished = run_ranks(5, *forked_rank(DRIVER), config_path, runs, "--break", fault, timeout_s=90)
    assert finished.returncode not in (0, 124, 137), finished.stderr
    assert "waited" not in finished.stderr  # it is over before anybody has waited for long
    assert f"{role} on " in finished.stderr
    assert cause in finished.stderr


def test_a_silent_trainer_is_noticed(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Every wait ends by timeout and names what it waited for."""
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([[f"train.output={tmp_path / 'out'}", "train.timeout_s=8.0"]]))
    silence = {"TEST_SILENCE_S": "120"}
    finished = run_ranks(
        5, *forked_rank(DRIVER), config_path, runs, "--break", "trainer falls silent", timeout_s=100, env=silence
    )
    assert finished.returncode not in (0, 124, 137), finished.stderr
    waits = "trainer 1 to finish plan [1-9]|gradients of the rows that|copies of the rows that|the dense gradients"
    assert re.search(f"failed: waited 8 s for ({waits})", finished.stderr), finished.stderr


def test_too_few_ranks_are_refused(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    finished = run_ranks(2, *forked(["bagpipe", "train", config_path, f"train.output={tmp_path / 'out'}"]))
    assert finished.returncode == 2
    assert finished.stderr.count("2 MPI ranks are too few") == 1


@dataclass(frozen=True)
class Refused:
    """A run that was refused.

    Attributes:
        told: what it wrote to stderr.
        output: its folder of outputs, where an earlier run had left its metrics.
    """

    told: str
    output: Path

    def check(self, cause: str, not_begun: str) -> None:
        """It gave its cause once, before it began something, and left the earlier run alone."""
        assert self.told.count("bagpipe: error: ") == 1, self.told
        assert self.told.count(cause) == 1, self.told
        assert not_begun not in self.told
        assert [path.name for path in self.output.iterdir()] == ["metrics.jsonl"]
        assert (self.output / "metrics.jsonl").read_text() == "precious\n"


REFUSED = {
    "an earlier run": ([], "train.overwrite=true", "cache"),
    "a cache below one batch": (["cache.rows=50"], "a single batch needs", "planner state"),
    "an unknown optimizer": (["optimizer.dense=Adagrat"], "'Adagrat'", "checking"),
    "a huge dense half": (["model.top_mlp=[1000000000]"], "dense models 15000.0 GB", "batches ahead"),
}
"""Settings, the cause that is given, and words of what has not begun by then."""
DAMAGED, TOO_LARGE = "damaged data", "tables that do not fit"
TINY_CACHE = ["train.batch_size=2", "train.max_steps=3", "lookahead.batches=1", "train.evaluate=false"]


@pytest.fixture(scope="module")
def refused(shards: Path, config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Refused]:
    """Runs of two servers and two trainers that cannot start, one after the other in the same ranks."""
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("refused")
    free = free_bytes()
    (folder / "free_bytes").write_text(str(free))
    width = 4 * free // sum(load_manifest(shards).table_rows) // 4
    settings = {name: own for name, (own, _, _) in REFUSED.items()}
    settings[DAMAGED] = [f"data.path={damaged_copy(shards, folder / 'damaged')}"]
    settings[TOO_LARGE] = [f"model.embedding_dim={width}", "roles.servers=3", *TINY_CACHE]
    outputs = {name: folder / f"out-{number}" for number, name in enumerate(settings)}
    for output in outputs.values():
        output.mkdir()
        (output / "metrics.jsonl").write_text("precious\n")
    allowed = {name: f"train.overwrite={str(name != 'an earlier run').lower()}" for name in settings}
    runs = [[*own, allowed[name], f"train.output={outputs[name]}"] for name, own in settings.items()]
    (folder / "runs.json").write_text(json.dumps(runs))
    finished = run_ranks(5, *forked_rank(DRIVER), config_path, folder / "runs.json", "--refused", timeout_s=150)
    assert finished.returncode == 0, finished.stderr
    *told, _ = finished.stderr.split(END_OF_RUN)
    return {name: Refused(said, outputs[name]) for name, said in zip(settings, told, strict=True)}


def damaged_copy(shards: Path, folder: Path) -> Path:
    """The shards with one byte changed in the middle of a file."""
    shutil.copytree(shards, folder)
    path = folder / "train-00001.h5"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return folder


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_run_leaves_the_earlier_one(name: str, refused: dict[str, Refused]) -> None:
    """Even where it may be overwritten; what costs little is checked first."""
    _, cause, not_begun = REFUSED[name]
    refused[name].check(cause, not_begun)


def test_damaged_data_is_refused(refused: dict[str, Refused]) -> None:
    refused[DAMAGED].check("train-00001.h5", "batches ahead")


def test_tables_that_do_not_fit_are_refused(refused: dict[str, Refused]) -> None:
    """Before anything of their size is allocated; four times as much as is free would not get far."""
    run = refused[TOO_LARGE]
    run.check("the tables take ", "batches ahead")
    free = int((run.output.parent / "free_bytes").read_text())
    needed = re.search(r"the tables take ([0-9.]+) GB, ([0-9.]+) GB on each of 3 servers", run.told)
    assert needed, run.told
    assert float(needed[1]) * 1e9 == pytest.approx(4 * free, rel=0.05)
    assert float(needed[2]) == pytest.approx(float(needed[1]) / 3, abs=0.1)
    assert re.search(r"[3-9] more like \S+ would do, with \d+ servers", run.told), run.told
