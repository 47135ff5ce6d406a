"""The page about runs: whole by itself, readable without seeing it, and open about what is not there."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import FileError
from bagpipe_hpc.tools.run_report.page import report_page
from bagpipe_hpc.tools.run_report.report import write_report
from bagpipe_hpc.tools.run_report.run_files import load_runs
from tests.unit.tools.run_report.sample_runs import (
    MEANS,
    Page,
    events_of,
    page_of,
    write_events,
    write_run,
)


def test_a_page_needs_nothing_else(three: list[Path]) -> None:
    """No script, no other file, no address; what it refers to is in it."""
    html = report_page(load_runs(three), "today")
    page = Page(html)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not [attributes for _, attributes in page.tags if {"src", "href", "xlink:href"} & attributes.keys()]
    assert "://" not in html
    assert "@import" not in html
    ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert set(ids.values()) == {1}
    named = [
        attributes["fill"][5:-1] for attributes in page.all("rect") if attributes.get("fill", "").startswith("url(")
    ]
    named += [name for attributes in page.all("svg") for name in attributes.get("aria-labelledby", "").split()]
    assert named
    assert set(named) <= ids.keys()


def test_a_name_that_is_no_text_is_written_as_utf8(tmp_path: Path) -> None:
    """In a locale of ASCII letters beyond it come as such names, too."""
    run = write_run(tmp_path / os.fsdecode("ü".encode() + b"\xff"))
    write_report([run], tmp_path / "page.html")
    assert "ü\ufffd" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_every_chart_has_words_and_numbers(three: list[Path]) -> None:
    page = page_of(*three)
    charts = [attributes for attributes in page.all("svg") if attributes.get("role") == "img"]
    assert len(charts) == len(page.all("figure")) == 16
    assert len(page.all("title")) == len(charts) + 1
    assert len(page.all("desc")) == len(page.all("details")) == len(charts)
    hidden = [attributes for attributes in page.all("svg") if attributes.get("role") != "img"]
    assert all(attributes["aria-hidden"] == "true" for attributes in hidden)


def test_the_style_knows_dark_phones_and_paper(run: Path) -> None:
    html = report_page(load_runs([run]), "today")
    for rule in ("prefers-color-scheme: dark", "max-width: 40rem", "@media print"):
        assert rule in html
    assert 'name="viewport"' in html


def test_runs_stand_side_by_side_with_what_differs(three: list[Path]) -> None:
    """Folders differ by their nature, and are no setting to speak of."""
    text = page_of(*three).text
    assert "Settings that differ\nsetting\nrun0\nrun1\nrun2\ntrain.batch_size\n64\n128\n256" in text
    assert "train.output" not in text
    assert "run1: trainer 1" in text
    assert "run0, run1, run2: " not in text


def test_of_one_run_settings_beside_the_defaults_are_told(run: Path) -> None:
    text = page_of(run).text
    assert "Settings that are not at their defaults\nsetting\nrun\ndefault\ncache.sharing\nhome\nauto" in text


def test_a_run_may_be_called_as_the_column_beside_it(tmp_path: Path) -> None:
    text = page_of(write_run(tmp_path / "default")).text
    assert "Settings that are not at their defaults\nsetting\ndefault\ndefault\ncache.sharing\nhome\nauto" in text


def test_steps_are_those_of_all_starts(run: Path) -> None:
    """A summary tells of the last one."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    (run / "summary.json").write_text(json.dumps(summary | {"steps": 7}), encoding="utf-8")
    assert ["steps", "30"] in page_of(run).tables[0]


def test_what_befell_a_run_is_told(run: Path) -> None:
    text = page_of(run).text
    assert "from run/checkpoints/step-00000005: a: 1 -> 2" in text
    assert "all rows, 10.0 MB; training stood still for 0.50 s, complete after 2.5 s" in text
    assert "batch 7 has <more> copies" in text
    assert "error\ntrainer 0 failed: out of luck" in text
    assert "process 1 on vm" not in text


def test_of_many_checkpoints_the_latest_are_told(run: Path) -> None:
    """Beside a resume, which is no less worth knowing for coming before all of them."""
    resumed, *_, checkpoint = events_of(30)
    write_events(run, [resumed, *(checkpoint | {"step": step} for step in range(10, 1010, 10))])
    page = page_of(run)
    [told] = [table for table in page.tables if table[0][:2] == ["run", "step"]]
    assert [row[1:3] for row in told[1:]] == [
        ["5", "resumed"],
        *([str(step), "checkpoint"] for step in range(410, 1010, 10)),
    ]
    assert "run: the latest 60 of 100 checkpoints" in page.text


def test_bytes_are_rows_times_their_sizes(run: Path) -> None:
    """D = 16 and row-wise Adagrad: a record of 68 bytes, copies and gradients of 64; with homes sums are none."""
    rows_a_step, bytes_a_step = [table for table in page_of(run).tables if table[0][:2] == ["", "fetched"]]
    assert rows_a_step == [
        ["", "fetched", "written back", "summed now", "copied", "sent home", "in all"],
        ["mean of trainers", "10", "9", "20", "5", "4", "48"],
    ]
    assert bytes_a_step == [
        ["", "fetched", "written back", "copied", "sent home", "in all"],
        ["mean of trainers", "0.68", "0.612", "0.32", "0.256", "1.868"],
    ]


def test_where_a_step_goes_is_told_by_role(run: Path) -> None:
    page = page_of(run)
    of_trainers, of_movers, of_oracle, processors, *_ = [table for table in page.tables if table[0][0] == ""][1:]
    assert of_trainers[0] == ["", "compute", "waiting for rows", "waiting for sums", "in all"]
    assert of_trainers[1:] == [[f"trainer {number}", "125", "50", "25", "200"] for number in (0, 1)]
    assert of_movers[1] == ["trainer 0", "66.67", "33.33", "16.67", "116.7"]
    assert of_oracle[1:] == [["oracle 0", "33.33", "16.67", "50"]]
    assert [row[0] for row in processors[1:]] == ["oracle 0", "server 0", "server 1", "trainer 0", "trainer 1"]


def test_losses_as_far_apart_as_can_be_are_drawn(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_events(run, [{"event": "progress", "step": step, "loss": loss} for step, loss in ((1, 1e300), (2, -1e300))])
    assert page_of(run).all("polyline")


def test_tables_of_several_widths_have_rows_alone(tmp_path: Path) -> None:
    config = load_config(write_run(tmp_path / "one") / "config.toml", ["model.embedding_dim_of={C1=8}"])
    text = page_of(write_run(tmp_path / "run", config=config)).text
    assert "bytes by class: tables have several widths" in text


def test_many_ranks_are_summed_up(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    summary["trainers"] = [MEANS | {"compute_ms": float(number)} for number in range(100)]
    (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    of_trainers = next(table for table in page_of(run).tables if table[0][:2] == ["", "compute"])
    assert [row[:2] for row in of_trainers[1:]] == [
        ["mean of 100", "49.5"],
        ["least: trainer 0", "0"],
        ["most: trainer 99", "99"],
    ]


def test_of_many_steps_some_stand_in_a_table(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "run", steps=1000))
    losses = next(table for table in page.tables if table[0] == ["step", "run"])
    assert [row[0] for row in losses[1:]] == [f"{step}" for step in range(10, 1001, 30)]
    assert "One in 3 of the 100 steps that were told of; metrics.jsonl has all." in page.text
    assert ["taken up again", "1 time"] in page.tables[0]


def over_steps(page: Page, figure: int) -> list[list[str]]:
    """The table behind a figure over steps, by its number on the page, without its headings."""
    return [table[1:] for table in page.tables if table[0][0] == "step"][figure]


def test_values_over_steps_are_those_of_the_events(tmp_path: Path) -> None:
    """Shares in percent, large numbers whole, and a gap where a run has not told."""
    long, short = (write_run(tmp_path / name, steps=steps) for name, steps in (("long", 20), ("short", 10)))
    write_events(long, [event | {"resident_rows": 123_456.7} for event in events_of(20)])
    page = page_of(long, short)
    losses, *_, waiting, hits, resident = [over_steps(page, figure) for figure in (0, 4, 5, 6)]
    assert losses == [["10", "0.1", "0.1"], ["20", "0.05", "-"]]
    assert waiting == [["10", "12.5", "12.5"], ["20", "12.5", "-"]]
    assert hits == [["10", "50", "50"], ["20", "50", "-"]]
    assert resident == [["10", "123,457", "10"], ["20", "123,457", "-"]]
    assert "that were told of" not in page.text


def test_charts_of_training_mark_where_it_was_taken_up(tmp_path: Path) -> None:
    """Loss and speed: behind such a step both may jump."""
    run = write_run(tmp_path / "run")
    resumed, *others = events_of(30)
    write_events(run, [*others, resumed | {"step": 20}])
    assert [path["class"] for path in page_of(run).all("path")].count("mark") == 2


def test_steps_have_all_their_digits(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_events(run, [event | {"step": event["step"] + 1_234_560} for event in events_of(30)])
    page = page_of(run)
    losses = next(table for table in page.tables if table[0] == ["step", "run"])
    assert [row[0] for row in losses[1:]] == ["1234570", "1234580", "1234590"]
    assert "at step 1234570, " in page.text


def test_a_run_of_many_trainers_that_goes_on_tells_of_their_mean(tmp_path: Path) -> None:
    """Its reports do not have each trainer by itself."""
    events = [event for event in events_of(20) if event["event"] == "progress"]
    for event in events:
        del event["trainers"]
        event["of_trainers"] |= {"number": 256}
    run = write_run(tmp_path / "run", finished=False)
    write_events(run, events)
    page = page_of(run)
    of_trainers = next(table for table in page.tables if table[0][:2] == ["", "compute"])
    assert of_trainers[1:] == [["mean of 256", "125", "50", "25", "200"]]
    assert ["trainers", "256"] in page.tables[0]
    assert ["mean of trainers", "10", "9", "20", "5", "4", "48"] in [row for table in page.tables for row in table]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / part / "run") for part in ("a", "b")]
    assert [run.name for run in load_runs(folders)] == ["a/run", "b/run"]


def test_the_command_writes_the_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert [main(["report", str(run), "-o", str(page)]) for _ in range(2)] == [0, 0]  # it may replace itself
    assert capsys.readouterr().out == f"{page}\n" * 2
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>\n<!-- bagpipe report -->\n")


def test_what_is_no_report_is_not_replaced(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "mine.html"
    other.write_text("precious", encoding="utf-8")
    for path, said in (
        (other, "is there and is no report"),
        (tmp_path / "report.txt", "use a name that ends in .html"),
        (tmp_path / "nowhere" / "report.html", "its folder does not exist"),
    ):
        with pytest.raises(FileError, match=said):
            write_report([run], path)
    assert other.read_text(encoding="utf-8") == "precious"
