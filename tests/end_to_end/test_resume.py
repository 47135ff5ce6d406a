"""A run that goes on from a checkpoint ends as one that was never interrupted: the same bits, the same metrics."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.run_lock import LOCK_NAME
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.breakages import NOTHING, RESUMED_AT
from tests.end_to_end.killed_runs import RANKS, command
from tests.end_to_end.test_equality import RunRanks, overrides, story, train
from tests.fork_server import forked
from tests.ranks import run_ranks as start_ranks

EVERY, STEPS, PER_EPOCH = 6, 28, 14
CASES = {
    # optimizer, settings of the planner, and of checkpoints: training stands still, or increments while it goes on
    "sgd": (
        "lookahead.batches=5",
        "lookahead.group=2",
        "debug.verify_rows=true",
        "train.checkpoint_copy=false",
    ),
    "adam": ("lookahead.batches=40", "train.full_checkpoint_every=3"),
}


def interrupted(whole: Path, output: Path, step: int) -> Path:
    """A copy of a run's output as it was when the run was killed, some steps after the checkpoint of `step`."""
    shutil.copytree(whole, output)
    (output / "summary.json").unlink()
    for later in (output / "checkpoints").iterdir():
        if later.name > f"step-{step:08d}":
            shutil.rmtree(later)
    (output / "checkpoints" / f"step-{step + EVERY:08d}.partial").mkdir()
    return output


@pytest.fixture(scope="module")
def whole_runs(short_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Outputs of uninterrupted runs with a checkpoint every 6 steps, by two servers and two trainers."""
    folder = tmp_path_factory.mktemp("whole")
    train(start_ranks, 5, short_config, [settings_of(case, folder / case) for case in CASES], folder)
    return lambda case: folder / case


def settings_of(case: str, output: Path, *more: str, servers: int = 2) -> list[str]:
    every = f"train.checkpoint_every_steps={EVERY}"
    world = f"roles.servers={servers}"
    return overrides(case, output, world, "train.deterministic=true", every, *CASES[case], *more)


def test_a_resumed_run_ends_with_the_same_bits(
    short_config: Path, whole_runs: Callable[[str], Path], run_ranks: RunRanks, tmp_path: Path
) -> None:
    """From a checkpoint inside an epoch, from one in the second epoch, from the last one; twice in one folder, too.

    Rates follow schedules, in the midst of a warm-up among them; where their steps counted anew, the bits would differ.
    """
    steps = {"sgd": (6, 24), "adam": (RESUMED_AT,)}
    outputs = {
        (case, step): interrupted(whole_runs(case), tmp_path / f"{case}-{step}", step)
        for case, chosen in steps.items()
        for step in chosen
    }
    keep = {"adam": ["train.keep_checkpoints=2"]}
    runs = [
        settings_of(case, output, "train.resume=auto", *keep.get(case, [])) for (case, _), output in outputs.items()
    ]
    broken = interrupted(whole_runs("adam"), tmp_path / "broken", RESUMED_AT)
    runs.append(settings_of("adam", broken, "train.resume=auto"))
    breakages = [*[NOTHING] * len(outputs), "rates count anew"]
    train(run_ranks, 5, short_config, runs, tmp_path, "--break", *breakages)
    assert compare(whole_runs("adam"), broken).largest() > 0.0
    for (case, _), output in outputs.items():
        assert compare(whole_runs(case), output).largest() == 0.0
        assert story(output) == story(whole_runs(case))
        found = json.loads((output / "summary.json").read_text(encoding="utf-8"))["evaluations"]
        assert [evaluation["step"] for evaluation in found] == [PER_EPOCH, STEPS]
    kept = sorted(path.name for path in (outputs["adam", RESUMED_AT] / "checkpoints").iterdir())
    assert kept == ["step-00000024", "step-00000028"]


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "trainers"), [(1, 2), (3, 2), (2, 1), (1, 3)])
def test_another_world_may_go_on(
    servers: int,
    trainers: int,
    short_config: Path,
    whole_runs: Callable[[str], Path],
    run_ranks: RunRanks,
    tmp_path: Path,
) -> None:
    """Other servers change no bit, nor do increments; another number of trainers adds gradients in another order."""
    case, step = "adam" if trainers == 2 else "sgd", 12
    outputs = [tmp_path / "named", tmp_path / "once-more"][: 1 if trainers == 2 else 2]
    start = f"train.resume={whole_runs(case) / 'checkpoints' / f'step-{step:08d}'}"
    runs = [settings_of(case, output, start, servers=servers) for output in outputs]
    train(run_ranks, 1 + servers + trainers, short_config, runs, tmp_path)
    largest = compare(whole_runs(case), outputs[0]).largest()
    assert largest == 0.0 if trainers == 2 else 0.0 < largest < 1e-6
    assert compare(outputs[0], outputs[-1]).largest() == 0.0


@pytest.mark.slow
def test_the_reference_goes_on_too(
    short_config: Path, whole_runs: Callable[[str], Path], run_ranks: RunRanks, tmp_path: Path
) -> None:
    """From a distributed run's checkpoint, with its slices: the same bits."""
    case = "adam"
    start = f"train.resume={whole_runs(case) / 'checkpoints' / 'step-00000018'}"
    train(run_ranks, 1, short_config, [overrides(case, tmp_path / "one", start, "train.reference_slices=2")], tmp_path)
    assert compare(whole_runs(case), tmp_path / "one").largest() == 0.0


def test_a_finished_run_has_nothing_left(
    short_config: Path, whole_runs: Callable[[str], Path], run_ranks: RunRanks, tmp_path: Path
) -> None:
    output = tmp_path / "done"
    shutil.copytree(whole_runs("adam"), output)
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    settings = settings_of("adam", output, "train.resume=auto")
    finished = run_ranks(5, *forked(["bagpipe", "train", short_config, *settings]))
    assert finished.returncode == 0, finished.stderr
    assert "is the end of this run, 28 steps: nothing is left to do" in finished.stderr
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before


def test_damage_is_found_before_training_starts(
    short_config: Path, whole_runs: Callable[[str], Path], run_ranks: RunRanks, tmp_path: Path
) -> None:
    output = interrupted(whole_runs("adam"), tmp_path / "damaged", 24)
    path = output / "checkpoints" / "step-00000024" / "rows-00001-of-00002.h5"
    damaged = bytearray(path.read_bytes())
    damaged[-100] ^= 1
    path.write_bytes(damaged)
    metrics = (output / "metrics.jsonl").read_bytes()
    settings = settings_of("adam", output, "train.resume=auto")
    finished = run_ranks(5, *forked(["bagpipe", "train", short_config, *settings]))
    assert finished.returncode == 2, finished.stderr
    assert "rows-00001-of-00002.h5: its SHA-256 is" in finished.stderr
    assert "train.resume=" in finished.stderr
    assert "step-00000018" in finished.stderr
    assert (output / "metrics.jsonl").read_bytes() == metrics


@pytest.mark.slow
def test_a_run_that_is_asked_to_stop_goes_on_later(
    config_path: Path, whole_run: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """It ends early with a checkpoint, and the run that goes on from there with the bits of one that was left alone."""
    output = tmp_path / "run"
    with ThreadPoolExecutor() as background:
        running = background.submit(run_ranks, RANKS, *forked(command(config_path, output)))
        wait_for_metrics(output, running)
        assert main(["stop", str(output)]) == 0
        finished = running.result()
    assert finished.returncode == 0, finished.stderr
    assert "stopped as asked" in finished.stderr
    assert not (output / "summary.json").exists()
    step = load_checkpoint(output).manifest.step
    assert 0 < step < load_checkpoint(whole_run).manifest.step
    assert any(event[:2] == ("checkpoint", step) for event in story(output))
    assert story(output)[-1][1] == step

    finished = run_ranks(RANKS, *forked(command(config_path, output)))
    assert finished.returncode == 0, finished.stderr
    assert compare(whole_run, output).largest() == 0.0
    told = [event for event in story(output) if event[0] == "evaluation"]
    assert told == [event for event in story(whole_run) if event[0] == "evaluation"]


@pytest.mark.slow
def test_a_run_that_is_asked_to_stop_before_it_trains_gets_ahead(
    config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """To the next checkpoint or the end of the epoch: else a job that is always warned so early would never end."""
    output, step = tmp_path / "run", 0
    for _ in range(2):
        with ThreadPoolExecutor() as background:
            running = background.submit(run_ranks, RANKS, *forked(command(config_path, output)))
            while not (output / "run.lock").exists():
                assert not running.done(), running.result().stderr
                time.sleep(0.01)
            assert main(["stop", str(output)]) == 0
            finished = running.result()
        assert finished.returncode == 0, finished.stderr
        assert "stopped as asked" in finished.stderr
        assert load_checkpoint(output).manifest.step > step
        step = load_checkpoint(output).manifest.step


def wait_for_metrics(output: Path, running: "Future[CompletedProcess[str]]") -> None:
    """Until a run has trained some steps."""
    deadline = time.monotonic() + 60
    while not ((output / "metrics.jsonl").exists() and (output / "metrics.jsonl").stat().st_size > 0):
        assert not running.done(), running.result().stderr
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_stopping_needs_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", str(tmp_path)]) == 2
    assert "no run is in this folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_second_run_in_the_same_folder_is_refused(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """While the first one trains, which does not notice, until signals stop it."""
    output = tmp_path / "shared"
    settings = overrides("sgd", output, "train.epochs=200", "train.resume=auto")
    with ThreadPoolExecutor() as background:
        running = background.submit(run_ranks, 3, *forked(["bagpipe", "train", config_path, *settings]))
        wait_for_metrics(output, running)
        second = run_ranks(3, *forked(["bagpipe", "train", config_path, *settings]))
        oracle = json.loads((output / LOCK_NAME).read_text(encoding="utf-8"))["process"]
        for _ in range(2):  # a second one does not break it
            os.kill(oracle, signal.SIGUSR1)
        first = running.result()
    assert first.returncode == 0, first.stderr
    assert "stopped as asked" in first.stderr
    assert second.returncode == 2, second.stderr
    assert "another run uses this output folder (process" in second.stderr
