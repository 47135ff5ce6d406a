"""The page about runs: whole by itself, readable without seeing it, and open about what is not there."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.config.file import load_config, to_toml
from bagpipe_hpc.config.schema import CacheConfig, Config, TrainConfig
from bagpipe_hpc.errors import FileError
from bagpipe_hpc.storage.run_lock import LOCK_NAME
from bagpipe_hpc.telemetry.step_stats import StepStats
from bagpipe_hpc.tools.run_report.page import report_page
from bagpipe_hpc.tools.run_report.report import write_report
from bagpipe_hpc.tools.run_report.run_files import load_runs

MEANS = StepStats(
    steps=10,
    samples=640,
    total_s=2.0,
    wait_rows_s=0.5,
    wait_reductions_s=0.25,
    rows_fetched=100,
    rows_written_back=90,
    reduced_now=200,
    copied=50,
    sent_home=40,
).per_step()
SPANS = {"plan": 1.0, "send": 0.5, "fill": 0.25, "fetch": 2.0, "write back": 1.0, "barrier": 0.5}
QUALITY = {"samples": 99, "log_loss": 0.4, "normalised_entropy": 0.5, "calibration": 1.0, "group_auc": None}


class Page(HTMLParser):
    """What a page holds; errors in its nesting fail."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "meta":
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())
        if {"th", "td"} & set(self._open[-1:]):
            self.tables[-1][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def write_run(folder: Path, *, steps: int = 30, finished: bool = True, config: Config | None = None) -> Path:
    """An output folder as a run leaves it."""
    (folder / "logs").mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(config or Config(cache=CacheConfig(sharing="home"))), encoding="utf-8")
    write_events(folder, events_of(steps))
    (folder / "logs" / "trainer-0.log").write_text(
        "2026-11-23 08:00:00,123 INFO bagpipe_hpc.launch: process 1 on vm\n"
        "2026-11-23 08:00:01,456 WARNING bagpipe_hpc.roles.oracle: batch 7 has <more> copies\n"
        "2026-11-23 08:00:02,789 ERROR bagpipe_hpc.telemetry.run_log: trainer 0 failed: out of luck\n",
        encoding="utf-8",
    )
    if finished:
        load = {"rows_got": 900, "rows_put": 800, "rows_added": 0, "bytes": 1_700_000}
        summary = {"steps": steps, "samples_per_s": 320.0, "hit_rate": 0.75, "trainers": [MEANS, MEANS], "seconds": 9.5}
        summary |= {"servers": 2, "lookahead_batches": 40, "group_batches": 10, "cache_rows": 900, "cache_bytes": 5e6}
        summary |= {"moved_at_servers": [load, load], "dense_weights": 1234}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        roles = [("oracle", 0), ("server", 0), ("server", 1), ("trainer", 0), ("trainer", 1)]
        ranks = [
            {
                "role": role,
                "role_rank": number,
                "host": "node1",
                "peak_bytes": 10**8,
                "processor_s": 2.5,
                "spans_s": SPANS,
            }
            for role, number in roles
        ]
        (folder / "resources.json").write_text(json.dumps({"ranks": ranks}), encoding="utf-8")
    return folder


def events_of(steps: int) -> Iterator[dict[str, Any]]:
    yield {"event": "resumed", "step": 5, "directory": "run/checkpoints/step-00000005", "changes": ["a: 1 -> 2"]}
    for step in range(10, steps + 1, 10):
        told = {"loss": 1.0 / step, "samples_per_s": 300.0 + step, "hit_rate": 0.5, "wait_rows_share": 0.125}
        told |= {"of_trainers": {"number": 2, "mean": MEANS, "waited_for": 0}, "trainers": [MEANS, MEANS]}
        yield {"event": "progress", "step": step, "epoch": 0, **told, "resident_rows": step}
    yield {"event": "evaluation", "step": steps, "epoch": 0, "auc": 0.765, **QUALITY, "seconds": 1.0}
    done = {"seconds": 0.5, "complete_after_s": 2.5, "bytes": 10**7, "base_step": None}
    yield {"event": "checkpoint", "step": steps, "directory": "run/checkpoints/step-00000030", **done}


def write_events(folder: Path, events: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(event) + "\n" for event in events)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def page_of(*folders: Path) -> Page:
    return Page(report_page(load_runs(folders), "today"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    settings = [Config(train=TrainConfig(batch_size=size, output=str(size))) for size in (64, 128, 256)]
    return [write_run(tmp_path / f"run{number}", config=one) for number, one in enumerate(settings)]


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


def test_losses_as_far_apart_as_can_be_are_drawn(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_events(run, [{"event": "progress", "step": step, "loss": loss} for step, loss in ((1, 1e300), (2, -1e300))])
    assert page_of(run).all("polyline")


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


def test_of_single_trainers_only_the_last_interval_is_kept(tmp_path: Path) -> None:
    """That is most of what a long run has written, and no other one is shown."""
    run = write_run(tmp_path / "run", finished=False)
    write_events(run, events_of(50))
    (found,) = load_runs([run])
    *earlier, last = found.of("progress")
    assert len(earlier) == 4
    assert not any({"trainers", "of_trainers"} & event.keys() for event in earlier)
    assert last["trainers"] == [MEANS, MEANS]


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


def test_what_is_no_run_is_refused(run: Path, tmp_path: Path) -> None:
    for folders, said in (([tmp_path], "is no output folder of a run"), ([run, run], "is given twice")):
        with pytest.raises(FileError, match=said):
            load_runs(folders)
