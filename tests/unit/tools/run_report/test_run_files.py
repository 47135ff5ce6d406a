"""What files of a run lack, or say wrongly, is told or passed over."""

import json
import os
import time
from pathlib import Path

import pytest

from bagpipe_hpc.errors import FileError
from bagpipe_hpc.storage.run_lock import LOCK_NAME
from bagpipe_hpc.tools.run_report.run_files import load_runs
from tests.unit.tools.run_report.sample_runs import (
    MEANS,
    events_of,
    page_of,
    write_events,
    write_run,
)


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    """And what its end will add is said."""
    run = write_run(tmp_path / "run", finished=False)
    (run / LOCK_NAME).write_text("{}", encoding="utf-8")
    text = page_of(run).text
    assert "state\ngoing on\n" in text
    assert "run: summary.json: is not there: the run has not come to its end" in text
    assert "Not shown: run: resources.json, which a run writes at its end, is not there." in text
    assert "Not shown: run: summary.json, which a run writes at its end, does not tell." in text
    old = time.time() - 3600
    os.utime(run / LOCK_NAME, (old, old))
    assert "state\nstopped or killed after step 30\n" in page_of(run).text


def test_runs_that_lack_the_same_are_named_together(three: list[Path]) -> None:
    for folder in three[:2]:
        (folder / "resources.json").unlink()
    summary = json.loads((three[2] / "summary.json").read_text(encoding="utf-8"))
    (three[2] / "summary.json").write_text(json.dumps(summary | {"servers": 0}), encoding="utf-8")
    (three[2] / "resources.json").unlink()
    text = page_of(*three).text
    assert "Not shown: run0, run1: resources.json, which a run writes at its end, is not there." in text
    assert "Not shown: run2: a run on one rank has none." in text
    assert "run2: resources.json" not in text


def test_an_empty_run_is_a_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=0, finished=False)
    write_events(run, [])
    text = page_of(run).text
    assert "metrics.jsonl: has no event yet" in text
    assert "Not shown: run: no evaluation event tells of it." in text
    assert "state\nnot begun, or killed before it told\n" in text


def test_one_of_several_runs_may_lack_what_others_have(three: list[Path]) -> None:
    (three[1] / "summary.json").unlink()
    (three[2] / "resources.json").write_text("[1, 2", encoding="utf-8")
    text = page_of(*three).text
    assert "Not shown: run1: summary.json, which a run writes at its end, does not tell." in text
    assert "run2: resources.json: cannot be read" in text


@pytest.mark.parametrize("value", [None, "much", [1], {"a": 1}, True, "<script>", float("nan"), float("inf"), 10**400])
def test_values_that_are_no_numbers_are_gaps(tmp_path: Path, value: object) -> None:
    """As of a loss that is infinite, or a file that somebody has edited."""
    run = write_run(tmp_path / "run")
    damaged = [
        {name: told if name in ("event", "step") else value for name, told in event.items()} for event in events_of(30)
    ]
    write_events(run, damaged)
    for name in ("summary.json", "resources.json"):
        content = json.loads((run / name).read_text(encoding="utf-8"))
        (run / name).write_text(json.dumps(dict.fromkeys(content, value)), encoding="utf-8")
    page = page_of(run)
    assert "Not shown: run: no progress event tells of it." in page.text
    assert not page.all("script")


def test_pipes_and_steps_that_no_run_has_are_passed_over(tmp_path: Path) -> None:
    """Nobody writes to such a pipe: reading it would never end."""
    run = write_run(tmp_path / "run")
    (run / "summary.json").unlink()
    (run / "logs").mkdir(exist_ok=True)
    for name in ("summary.json", "logs/trainer-9.log"):
        os.mkfifo(run / name)
    write_events(run, [{"event": "progress", "step": step, "loss": 0.5} for step in (10**400, True, -1)])
    text = page_of(run).text
    assert "summary.json: cannot be read" in text
    assert "has no event yet" in text
    assert "metrics.jsonl: lines 1, 2, 3: no event of a run, left out" in text


def test_names_command_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "<b>\x1b[2J&run")
    page = page_of(run)
    assert not page.all("b")
    assert page.texts[0] == "Run <b>\\x1b[2J&run"


def test_settings_of_another_version_cost_their_bytes_alone(run: Path) -> None:
    with (run / "config.toml").open("a", encoding="utf-8") as file:
        file.write("\n[other]\nnew_thing = 3\n")
    text = page_of(run).text
    assert "other.new_thing\n3\n" in text
    assert "Not shown: run: sizes of rows are not known, or no rows were told of." in text


def test_of_single_trainers_only_the_last_interval_is_kept(tmp_path: Path) -> None:
    """That is most of what a long run has written, and no other one is shown."""
    run = write_run(tmp_path / "run", finished=False)
    write_events(run, events_of(50))
    (found,) = load_runs([run])
    *earlier, last = found.of("progress")
    assert len(earlier) == 4
    assert not any({"trainers", "of_trainers"} & event.keys() for event in earlier)
    assert last["trainers"] == [MEANS, MEANS]


@pytest.mark.parametrize(
    ("path", "content", "told"),
    [
        ("config.toml", "[train", "config.toml: cannot be read ("),
        ("summary.json", "[]", "summary.json: is not what a run writes: the run has not come to its end"),
        ("config.toml", "[model]\nembedding_dim = -1", "bytes: "),
    ],
)
def test_what_a_file_does_not_tell_is_said(path: str, content: str, told: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / path).write_text(content, encoding="utf-8")
    assert f"run: {told}" in page_of(run).text


def test_a_run_without_logs_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "logs" / "trainer-0.log").unlink()
    (run / "logs").rmdir()
    assert "run: logs: is not there: warnings and failures" in page_of(run).text


@pytest.mark.parametrize(("early", "state"), [(None, "finished"), ({"step": 20}, "stopped early")])
def test_a_run_that_ended_for_want_of_better_evaluations_is_told_apart(
    early: object, state: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    (run / "summary.json").write_text(json.dumps(summary | {"stopped_early": early}), encoding="utf-8")
    assert ["state", state] in page_of(run).tables[0]


def test_what_is_no_run_is_refused(run: Path, tmp_path: Path) -> None:
    for folders, said in (([tmp_path], "is no output folder of a run"), ([run, run], "is given twice")):
        with pytest.raises(FileError, match=said):
            load_runs(folders)
