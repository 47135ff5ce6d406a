"""`bagpipe compare-placements` from its arguments to its figures."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.cli import commands as cli
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.tools.placement import load, plan_rows
from tests.unit.tools.small_clicks import small_config

DIM = 8
NO_CACHE = [f"model.embedding_dim={DIM}", "train.batch_size=50", "optimizer.rows=sgd", "policy.name=none"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_config(tmp_path_factory.mktemp("placements"), rows=600)


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, dict[tuple[str, int], Any]]:
    """What is printed, and the cells of the JSON line by placement and servers."""
    assert cli.main(["compare-placements", *arguments]) == 0
    printed = capsys.readouterr().out
    line = json.loads(printed.splitlines()[-1])
    return printed, {(one["placement"], one["servers"]): one for one in line["cells"]}


def test_loads_are_what_the_batches_say(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a cache a batch's unique rows are got once and put once, each from its server."""
    run = prepare_run(load_config(config, NO_CACHE))
    (segment,) = (segment for segment in run.schedule if segment.is_training)
    uniques = [np.unique(rows.values) for rows in run.batches(segment)]
    placements = ["round_robin", "contiguous"]
    _, found = compared(capsys, str(config), *NO_CACHE, "--placements", *placements, "--servers", "3", "1")
    of_each = 2 * sum(np.bincount(unique % 3, minlength=3) for unique in uniques) / len(uniques)
    dealt = found["round_robin", 3]["load"]
    assert dealt["rows"] == pytest.approx(of_each.tolist())
    assert dealt["bytes"] == pytest.approx((of_each * 4 * DIM).tolist())
    assert dealt["held_bytes"] == [4 * DIM * len(range(server, run.total_rows, 3)) for server in range(3)]
    assert (dealt["measured_ms"], dealt["slow_look_ups"], dealt["expected"]) == (None, None, [])
    ranges = found["contiguous", 3]["load"]
    assert ranges["rows"] != dealt["rows"]
    assert (
        sum(ranges["rows"])
        == pytest.approx(sum(dealt["rows"]))
        == pytest.approx(found["contiguous", 1]["load"]["rows"][0])
    )


def test_the_beginning_alone(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = prepare_run(load_config(config, NO_CACHE))
    (segment,) = (segment for segment in run.schedule if segment.is_training)
    first, second, *_ = (np.unique(rows.values).size for rows in run.batches(segment))
    options = ["--placements", "contiguous", "--servers", "1", "--batches", "2"]
    _, found = compared(capsys, str(config), *NO_CACHE, *options)
    assert found["contiguous", 1]["load"]["rows"] == [first + second]


def test_serving_is_measured(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The slowest server takes as long as the mean of all, or longer."""
    options = ["--placements", "by_table", "--servers", "2", "--measure"]
    printed, found = compared(capsys, str(config), *NO_CACHE, *options)
    slowest_ms, mean_ms = found["by_table", 2]["load"]["measured_ms"]
    assert slowest_ms >= mean_ms > 0
    assert "measured ms" in printed
    printed, _ = compared(capsys, str(config), *NO_CACHE, *options[:-1])
    assert "measured ms" not in printed


def test_what_placements_expect_stands_beside_it(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A greedy one has costs of its own; RecShard has times, and what it pins is not looked up at servers."""
    run = prepare_run(load_config(config, NO_CACHE))
    statistics, plan = tmp_path / "accesses.npz", tmp_path / "plan.npz"
    assert cli.main(["inspect", run.config.data.path, "--statistics", str(statistics)]) == 0
    own = ["tables.placement=recshard", f"tables.statistics={statistics}", f"tables.plan={plan}"]
    assert (
        cli.main(
            ["place", str(config), "--servers", "2", *NO_CACHE, *own, "tables.fast_gb=1e-5", "tables.time_limit_s=0"]
        )
        == 0
    )
    told = capsys.readouterr().out
    recshard = f"recshard tables.plan={plan}"
    printed, found = compared(capsys, str(config), *NO_CACHE, "--placements", "greedy_size", recshard, "--servers", "2")
    greedy, planned = found["greedy_size", 2]["load"], found[recshard, 2]["load"]
    assert greedy["expected"] == greedy["held_bytes"]
    assert (greedy["expects_ms"], greedy["slow_look_ups"]) == (False, None)
    assert f"slowest server: {max(planned['expected']):.4g} ms of a batch" in told
    assert planned["expects_ms"]
    assert f"{max(planned['expected']):.3f}" in printed
    # the batches have all training rows, which the statistics have counted
    assert f"by the counts {planned['slow_look_ups']:.2%}" in told
    assert 0.05 < planned["slow_look_ups"] < 0.95


def test_what_does_not_fit_is_not_measured(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "free_bytes", lambda: 1000)
    options = ["--placements", "by_table", "--servers", "2"]
    assert cli.main(["compare-placements", str(config), *NO_CACHE, *options, "--measure"]) == 2
    told = capsys.readouterr().err
    assert "error: there is nothing to compare: by_table, 2 servers: refused: " in told
    assert "leave --measure out" in told
    monkeypatch.undo()
    _, found = compared(capsys, str(config), *NO_CACHE, *options)
    assert found["by_table", 2]["refusal"] is None


def test_more_plans_than_fit_in_memory_are_refused(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_rows, "free_bytes", lambda: 60_000)
    options = ["compare-placements", str(config), *NO_CACHE, "--placements", "by_table", "--servers", "2"]
    assert cli.main(options) == 2
    told = capsys.readouterr().err
    assert re.search(r"--batches: the rows of \d plans and their look-ups take 0\.0 GB, and 0\.0 GB were free", told)
    assert cli.main([*options, "--batches", "1"]) == 0


def test_a_placement_that_refuses_has_a_line_of_its_own(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings of one placement are no settings of another: each has its own."""
    placements = ["greedy_size tables.server_gb=0.000001", "round_robin", "nobody"]
    printed, found = compared(capsys, str(config), *NO_CACHE, "--placements", *placements, "--servers", "2")
    refusals = {label: cell["refusal"] for (label, _), cell in found.items()}
    assert refusals["round_robin"] is None
    assert "no server has room" in refusals[placements[0]]
    assert "nobody" in refusals["nobody"]
    assert f"nobody, 2 servers: refused: {refusals['nobody']}" in printed


@pytest.mark.parametrize(
    ("placements", "told"),
    [
        (["tables.server_gb=3"], "--placements 'tables.server_gb=3': names nothing first"),
        (["by_table", "by_table"], "--placements: 'by_table' comes twice"),
        (
            ["round_robin", "by_table policy.name=bagpipe"],
            "--placements 'by_table policy.name=bagpipe': policy.name=bagpipe: plans are made once, for all placements",
        ),
    ],
)
def test_what_cannot_be_is_refused_first(
    config: Path, placements: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare-placements", str(config), "--placements", *placements]) == 2
    assert told in capsys.readouterr().err
