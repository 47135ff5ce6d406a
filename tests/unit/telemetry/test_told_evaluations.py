"""What a summary takes of earlier evaluations has all the numbers that it tells."""

import json
import logging
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.telemetry.told_evaluations import told_evaluations

STEP = 40
MEASURES = asdict(Evaluation(100, 0.75, 0.0, 0.5, 0.9, 1.1))
SOUND = {"event": "evaluation", "step": STEP, "epoch": 0, **MEASURES}


def told(path: Path, *events: dict[str, Any]) -> list[dict[str, Any]]:
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    return list(told_evaluations(path))


def test_no_file_tells_of_none(tmp_path: Path) -> None:
    assert list(told_evaluations(tmp_path / "metrics.jsonl")) == []


def test_sound_ones_come_in_their_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With null for what has no meaning, without what has a default, and with what a later version may add."""
    older = {name: value for name, value in SOUND.items() if name != "group_auc"}
    sound = [
        SOUND,
        SOUND | {"auc": None, "step": 3},
        older,
        SOUND | {"new": "text"},
        SOUND | {"further_labels": {"buy": MEASURES}},
    ]
    assert told(tmp_path / "metrics.jsonl", {"event": "progress", "step": 1}, *sound) == sound
    assert not caplog.text


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"samples": ...}, "it has no samples"),
        ({"calibration": ...}, "it has no calibration"),
        ({"samples": None}, "it has samples = None"),
        ({"samples": True}, "it has samples = True"),
        ({"auc": "0.7"}, "it has auc = '0.7'"),
        ({"group_auc": [1]}, r"it has group_auc = \[1\]"),
        ({"further_labels": 3}, "its further_labels are 3"),
        ({"further_labels": {"buy": 3}}, r"label 'buy' has no measures but 3"),
        ({"further_labels": {"buy": {"samples": 3}}}, "label 'buy' has no auc"),
    ],
)
def test_one_that_lacks_a_number_is_left_out_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any], what: str
) -> None:
    broken = {name: value for name, value in (SOUND | change).items() if value is not ...}
    path = tmp_path / "metrics.jsonl"
    with caplog.at_level(logging.WARNING):
        assert told(path, SOUND, broken) == [SOUND]
    (line,) = caplog.messages
    assert line.startswith(f"{path}: the evaluation of step {STEP} is left out of the summary: ")
    assert re.search(what, line)
