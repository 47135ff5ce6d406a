"""What `python -m benchmarks peers` makes of the contenders' results; no contender is started here."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.tools.report import Report
from benchmarks.jobs.links import LINKS
from benchmarks.jobs.watched_command import CommandError, WatchedRun
from benchmarks.jobs.workload import Workload
from benchmarks.kaggle.shards import write_kaggle_shards
from benchmarks.peers import benchmark as peers
from benchmarks.peers import contenders, workloads
from benchmarks.peers.contenders import CONTENDERS, PeerResult, TimedSteps, chosen_layers, peer_result, samples_per_s
from benchmarks.peers.turns import Turns
from benchmarks.peers.workloads import PeerWorkload


def result(speed: float, rss_gb: float = 1.0, others: float = 0.0) -> PeerResult:
    return PeerResult(speed, WatchedRun("", int(rss_gb * 1e9), int(2 * rss_gb * 1e9), others))


@pytest.fixture
def workload(tmp_path: Path) -> PeerWorkload:
    """Five batches an epoch; the last is smaller."""
    write_kaggle_shards(tmp_path / "shards", 450)
    (tmp_path / "settings.toml").write_text("[train]\nbatch_size = 100\n[lookahead]\nbatches = 8\n")
    return PeerWorkload("five batches", tmp_path / "settings.toml", tmp_path / "shards", 4, 6, 0.0)


def test_medians_and_ratios() -> None:
    report = Report("peers")
    runs = {
        "pytorch": [result(100.0), result(80.0), result(120.0)],
        "torchrec-2x1": [result(50.0)],
        "bagpipe-1x2": [result(150.0, 2.0, 0.25), result(250.0, 1.0, 0.5)],
    }
    figures = peers.add_speeds(report, "title", {name: name.upper() for name in runs}, runs)
    assert figures["bagpipe-1x2"] == {
        "samples_per_s": 200.0,
        "samples_per_s_of_runs": [150, 250],
        "ratio_to_pytorch": 2.0,
        "ratio_to_torchrec-2x1": 4.0,
        "largest_rss_gb": 2.0,
        "memory_gb": 4.0,
        "largest_others_share": 0.5,
    }
    assert figures["torchrec-2x1"]["ratio_to_pytorch"] == 0.5
    line = next(line for line in report.lines if line.startswith("BAGPIPE-1X2"))
    assert line.split() == ["BAGPIPE-1X2", "200", "150", "-", "250", "2.00", "4.00", "2.00", "4.00", "50%"]


def test_speed_between_two_reported_steps() -> None:
    metrics = [
        {"event": "progress", "step": 2, "time_s": 10.0},
        {"event": "evaluation", "step": 2, "time_s": 10.5},
        {"event": "progress", "step": 4, "time_s": 12.0},
        {"event": "progress", "step": 5, "time_s": 13.0},
    ]
    assert samples_per_s(metrics, [7, 7, 7, 3, 7], TimedSteps(2, 4, 5)) == (7 + 3) / 2.0
    assert math.isnan(samples_per_s(metrics, [7, 7, 7, 3, 7], TimedSteps(3, 4, 5)))


def test_a_peer_says_its_result_in_its_last_line_of_json() -> None:
    output = 'a warning\n{"samples_per_s": 1}\n{"samples_per_s": 12.5, "auc": 0.75, "log_loss": 0.5}\n'
    found = peer_result(WatchedRun(output, 1, 2, 0.0))
    assert (found.samples_per_s, found.auc, found.log_loss) == (12.5, 0.75, 0.5)
    assert math.isnan(peer_result(WatchedRun('{"samples_per_s": 1}', 1, 2, 0.0)).auc)
    with pytest.raises(CommandError, match="only a warning"):
        peer_result(WatchedRun("only a warning\n", 1, 2, 0.0))


def test_the_layers_that_auto_chose_are_among_the_figures() -> None:
    log = (
        "12:00 INFO a: process 1\n12:01 INFO b: linear layers: torch (kernels.linear = auto: oneDNN 2 ms, torch 1 ms)\n"
    )
    linear = chosen_layers(log)
    assert linear == "torch (kernels.linear = auto: oneDNN 2 ms, torch 1 ms)"
    assert chosen_layers("nothing\n") == ""
    runs = {"pytorch": [result(1.0)], "bagpipe-1x2": [replace(result(1.0), linear=linear)]}
    figures = peers.add_speeds(Report("peers"), "title", {name: name for name in runs}, runs)
    assert figures["bagpipe-1x2"]["linear_layers"] == [linear]
    assert "linear_layers" not in figures["pytorch"]


def test_each_layer_may_be_forced(workload: PeerWorkload) -> None:
    forced = {contender.name: contender for contender in CONTENDERS if contender.name.startswith("bagpipe-2x1-")}
    for linear in ("onednn", "torch"):
        assert workload.config(list(forced[f"bagpipe-2x1-{linear}"].settings)).kernels.linear == linear


def test_which_steps_count(workload: PeerWorkload) -> None:
    """Of a peer those after the warm-up; of bagpipe as many of the steady state, C = 2 where L = 8."""
    steps = {contender.name: TimedSteps.of(contender, workload) for contender in CONTENDERS}
    assert steps["pytorch"] == TimedSteps(4, 10, 10)
    assert steps["bagpipe-1x2"] == TimedSteps(8, 14, 37)
    assert steps["bagpipe-1x2-L1"] == TimedSteps(4, 10, 17)
    train = workload.config(steps["bagpipe-1x2"].settings(workload)).train
    assert (train.max_steps, train.epochs, train.log_every_steps) == (37, 8, 2)


def test_the_shards_of_large_tables_and_of_a_link_have_steps_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One epoch is: its end would drain the caches."""
    room: list[int] = []

    def write(_: Path, samples: int) -> None:
        room.append(samples)

    def shards(_: Workload, folder: Path, steps: int, batch_size: int) -> Path:
        room.append(steps * batch_size)
        return folder

    monkeypatch.setattr(workloads, "_FOLDER", tmp_path)
    monkeypatch.setattr(workloads, "write_kaggle_shards", write)
    monkeypatch.setattr(Workload, "shards", shards)
    for make in (lambda: workloads.large_tables_workload(40), lambda: workloads.link_workload(LINKS["1gbit"])):
        made = make()
        needed = max(TimedSteps.of(contender, made).total for contender in CONTENDERS)
        assert room.pop() >= needed * made.config([]).train.batch_size


def test_ranks_of_peers_are_started_as_those_of_bagpipe(workload: PeerWorkload, tmp_path: Path) -> None:
    """A bare mpirun of Open MPI refuses root."""
    by_name = {contender.name: contender for contender in CONTENDERS}
    command, environment = contenders.command_of(by_name["torchrec-2x1"], workload, [], tmp_path)
    assert [Path(word).name for word in command[:3]] == ["run_ranks.sh", "2", "python"]
    assert environment["MASTER_ADDR"] == "127.0.0.1"
    own, _ = contenders.command_of(by_name["bagpipe-1x2"], workload, [], tmp_path)
    assert own[0] == command[0]


def test_a_preparation_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "_FOLDER", tmp_path / "bench")
    clicks = tmp_path / "clicks.tsv"
    clicks.write_text("this is no click\n")
    with pytest.raises(CommandError, match=r"(?s)prepare --input .*ended with status 2:.*clicks\.tsv"):
        workloads.real_workload(clicks, 0, 1)


def test_who_runs_on_which_host() -> None:
    hosts = {contender.name: contender.ranks_of_hosts(servers=2) for contender in CONTENDERS}
    assert hosts["pytorch"] == hosts["torchrec-1x2"] == ()
    assert hosts["torchrec-2x1-cured"] == (1, 1)
    assert (hosts["bagpipe-1x2"], hosts["bagpipe-2x1-L1"]) == ((3, 1), (3, 2))


def test_without_their_environment_the_peers_are_left_out_visibly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workload: PeerWorkload
) -> None:
    trained = []

    def measure_speed(contender: contenders.Contender, *_: object) -> PeerResult:
        trained.append(contender.name)
        return result(1.0)

    monkeypatch.setattr(peers, "PEERS_PYTHON", tmp_path / "venv" / "bin" / "python")
    monkeypatch.setattr(peers, "measure_speed", measure_speed)
    monkeypatch.setattr(peers, "real_workload", lambda *_: workload)
    arguments = argparse.Namespace(
        quick=True, runs=2, contenders=None, criteo=None, quiet_s=None, others_at_most=1.0, turns=None, device="cpu"
    )
    report = peers.run(arguments)
    assert trained == ["bagpipe-1x2"] * 2
    assert list(report.figures["real"]) == ["bagpipe-1x2"]
    assert "benchmarks/peers/setup.sh" in report.lines[0]
    assert "plain PyTorch" in report.figures["not_run"][0]


def test_an_unknown_contender_is_refused() -> None:
    arguments = argparse.Namespace(quick=True, contenders=["pytorch", "tensorflow"], device="cpu")
    with pytest.raises(ConfigError, match=r"tensorflow.*torchrec-2x1"):
        peers.run(arguments)


def test_on_a_gpu_those_train_that_can(workload: PeerWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def measure(contender: contenders.Contender, on_gpu: PeerWorkload) -> PeerResult:
        taken.append((contender.name, on_gpu.device))
        return result(100.0)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(peers, "measure_speed", measure)
    monkeypatch.setattr(peers, "real_workload", lambda *_: workload)
    monkeypatch.setattr(peers, "PEERS_PYTHON", workload.config_file)
    names = ["pytorch", "pytorch-cured", "torchrec-1x2", "bagpipe-1x2", "bagpipe-2x1"]
    names += ["bagpipe-1x2-onednn", "bagpipe-1x2-torch", "bagpipe-1x2-L1"]
    arguments = argparse.Namespace(
        quick=False, runs=1, contenders=names, criteo=None, workloads=["real"], turns=None, device="cuda"
    )
    arguments.quiet_s, arguments.others_at_most = None, 1.0
    report = peers.run(arguments)
    able = ("pytorch", "bagpipe-1x2", "bagpipe-1x2-torch", "bagpipe-1x2-L1")
    assert taken == [(name, "cuda") for name in able]
    assert report.figures["not_run"] == [
        "real: plain PyTorch, 1 x 2, both cures; bagpipe, 1 x 2, onednn: oneDNN and the allocator are for CPUs",
        "real: TorchRec, 1 x 2: the peers' environment has FBGEMM for CPUs",
        "real: bagpipe, 2 x 1: several trainers do not share a GPU",
    ]
    assert "quality" not in report.figures


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any samples are generated."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="--device cuda: torch sees no GPU here"):
        peers.run(argparse.Namespace(device="cuda"))


def test_turns_take_the_place_of_runs(workload: PeerWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def measure_turns(given: list[contenders.Contender], _: PeerWorkload, turns: Turns) -> dict[str, list[float]]:
        taken.append(turns)
        return {contender.name: [0.5] * turns.rounds for contender in given}

    monkeypatch.setattr(peers, "measure_turns", measure_turns)
    monkeypatch.setattr(peers, "real_workload", lambda *_: workload)
    monkeypatch.setattr(peers, "PEERS_PYTHON", workload.config_file)  # a file that there is
    arguments = argparse.Namespace(
        quick=False, contenders=["pytorch", "bagpipe-1x2"], criteo=None, workloads=["real"], turns=3, turn_s=2.0
    )
    arguments.device = "cpu"
    report = peers.run(arguments)
    assert taken == [Turns(3, 2.0)]
    assert report.figures["real"]["bagpipe-1x2"]["samples_per_s_of_turns"] == [200] * 3
    assert "five batches; in turns of 2.0 s" in report.lines
    assert "quality" not in report.figures


def test_turns_are_refused_where_contenders_cannot_be_stopped_or_held(workload: PeerWorkload) -> None:
    assert peers._obstacle_to_turns(workload, 5) is None
    assert "leave --turns out" in str(peers._obstacle_to_turns(replace(workload, link=LINKS["1gbit"]), 1))
    huge = replace(workload, needed_bytes=1e18)
    assert "2 contenders at the same time need 2000000000 GB" in str(peers._obstacle_to_turns(huge, 2))
