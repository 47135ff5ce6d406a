"""What a run that goes on keeps of the evaluations of its checkpoint's step, and says of those that it cannot keep."""

import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.run.start.kept_evaluations import find_kept
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME

STEP = 40
FOUND = Evaluation(100, 0.75, 0.0, 0.5, 0.9, 1.1)


def checkpoint_of(output: Path) -> Any:
    directory = output / "checkpoints" / f"step-{STEP}"
    directory.mkdir(parents=True)
    return SimpleNamespace(directory=directory)


def run_of(output: Path, *records: dict[str, Any]) -> Any:
    """A run that goes on from its own checkpoint of `STEP`, and makes no evaluation before it trains."""
    lines = [json.dumps({"event": "evaluation", "step": STEP} | record) for record in records]
    (output / METRICS_NAME).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = SimpleNamespace(train=SimpleNamespace(output=str(output)))
    return SimpleNamespace(
        start=checkpoint_of(output), evaluated_first={FOUND.samples // 2}, config=config, steps_done=STEP
    )


def test_those_of_its_step_are_kept(tmp_path: Path) -> None:
    others = {"step": STEP - 1}, {"event": "progress"}
    assert find_kept(run_of(tmp_path, *(asdict(FOUND) | other for other in others), asdict(FOUND))) == (FOUND,)


@pytest.mark.parametrize("goes_on", [False, True])
def test_those_of_another_run_in_its_folder_are_not_its_own(goes_on: bool, tmp_path: Path) -> None:
    """A run that starts anew, or goes on from another folder's checkpoint, where an earlier run has been."""
    run = run_of(tmp_path, asdict(FOUND))
    elsewhere = checkpoint_of(tmp_path / "other")
    run.start = elsewhere if goes_on else None
    assert find_kept(run) == ()


def test_one_on_as_many_rows_as_one_that_is_made_again_is_left_out(tmp_path: Path) -> None:
    fewer = replace(FOUND, samples=FOUND.samples // 2)
    assert find_kept(run_of(tmp_path, asdict(fewer), asdict(FOUND))) == (FOUND,)


def test_one_that_lacks_what_has_a_default_is_kept(tmp_path: Path) -> None:
    older = {name: value for name, value in asdict(FOUND).items() if name != "group_auc"}
    assert find_kept(run_of(tmp_path, older)) == (FOUND,)


def test_one_that_lacks_a_number_is_left_out_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    older = {name: value for name, value in asdict(FOUND).items() if name != "calibration"}
    with caplog.at_level(logging.WARNING):
        assert find_kept(run_of(tmp_path, older, asdict(FOUND))) == (FOUND,)
    assert "the evaluation of step 40 is not compared: it has no calibration" in caplog.text


def test_one_whose_measure_is_no_number_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_kept(run_of(tmp_path, asdict(FOUND) | {"auc": "0.7"})) == ()
    assert "is not compared: it has auc = '0.7'" in caplog.text
