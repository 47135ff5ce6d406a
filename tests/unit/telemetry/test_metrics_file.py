"""The metrics file is read as far as it is sound, and what is not is said."""

import json
import tracemalloc
from pathlib import Path

import pytest

from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, cut_metrics, read_metrics

SOUND = [{"event": "progress", "step": 10}, {"event": "evaluation", "step": 10, "samples": 40}]
SOUND.append({"event": "progress", "step": 20})


def write(folder: Path, *lines: str, end: str = "\n") -> Path:
    path = folder / METRICS_NAME
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


@pytest.mark.parametrize("end", ["\n", ""])
def test_events_are_read_in_their_order(tmp_path: Path, end: str) -> None:
    """Also where the end of the last line was not written."""
    assert read_metrics(write(tmp_path, *map(json.dumps, SOUND), end=end)) == (SOUND, [])


def test_a_file_that_is_absent_holds_nothing(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / METRICS_NAME) == ([], [])


def test_a_last_line_that_was_cut_off_is_no_damage(tmp_path: Path) -> None:
    lines = [*map(json.dumps, SOUND), '{"event": "progr']
    assert read_metrics(write(tmp_path, *lines, end="")) == (SOUND, [])


@pytest.mark.parametrize(
    "line", ["", "{", "7", '{"event": 1, "step": 2}', '{"event": "progress", "step": -1}', "\0" * 9]
)
def test_damaged_lines_are_numbered(tmp_path: Path, line: str) -> None:
    first, *others = map(json.dumps, SOUND)
    metrics = read_metrics(write(tmp_path, first, line, *others, line))
    assert metrics == (SOUND, [2, 5])
    assert metrics.tell_damage() == "lines 2, 5: no event of a run, left out"


def test_of_many_damaged_lines_the_first_are_named(tmp_path: Path) -> None:
    assert read_metrics(write(tmp_path, "{")).tell_damage() == "line 1: no event of a run, left out"
    many = read_metrics(write(tmp_path, *"{" * 9)).tell_damage()
    assert many == "lines 1, 2, 3, 4, 5 and 4 more: no event of a run, left out"
    assert not read_metrics(write(tmp_path, json.dumps(SOUND[0]))).tell_damage()


def test_a_run_that_goes_on_keeps_what_came_before_and_says_what_it_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An evaluation at the checkpoint's step comes after it."""
    path = write(tmp_path, *map(json.dumps, SOUND[:1]), "{", *map(json.dumps, SOUND[1:]))
    cut_metrics(path, 10, made_again={40})
    assert read_metrics(path) == (SOUND[:1], [])
    assert caplog.messages == [f"{path}: line 2: no event of a run, left out"]


def test_an_evaluation_that_does_not_say_of_how_many_rows_is_not_kept_beside_one_that_is_made_again(
    tmp_path: Path,
) -> None:
    older = [SOUND[0], {"event": "evaluation", "step": 10}]
    for made_again, kept in (({50}, older[:1]), ((), older)):
        path = write(tmp_path, *map(json.dumps, older))
        cut_metrics(path, 10, made_again=made_again)
        assert read_metrics(path).events == kept


def test_an_evaluation_that_is_not_made_again_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, *map(json.dumps, SOUND))
    cut_metrics(path, 10, made_again={50})
    assert read_metrics(path).events == SOUND[:2]


def test_of_many_lines_only_what_is_wanted_is_kept(tmp_path: Path) -> None:
    """A long run has millions of them, and goes on with its evaluations alone."""
    line = {"event": "progress", "step": 1, "trainers": [{f"part {number}": 0.5 for number in range(50)}]}
    path = write(tmp_path, *[json.dumps(line)] * 2000, json.dumps(SOUND[1]))
    size = path.stat().st_size
    assert read_metrics(path, lambda event: event["event"] == "evaluation") == (SOUND[1:2], [])
    tracemalloc.start()
    try:
        read_metrics(path, lambda event: event["event"] == "evaluation")
        cut_metrics(path, 10, made_again=())
        assert tracemalloc.get_traced_memory()[1] < size / 4
    finally:
        tracemalloc.stop()
    assert len(read_metrics(path).events) == 2001
