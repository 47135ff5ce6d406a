"""Contenders in turns: each is timed while it alone trains; no contender is started here."""

import json
import os
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bagpipe_hpc.tools.report import Report
from benchmarks.jobs.watched_command import CommandError
from benchmarks.kaggle.shards import write_kaggle_shards
from benchmarks.peers import contenders, turns
from benchmarks.peers.contenders import CONTENDERS, Contender, progress_of
from benchmarks.peers.turns import Turns, add_turns, measure_turns
from benchmarks.peers.workloads import PeerWorkload

BY_NAME = {contender.name: contender for contender in CONTENDERS}
PEER, OWN = BY_NAME["pytorch"], BY_NAME["bagpipe-1x2"]
STEPS = """
import sys, time
with open(sys.argv[1], "w", buffering=1) as file:
    for step in range(1, int(sys.argv[3]) + 1):
        time.sleep(float(sys.argv[2]))
        print(step, time.perf_counter(), file=file)
"""


@pytest.fixture
def workload(tmp_path: Path) -> PeerWorkload:
    """Five batches an epoch."""
    write_kaggle_shards(tmp_path / "shards", 450)
    (tmp_path / "settings.toml").write_text("[train]\nbatch_size = 100\n[lookahead]\nbatches = 8\n")
    return PeerWorkload("five batches", tmp_path / "settings.toml", tmp_path / "shards", 4, 6, 0.0)


def take_steps(
    monkeypatch: pytest.MonkeyPatch, kept: Path, seconds: dict[str, float], steps: int = 10**6
) -> list[list[str]]:
    """Let contenders merely sleep for so long in each step; the settings that they are given.

    Args:
        kept: folder for their progress, by name.
        seconds: of a step of each.
        steps: after which they end.
    """
    given = []

    def command(
        contender: Contender, _: PeerWorkload, overrides: list[str], output: Path
    ) -> tuple[list[str], dict[str, str]]:
        given.append(overrides)
        (output / contenders._PROGRESS_NAME).symlink_to(kept / contender.name)
        name = str(output / contenders._PROGRESS_NAME)
        return [sys.executable, "-c", STEPS, name, str(seconds[contender.name]), str(steps)], dict(os.environ)

    monkeypatch.setattr(turns, "command_of", command)
    return given


def test_each_is_timed_while_it_alone_trains(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workload: PeerWorkload
) -> None:
    """A stop is no part of a step; the run is long enough for all turns."""
    slow = replace(PEER, name="slow")
    own_s = {PEER.name: 0.01, slow.name: 0.05}
    given = take_steps(monkeypatch, tmp_path, own_s)
    steps_s = measure_turns([PEER, slow], workload, Turns(3, 0.8))
    for name, seconds in own_s.items():
        assert len(steps_s[name]) == 3
        assert all(own >= seconds for own in steps_s[name])
        assert min(steps_s[name][1:]) < 1.6 * seconds, "the other's turn takes 0.8 s"
        times_s = [float(line.split()[1]) for line in (tmp_path / name).read_text().splitlines()]
        longest_s = max(after - before for before, after in pairwise(times_s))
        assert longest_s > 1.5, "it stands still in the other's turns, of which two follow each other"
    assert {"train.max_steps=2410", "train.epochs=482", "train.evaluate=false"} <= {*given[0]}


def test_a_turn_without_steps_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workload: PeerWorkload
) -> None:
    take_steps(monkeypatch, tmp_path, {PEER.name: 0.4})
    with pytest.raises(CommandError, match=r"plain PyTorch.*(no two steps in a turn of 0\.5 s|within 0\.5 s)"):
        measure_turns([PEER], workload, Turns(1, 0.5))


def test_who_ends_before_its_turns_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workload: PeerWorkload
) -> None:
    take_steps(monkeypatch, tmp_path, {PEER.name: 0.01}, steps=20)
    with pytest.raises(CommandError, match="ended with status 0"):
        measure_turns([PEER], workload, Turns(3, 0.5))


def test_progress_is_that_of_the_last_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for contender in (PEER, OWN):
        assert progress_of(contender, tmp_path) == (0, 0.0)
    (tmp_path / contenders._PROGRESS_NAME).write_text("1 0.5\n2 0.75\n3 1.")
    assert progress_of(PEER, tmp_path) == (2, 0.75)
    records = [{"event": "progress", "step": 5, "time_s": 2.5}, {"event": "evaluation", "step": 5}]
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    (tmp_path / contenders.METRICS_NAME).write_text(lines + '{"event": "progr')
    assert progress_of(OWN, tmp_path) == (5, 2.5)
    monkeypatch.setattr(contenders, "_END_BYTES", 20)
    (tmp_path / contenders._PROGRESS_NAME).write_text("".join(f"{step} {step}.5\n" for step in range(100)))
    assert progress_of(PEER, tmp_path) == (99, 99.5)


def test_a_command_writes_what_progress_reads(workload: PeerWorkload, tmp_path: Path) -> None:
    of_peer, _ = contenders.command_of(BY_NAME["pytorch-cured"], workload, ["train.max_steps=7"], tmp_path)
    assert of_peer[-3:] == ["--onednn", "--progress", str(tmp_path / contenders._PROGRESS_NAME)]
    assert "train.max_steps=7" in of_peer
    own, _ = contenders.command_of(OWN, workload, ["train.max_steps=7"], tmp_path)
    assert {"train.max_steps=7", f"train.output={tmp_path}", "train.log_every_steps=5"} <= {*own}
    own, _ = contenders.command_of(OWN, replace(workload, logged_steps=1), [], tmp_path)
    assert "train.log_every_steps=1" in own  # where a turn has few steps


@pytest.mark.parametrize(
    ("name", "keeps_memory", "has_onednn"),
    [("pytorch", False, False), ("pytorch-allocator", True, False), ("torchrec-1x2-cured", True, True)],
)
def test_cures(
    name: str,
    keeps_memory: bool,
    has_onednn: bool,
    workload: PeerWorkload,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    command, environment = contenders.command_of(BY_NAME[name], workload, [], tmp_path)
    assert ("MALLOC_ARENA_MAX" in environment) == keeps_memory
    assert ("--onednn" in command) == has_onednn


def test_ratios_are_those_of_rounds() -> None:
    report = Report("peers")
    steps_s = {PEER.name: [0.2, 0.4, 0.3], OWN.name: [0.1, 0.4, 0.15]}
    figures = add_turns(report, "title", [PEER, OWN], steps_s, 60)
    assert figures[OWN.name] == {
        "samples_per_s": 400.0,
        "samples_per_s_of_turns": [600, 150, 400],
        "ratio_to_pytorch": 2.0,
    }
    assert figures[PEER.name]["ratio_to_pytorch"] == 1.0
    line = next(line for line in report.lines if line.startswith(OWN.title))
    assert line.split()[-5:] == ["400", "150", "-", "600", "2.000"]
