"""What a run leaves behind: a line of JSON an event, a summary, and progress that a terminal or a log shows."""

import io
import json
import logging
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc import progress
from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.manifest import CheckpointManifest
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, SUMMARY_NAME
from bagpipe_hpc.telemetry.records import run_record
from bagpipe_hpc.telemetry.records.run_record import RunRecord
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.telemetry.trainer_steps import TrainerSteps
from bagpipe_hpc.terminal import COLUMNS_VARIABLE
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

INTERVAL = StepStats(steps=5, samples=640, total_s=2.0, wait_rows_s=0.5, unique_rows=200, fetched_rows=20)
SLOWER = StepStats(steps=5, samples=640, total_s=2.0, wait_rows_s=1.0, unique_rows=200, fetched_rows=20)
MEANS = INTERVAL.per_step() | {"rows_fetched": 4.0, "rows_written_back": 3.0}


OTHER_MEASURES = {
    "samples": 7,
    "auc_error": 0.0,
    "log_loss": 0.25,
    "normalised_entropy": 0.5,
    "calibration": 0.875,
    "group_auc": None,
}


def evaluation_of(**measures: Any) -> Evaluation:
    return Evaluation(**(OTHER_MEASURES | measures))


def events(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / METRICS_NAME).read_text(encoding="utf-8").splitlines()]


def checkpoint_of(output: Path, step: int) -> tuple[Path, CheckpointManifest]:
    directory = write_checkpoint(output, sample_records((4,), 2), (4,), step=step)
    return directory, load_checkpoint(directory).manifest


def test_every_event_is_a_line_of_the_metrics_file(tmp_path: Path) -> None:
    """Each is there at once, for whoever watches the run."""
    with RunRecord(tmp_path, total_steps=20) as record:
        record.progress(5, 0, TrainerSteps.of([INTERVAL, SLOWER]), loss=0.5, rates={"dense_lr": 0.25, "rows_lr": 0.125})
        record.evaluation(5, 0, {"click": evaluation_of(auc=0.75)}, seconds=1.5)
        directory, manifest = checkpoint_of(tmp_path, step=5)
        record.checkpoint(manifest, directory, stood_still_s=0.5, seconds=2.5)
        progress, evaluation, checkpoint = events(tmp_path)
    times = [event.pop("time_s") for event in (progress, evaluation, checkpoint)]
    assert times == sorted(times)
    assert progress == {
        "event": "progress",
        "step": 5,
        "epoch": 0,
        "loss": 0.5,
        "dense_lr": 0.25,
        "rows_lr": 0.125,
        "samples_per_s": 320.0,
        "hit_rate": 0.9,
        "wait_rows_share": 0.25,
        "resident_rows": 20,
        "of_trainers": {"number": 2, "mean": TrainerSteps.of([INTERVAL, SLOWER]).mean(), "waited_for": 0},
        "trainers": [INTERVAL.per_step(), SLOWER.per_step()],
    }
    expected = {"event": "evaluation", "step": 5, "epoch": 0, "auc": 0.75, **OTHER_MEASURES}
    assert evaluation == expected | {"seconds": 1.5}
    assert checkpoint == {
        "event": "checkpoint",
        "step": 5,
        "directory": str(directory),
        "seconds": 0.5,
        "complete_after_s": 2.5,
        "bytes": manifest.total_bytes,
        "base_step": None,
    }


def test_many_trainers_have_a_line_that_does_not_grow_with_them(tmp_path: Path) -> None:
    """Of 256 trainers a record each would be 80 kB a report, and take as long as a step."""
    with RunRecord(tmp_path, total_steps=20, each_of=2) as record:
        for trainers in (2, 3, 256):
            record.progress(5, 0, TrainerSteps.of([INTERVAL] * (trainers - 1) + [SLOWER]), loss=0.5)
    told = events(tmp_path)
    assert [event["of_trainers"]["number"] for event in told] == [2, 3, 256]
    assert ["trainers" in event for event in told] == [True, False, False]
    assert told[2]["of_trainers"]["mean"] == pytest.approx(INTERVAL.per_step(), rel=0.01)
    assert len(json.dumps(told[2])) < 1000


def test_rows_in_the_caches_are_added_up_while_plans_tell(tmp_path: Path) -> None:
    leaving, adding = StepStats(steps=1, rows_written_back=12), StepStats(steps=1, rows_added=1)
    with RunRecord(tmp_path, total_steps=20) as record:
        for step, interval in enumerate((INTERVAL, leaving, adding, INTERVAL), start=1):
            record.progress(step, 0, TrainerSteps.of([interval]), loss=0.5)
    with RunRecord(tmp_path, total_steps=20, has_cache=False) as record:
        record.progress(5, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
    assert [event["resident_rows"] for event in events(tmp_path)] == [20, 8, None, None, None]


def test_results_go_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunRecord(tmp_path, total_steps=5) as record:
        record.progress(5, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
        record.evaluation(5, 0, {"click": evaluation_of(auc=0.75)}, seconds=1.5)
        record.summary([MEANS], INTERVAL, {})
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told[:2]] == ["per", "trainer"]
    assert told[2:] == [
        "AUC 0.75000, log loss 0.25000, normalised entropy 0.50000, calibration 0.87500 on 7 test rows",
        "320 samples/s over 5 steps, hit rate 90.0%",
        f"outputs: {tmp_path}",
    ]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_auc_without_meaning_is_said_to_be_undefined(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], is_resumed: bool
) -> None:
    """It is NaN where all labels are alike, and null in the metrics file, from where a resumed run reads it back."""
    with caplog.at_level(logging.INFO), RunRecord(tmp_path, total_steps=5) as record:
        record.evaluation(5, 0, {"click": evaluation_of(auc=math.nan, normalised_entropy=math.nan)}, seconds=1.5)
        if not is_resumed:
            record.summary([MEANS], INTERVAL, {})
    if is_resumed:
        with RunRecord(tmp_path, total_steps=5) as record:
            record.summary([MEANS], INTERVAL, {})
    quality = "AUC undefined, as all labels are alike, log loss 0.25000, calibration 0.87500 on 7 test rows"
    assert f"epoch 1, step 5: {quality} (1.5 s)" in caplog.messages
    assert quality in capsys.readouterr().out.splitlines()


def test_an_earlier_evaluation_without_a_number_does_not_end_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its event stays in the metrics file."""
    with RunRecord(tmp_path, total_steps=5) as record:
        for step in (3, 5):
            record.evaluation(step, 0, {"click": evaluation_of(auc=0.75)}, seconds=1.5)
    first, second = events(tmp_path)
    del second["samples"]
    (tmp_path / METRICS_NAME).write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n", encoding="utf-8")
    with RunRecord(tmp_path, total_steps=5) as record:
        record.summary([MEANS], INTERVAL, {})
    assert "metrics.jsonl: the evaluation of step 5 is left out of the summary: it has no samples" in caplog.text
    summary = json.loads((tmp_path / SUMMARY_NAME).read_text(encoding="utf-8"))
    assert [evaluation["step"] for evaluation in summary["evaluations"]] == [3]
    assert events(tmp_path) == [first, second]
    assert "AUC 0.75000" in capsys.readouterr().out


def test_an_evaluation_says_its_error_and_the_area_by_group(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), RunRecord(tmp_path, total_steps=5) as record:
        record.evaluation(5, 0, {"click": evaluation_of(auc=0.75, auc_error=3.21e-5, group_auc=0.625)}, seconds=1.5)
    measures = "AUC 0.75000 +- 3e-05, log loss 0.25000, normalised entropy 0.50000, calibration 0.87500"
    assert caplog.messages == [f"epoch 1, step 5: {measures}, AUC by group 0.62500 on 7 test rows (1.5 s)"]


def test_each_label_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one's measures stand where those of a single label do."""
    both = {"click": evaluation_of(auc=0.75), "buy": evaluation_of(auc=0.5)}
    with caplog.at_level(logging.INFO), RunRecord(tmp_path, total_steps=5) as record:
        record.evaluation(5, 0, both, seconds=1.5)
        record.summary([MEANS], INTERVAL, {})
    (event,) = events(tmp_path)
    assert event["auc"] == 0.75
    assert event["further_labels"] == {"buy": {"auc": 0.5, **OTHER_MEASURES}}
    assert [line.split(":")[0] for line in caplog.messages[:2]] == ["epoch 1, step 5, click", "epoch 1, step 5, buy"]
    told = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert told[2:4] == ["AUC 0.75000", "buy: AUC 0.50000"]


def test_the_summary_is_the_whole_run(tmp_path: Path) -> None:
    with RunRecord(tmp_path, total_steps=5) as record:
        for step, auc in ((3, 0.5), (5, 0.75)):
            record.evaluation(step, 0, {"click": evaluation_of(auc=auc)}, seconds=1.5)
        record.summary([MEANS, MEANS], INTERVAL, {"servers": 2})
    summary = json.loads((tmp_path / SUMMARY_NAME).read_text(encoding="utf-8"))
    assert summary.pop("seconds") >= 0
    assert summary == {
        "steps": 5,
        "samples_per_s": 320.0,
        "hit_rate": 0.9,
        "evaluations": [
            {"step": step, "epoch": 0, "auc": auc, **OTHER_MEASURES} for step, auc in ((3, 0.5), (5, 0.75))
        ],
        "trainers": [MEANS, MEANS],
        "servers": 2,
    }


class Passed(io.RawIOBase):
    """What a launcher is given of stdout, piece by piece; with `is_closed` nobody reads it."""

    def __init__(self, *, is_closed: bool) -> None:
        self.pieces: list[bytes] = []
        self.is_closed = is_closed

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        if self.is_closed:
            raise BrokenPipeError
        self.pieces.append(bytes(piece))
        return len(piece)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_reader_that_has_seen_enough_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_closed: bool
) -> None:
    """As `head`. MPICH's launcher ends the ranks where it cannot pass on a further piece."""
    passed = Passed(is_closed=is_closed)
    stdout = io.TextIOWrapper(io.BufferedWriter(passed), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    with caplog.at_level(logging.INFO), RunRecord(tmp_path, total_steps=5) as record:
        record.evaluation(5, 0, {"click": evaluation_of(auc=0.75)}, seconds=1.5)
        record.summary([MEANS], INTERVAL, {})
    passed.is_closed = False
    stdout.close()
    assert (tmp_path / SUMMARY_NAME).exists()
    assert len(passed.pieces) == 1
    told = passed.pieces[0].decode().splitlines()
    assert [line.split(" ")[0] for line in told] == ["per", "trainer", "AUC", "320", "outputs:"]
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned == ["standard output was closed: the results stand in the log and in summary.json alone"] * is_closed
    assert caplog.messages[-1 - is_closed] == told[-1]


def test_the_best_evaluation_and_an_early_end_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last quality is that over the most test rows; the best evaluation of several has a line."""
    best = {"step": 3, "measure": "auc", "value": 0.75, "samples": 7, "directory": "output/checkpoints/step-00000003"}
    early = {"step": 5, "evaluations_without_better": 1}
    with RunRecord(tmp_path, total_steps=9) as record:
        record.evaluation(3, 0, {"click": evaluation_of(auc=0.75)}, seconds=1.5)
        record.summary([MEANS], INTERVAL, {"best": best, "stopped_early": None})
        assert not [line for line in capsys.readouterr().out.splitlines() if line.startswith(("best", "stopped"))]
        record.evaluation(5, 0, {"click": evaluation_of(auc=0.5, samples=9)}, seconds=1.5)
        record.evaluation(5, 0, {"click": evaluation_of(auc=0.625)}, seconds=1.5)
        record.summary([MEANS], INTERVAL, {"best": best, "stopped_early": early})
        told = capsys.readouterr().out.splitlines()
        assert told[2].startswith("AUC 0.50000")
        assert told[2].endswith("on 9 test rows")
        assert told[3:5] == [
            "best AUC 0.75000 after step 3: output/checkpoints/step-00000003",
            "stopped early after step 5: 1 evaluation without a better AUC",
        ]
        record.summary([MEANS], INTERVAL, {"best": best | {"directory": None}, "stopped_early": None})
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("best", "stopped"))]
    assert told == [f"best AUC 0.75000 after step 3, of which no checkpoint is in {tmp_path}"]


@pytest.mark.parametrize(("total_steps", "left"), [(5, "0:00"), (20, "0:06"), (2005, "13:20"), (50_005, "5:33:20")])
def test_progress_says_how_fast_and_how_long(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, total_steps: int, left: str
) -> None:
    with caplog.at_level(logging.INFO), RunRecord(tmp_path, total_steps) as record:
        record.progress(5, 0, TrainerSteps.of([INTERVAL]), loss=0.123456)
    assert caplog.messages == [
        f"step 5/{total_steps}  loss 0.12346  320 samples/s  hits 90.0%  waiting for rows 25.0%  {left} left to train"
    ]


def test_a_terminal_shows_progress_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    with RunRecord(tmp_path, total_steps=10) as record:
        record.progress(5, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
        record.progress(10, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
        directory, manifest = checkpoint_of(tmp_path, step=10)
        record.checkpoint(manifest, directory, stood_still_s=0.5, seconds=2.5)
    assert [line.split("  ")[0] for line in terminal.getvalue().split("\r\x1b[K")] == ["", "step 5/10", "step 10/10"]
    assert terminal.getvalue().endswith("\n")


def test_a_narrow_terminal_gets_a_shorter_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank's stderr is a pipe; the script that launched it knows the terminal behind."""
    monkeypatch.setenv(COLUMNS_VARIABLE, "64")
    with RunRecord(tmp_path, total_steps=10) as record:
        record.progress(5, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
    line = "step 5/10  loss 0.50000  320 samples/s  hits 90.0%  0:02 left"
    assert capsys.readouterr().err == f"\r\x1b[K{line}"
    assert len(line) < 64


def test_a_terminal_has_a_bar_and_says_that_a_checkpoint_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its start until it is complete; elsewhere lines stay as they are."""
    monkeypatch.setenv(COLUMNS_VARIABLE, "120")
    monkeypatch.setenv("NO_COLOR", "1")
    with RunRecord(tmp_path, total_steps=10) as record:
        record.saving(5)
        record.progress(5, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
        directory, manifest = checkpoint_of(tmp_path, step=5)
        record.checkpoint(manifest, directory, stood_still_s=0.5, seconds=2.5)
        record.progress(10, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
        record.saving(10)
    lines = [line.rstrip("\n") for line in capsys.readouterr().err.split("\r\x1b[K")[1:]]
    assert all(re.fullmatch(r"step \d+/10  (\x1b\[\dm)?[━╸╺ ]+(\x1b\[0m)?  loss 0.5.*", line) for line in lines)
    ends = [line.partition("  loss ")[2] for line in lines]
    told = "0.50000  320 samples/s  hits 90.0%  waiting 25.0%"
    assert ends == [f"{told}  saving step 5  0:02 left", f"{told}  0:00 left", f"{told}  saving step 10  0:00 left"]


def test_an_evaluation_has_a_bar_on_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    monkeypatch.setenv(COLUMNS_VARIABLE, "60")
    with RunRecord(tmp_path, total_steps=10) as record:
        record.progress(5, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
        for batches in (1, 2):
            record.scored(batches, 2)
    first, *lines = capsys.readouterr().err.split("\n")[1].split("\r\x1b[K")
    assert first == ""
    assert [line.split("  ")[0] for line in lines] == ["evaluating", "evaluating", ""]


def test_lines_that_stay_come_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first one, then after a while, and the last; a rank's log file has them all."""
    now_s = 1000.0
    monkeypatch.setattr(run_record.time, "monotonic", lambda: now_s)
    with caplog.at_level(logging.INFO), RunRecord(tmp_path, total_steps=100) as record:
        for step in range(10, 101, 10):
            record.progress(step, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
            now_s += 10.0
    shown = [line.message.split("  ")[0] for line in caplog.records if not hasattr(line, "in_file_only")]
    assert shown == ["step 10/100", "step 40/100", "step 70/100", "step 100/100"]
    assert len(caplog.records) == 10


def test_an_interval_without_time_divides_nothing_by_zero(tmp_path: Path) -> None:
    with RunRecord(tmp_path, total_steps=1) as record:
        record.progress(1, 0, TrainerSteps.of([StepStats()]), loss=0.0)
    assert events(tmp_path)[0]["samples_per_s"] == 0.0


def test_a_run_that_goes_on_adds_to_its_metrics(tmp_path: Path) -> None:
    for step in (5, 10):
        with RunRecord(tmp_path, total_steps=10) as record:
            record.progress(step, 0, TrainerSteps.of([INTERVAL]), loss=0.5)
    assert [event["step"] for event in events(tmp_path)] == [5, 10]
