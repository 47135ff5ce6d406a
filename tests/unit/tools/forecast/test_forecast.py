"""`bagpipe plan` from its arguments to its figures; beside real runs it stands in end_to_end/test_plan.py."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bagpipe_hpc.cli import commands as cli
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config, LookaheadConfig
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.saved_plans import find_need
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.tools.forecast import forecast, pace, sweep
from bagpipe_hpc.tools.forecast.sweep import plan_all
from bagpipe_hpc.tools.forecast.timing import Timing
from bagpipe_hpc.tools.policy_comparison.traffic import measure_traffic
from tests.unit.tools.small_clicks import small_config

DIM, BATCH = 8, 50
SMALL = [f"model.embedding_dim={DIM}", f"train.batch_size={BATCH}", "optimizer.rows=sgd", "lookahead.batches=4"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_config(tmp_path_factory.mktemp("forecast"))


def run_of(config: Path, *settings: str) -> Run:
    of_keys = {text.partition("=")[0]: text for text in (*SMALL, *settings)}
    return prepare_run(load_config(config, list(of_keys.values())))


def silent(_: str) -> None:
    """Nobody listens."""


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, dict[str, Any]]:
    """What is printed, and the JSON line."""
    assert cli.main(["plan", *map(str, arguments)]) == 0
    printed = capsys.readouterr().out
    return printed, json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize("settings", [["cache.sharing=replicated"], ["train.epochs=2"]], ids=["replicated", "homes"])
def test_one_pass_finds_what_each_window_finds_alone(config: Path, settings: list[str]) -> None:
    run = run_of(config, *settings)
    outlooks = plan_all(run, [1, 2], [1, 4, 7], 0, silent)
    assert [(one.trainers, one.lookahead) for one in outlooks] == [(t, window) for t in (1, 2) for window in (1, 4, 7)]
    for one in outlooks:
        alone = run_of(config, *settings, f"lookahead.batches={one.lookahead}", "cache.measure=all")
        need = choose_window(alone, one.trainers)
        assert (one.need.window, one.need.groups) == (need.window, need.groups)
        assert one.need.is_exact
        traffic = measure_traffic(alone, one.trainers)
        assert replace(one.traffic, planner_ms=0.0) == replace(traffic, planner_ms=0.0)


def test_hits_are_rows_of_the_window(config: Path) -> None:
    """A row that one of the last L - 1 batches used is there, in the order of one epoch."""
    run = run_of(config)
    (segment,) = (segment for segment in run.schedule if segment.is_training)
    used = [np.unique(rows.values) for rows in run.batches(segment)]
    for one in plan_all(run, [1], [1, 3, 5], 0, silent):
        earlier = [np.concatenate([np.empty(0), *used[max(0, x - one.lookahead + 1) : x]]) for x in range(len(used))]
        hits = sum(np.isin(rows, before).sum() for rows, before in zip(used, earlier, strict=True))
        assert one.traffic.hit_rate == pytest.approx(hits / sum(map(len, used)))


def test_little_memory_takes_several_passes(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(config)
    at_once = plan_all(run, [1, 2], [1, 2], 0, silent)
    read = []
    monkeypatch.setattr(sweep, "_as_many_as_fit", lambda cases: cases[:3])
    batches = Run.batches
    monkeypatch.setattr(Run, "batches", lambda *arguments: read.append(1) or batches(*arguments))
    in_turn = plan_all(run, [1, 2], [1, 2], 0, silent)
    assert len(read) == 2 * len(sweep.segments_to_measure(run))
    assert [one.need for one in in_turn] == [one.need for one in at_once]


def test_planners_share_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "free_bytes", lambda: 100)
    cases: list[Any] = [SimpleNamespace(least_bytes=size) for size in (20, 30, 1)]
    assert sweep._as_many_as_fit(cases) == cases[:2]
    assert sweep._as_many_as_fit(cases[1:]) == cases[1:]
    assert sweep._as_many_as_fit([SimpleNamespace(least_bytes=60), *cases])[1:] == []  # one at least


def test_windows_beyond_the_longest_segment_are_one(config: Path) -> None:
    run = run_of(config)
    outlooks = plan_all(run, [1], [100, 200], 0, silent)
    assert [one.lookahead for one in outlooks] == [run.longest_segment + 1]
    assert not outlooks[0].loads  # no steady state


@pytest.mark.parametrize(("batches", "loads"), [(0, 2 * 2 + 3), (6, 2 * 2 + 2)])
def test_time_is_that_of_a_steady_state(
    config: Path, monkeypatch: pytest.MonkeyPatch, batches: int, loads: int
) -> None:
    """Of the longest segment of training: a window before and after its batches, and the closing plan."""
    monkeypatch.setattr(sweep, "_STEADY_BATCHES", 3)
    run = run_of(config, "train.evaluate_every_steps=14", "train.batch_size=45")
    assert [segment.batches for segment in run.schedule if segment.is_training] == [14, 6]
    (one,) = plan_all(run, [1], [2], batches, silent)
    assert [load.samples for load in one.loads] == [45] * loads + [0]


def test_long_planning_says_how_far_it_is(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_EVERY_S", -1.0)
    run, said = run_of(config), list[str]()
    plan_all(run, [1, 2], [1, 4], 0, said.append)
    total = sum(segment.batches for segment in sweep.segments_to_measure(run))
    assert said[-1] == f"planning 4 windows at once: {total} of {total} batches"


def test_a_few_batches_are_no_exact_peak(config: Path) -> None:
    (one,) = plan_all(run_of(config), [1], [2], 5, silent)
    assert one.traffic.batches == 5
    assert not one.need.is_exact


def test_the_command_says_what_a_run_takes(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot, saved = tmp_path / "plot.svg", tmp_path / "saved.jsonl"
    options = ["--trainers", 1, 2, "--lookahead", 1, 4, "--gbit-per-s", 1, 10, "--plot", plot, "--json", saved]
    printed, found = planned(capsys, config, *SMALL, *options)
    assert json.loads(saved.read_text()) == found
    jobs = {(one["trainers"], one["lookahead"]): one for one in found["outlooks"]}
    assert list(jobs) == [(1, 1), (1, 4), (2, 1), (2, 4)]
    assert [one["sharing"] for one in found["outlooks"]] == ["replicated"] * 2 + ["home"] * 2
    one = jobs[2, 4]
    of = one["traffic"]["bytes"]
    numbers = 4 * (one["traffic"]["rows"]["written"] + one["traffic"]["rows"]["fetched"])
    to_servers = of["written"] + numbers
    expected = {"come": 2 * to_servers, "go": 2 * of["fetched"]}
    assert one["server_link_bytes"] == pytest.approx(expected, rel=1e-12)
    between = of["copied"] + of["sent_home"]  # as much comes as goes
    assert one["trainer_link_bytes"] == pytest.approx(
        {"come": of["fetched"] + between, "go": to_servers + between}, rel=1e-12
    )
    assert [timing["gbit_per_s"] for timing in one["timings"]] == [1, 10]
    assert one["timings"][0]["bare_s"] > one["timings"][1]["bare_s"] > 0
    assert one["timings"][0]["hidden"] is None
    assert f"{one['peak_rows']:,}" in printed
    assert "T = 2, rows home: rows a trainer and batch of 50" in printed
    labels = [text.text for text in ElementTree.parse(plot).getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert labels.count("L = 4") == 2


@pytest.mark.parametrize("own", [[], ["lookahead.group=3"]], ids=["usual groups", "long ones"])
def test_recommended_settings_are_those_of_a_run(
    own: list[str], config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pasted, they give the window and the cache that were planned, not one row more or less."""
    printed, found = planned(capsys, config, *SMALL, *own, "--lookahead", 1, 3, 6)
    (advice,) = found["recommended"]
    assert f"  T = 2: {' '.join(advice['settings'])}\n" in printed
    pasted = run_of(config, *own, *advice["settings"])
    need = choose_window(pasted, 2)
    (chosen,) = (one for one in found["outlooks"] if one["peak_rows"] == pasted.config.cache.rows)
    assert (need.window.lookahead, need.total_rows) == (chosen["lookahead"], chosen["peak_rows"])
    of = chosen["traffic"]["bytes"]
    (memory,) = (one for one in found["memory"] if one["trainers"] == 2)
    moving = need.window.group * (of["fetched"] + 2 * of["written"])  # two groups leave at a time
    assert memory["rows_bytes"] == pytest.approx(moving, abs=1)
    planned_ahead = min(need.window.plans_ahead, chosen["traffic"]["batches"])  # a segment may have fewer batches
    assert memory["plans_bytes"] == pytest.approx(planned_ahead * chosen["traffic"]["plan_bytes"], abs=1)


def test_a_time_of_compute_hides_traffic(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--lookahead", 1, 5, "--trainers", 1]
    _, found = planned(capsys, config, *SMALL, *options, "--compute-us-per-sample", 1000)
    plain, ahead = (one["timings"][0] for one in found["outlooks"])
    assert plain["hidden"] < 0.5
    assert ahead["hidden"] == pytest.approx(1.0)
    assert ahead["prediction"]["step_s"] == pytest.approx(BATCH * 1e-3, rel=0.01)
    more = "--compute-us-per-sample", 1000, "--compute-us-per-step", 5000
    _, found = planned(capsys, config, *SMALL, *options, *more)
    beside = found["outlooks"][1]["timings"][0]
    assert beside["prediction"]["step_s"] == pytest.approx(BATCH * 1e-3 + 5e-3, rel=0.01)
    del beside["prediction"], ahead["prediction"]
    assert beside == ahead, "what the links take is that of a trainer that computes nothing"


def test_a_cache_that_is_too_small_is_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed, found = planned(capsys, config, *SMALL, "cache.rows=2000", "--lookahead", 1, 2, 40, "--trainers", 1)
    assert [one["fits"] for one in found["outlooks"]] == [True, True, False]
    assert "need more than cache.rows = 2000" in printed
    assert "!: more than cache.rows = 2000: a run would cut the window" in printed
    printed, found = planned(capsys, config, *SMALL, "cache.rows=20", "--lookahead", 1, "--trainers", 1)
    assert "recommended, with links of 10 Gbit/s:\n  T = 1: nothing" in printed
    assert found["memory"] == []


def test_times_are_those_of_the_cluster_that_is_asked_for(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--server-nodes` for the tables; with `--nodes` all that have no trainers have servers."""
    clusters: list[Cluster] = []
    time_plans = forecast.time_plans

    def noted(loads: Any, window: Any, cluster: Cluster, *others: Any) -> Timing:
        clusters.append(cluster)
        return time_plans(loads, window, cluster, *others)

    monkeypatch.setattr(forecast, "time_plans", noted)
    sums = ["train.dense_sums=mpi", "train.sums_thread=mover", "train.row_sums=bfloat16"]
    speeds = ["--gbit-per-s", 8, "--latency-us", 30, "--oracle-us-per-sample", 2]
    computing = ["--compute-us-per-sample", 1000, "--compute-us-per-step", 5000]
    nodes = ["--trainers", 2, "--server-nodes", 3, "--trainers-per-node", 2, "--nodes", 5]
    _, found = planned(capsys, config, *SMALL, *sums, "--lookahead", 4, *speeds, *computing, *nodes)
    asked = Cluster(
        trainers=2,
        trainers_per_host=2,
        server_hosts=3,
        bytes_per_s=1e9,
        latency_s=pytest.approx(30e-6),
        plan_s_per_sample=pytest.approx(2e-6),
        compute_s_per_sample=pytest.approx(1e-3),
        compute_s_per_step=pytest.approx(5e-3),
        dense_sums="mpi",
        has_sums_thread=False,
        row_sum_bytes=2,
    )
    assert clusters == [asked, replace(asked, server_hosts=4)]
    assert [memory["servers"] for memory in found["memory"]] == [3]
    assert found["recommended"][1]["servers"] == 4
    planned(capsys, config, *SMALL, "--lookahead", 4, *nodes[:2], "--server-nodes", 0)
    assert (clusters[-1].server_hosts, clusters[-1].has_sums_thread, clusters[-1].row_sum_bytes) == (0, True, 4)


@pytest.mark.parametrize(
    ("asked", "tried"), [(40, [1, 10, 20, 40, 80, 160]), (6, [1, 2, 3, 6, 12, 24]), (1, [1, 2, 4])]
)
def test_windows_are_parts_and_multiples_of_the_setting(asked: int, tried: list[int]) -> None:
    request: Any = SimpleNamespace(save=None, lookahead=None)
    found = forecast.ForecastRequest.lookaheads(request, Config(lookahead=LookaheadConfig(batches=asked)))
    assert found == tried


def test_a_run_is_planned_from_its_start(config: Path) -> None:
    """Whatever it would go on from."""
    run = forecast.plain_run(load_config(config, [*SMALL, "train.resume=/nowhere"]))
    assert (run.schedule[0].first_step, run.config.train.resume) == (0, "")


def test_trainers_leave_a_node_of_each_number() -> None:
    """Or take half of the nodes, a quarter and so on."""

    def usual(nodes: list[int] | None, per_node: int) -> list[int]:
        request: Any = SimpleNamespace(nodes=nodes, trainers_per_node=per_node)
        return sorted(forecast.ForecastRequest.usual_trainers(request))

    assert usual(None, 4) == [2]
    assert usual([1], 4) == [4]
    assert usual([2], 1) == [1]
    assert usual([4, 13], 2) == [2, 4, 6, 12, 24]


def test_plans_are_kept_for_a_run(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "plans"
    printed, found = planned(capsys, config, *SMALL, "--trainers", 2, "--save", folder)
    assert found["saved"].items() >= {"directory": str(folder), "trainers": 2, "segments": 2}.items()
    assert f"train with 2 trainers and train.plans={folder}" in printed
    assert [(one["trainers"], one["lookahead"]) for one in found["outlooks"]] == [(2, 4)]
    need = find_need(run_of(config, f"train.plans={folder}"), 2)
    assert need.total_rows == found["outlooks"][0]["peak_rows"]


def test_nodes_get_servers_and_trainers(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--nodes", 1, 4, "--lookahead", 4, "--compute-us-per-sample", 1000]
    printed, found = planned(capsys, config, *SMALL, *options)
    assert "\n-: " not in printed
    assert "--batches" not in printed
    one, four = (advice for advice in found["recommended"] if advice["nodes"])
    assert (one["trainers"], one["servers"]) == (1, 1)
    assert (four["trainers"], four["servers"]) == (3, 1)
    assert "roles.servers=1" in four["settings"]
    assert "4 nodes: 5 ranks: roles.servers=1 lookahead.batches=4 lookahead.group=1 cache.rows=" in printed
    _, found = planned(capsys, config, *SMALL, *options, "--node-gb", 0.0001)
    told = [advice for advice in found["recommended"] if advice["nodes"]]
    assert [advice["settings"] for advice in told] == [[], []]
    assert "tables" in told[1]["reasons"][0]
    printed, _ = planned(capsys, config, *SMALL, *options, "--batches", 3)
    assert "--batches: peaks are those of the batches that were planned; later ones may need more rows" in printed
    assert "-: no segment is longer than twice the window" in printed
    assert "  4 nodes: nothing\n    no time of a step can be predicted (-)\n" in printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--nodes", "2"], "--compute-us-per-sample"),
        (["--compute-us-per-step", "5"], "--compute-us-per-step 5: says nothing without the time of a sample; give"),
        (["--plot", "drawn.png"], "ends in .svg"),
        (["--save", "plans"], "--save plans: plans are for one number of trainers; name it with --trainers T"),
        (["--save", "plans", "--trainers", "1", "2"], "plans are for one number of trainers"),
        (["--save", "plans", "--trainers", "1", "--lookahead", "3"], "leave --lookahead out"),
        (["--save", "plans", "--trainers", "1", "--batches", "3"], "leave --batches out"),
        (["--save", __file__, "--trainers", "1"], "test_forecast.py: File exists; name another folder"),
        (["--json", __file__], "holds no lines of JSON"),
        (["--calibrate", "nowhere"], "name the output folder of a finished run"),
        (["data.path="], "data.path is empty"),
        (["kernels.planner_state=dense", "model.embedding_dim=0"], "model.embedding_dim = 0"),
    ],
)
def test_what_cannot_be_is_refused(
    config: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", str(config), *SMALL, *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--batches", str(1 << 63)], "use 9223372036854775807 or less"),
        (["--server-nodes", "100001"], "argument --server-nodes: 100001: use 100,000 or less"),
        (["--nodes", "100001"], "argument --nodes: 100001: use 100,000 or less"),
        (["--node-gb", "1e300"], "argument --node-gb: 1e+300: use 1,000,000,000 or less"),
        (["--gbit-per-s", "1e300"], "argument --gbit-per-s: 1e+300: use 1,000,000 or less"),
        (["--gbit-per-s", "1e-300"], "argument --gbit-per-s: 1e-300: use 0.000001 or more"),
        (["--latency-us", "1e300"], "argument --latency-us: 1e+300: use 86,400,000,000 or less"),
    ],
)
def test_numbers_that_no_cluster_has_are_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["plan", "run.toml", *arguments])
    assert told in capsys.readouterr().err


def test_tables_of_several_widths_are_counted(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed, found = planned(
        capsys, config, *SMALL, "model.name=dcn_v2", "model.embedding_dim_of={ C3 = 4 }", "--lookahead", 1, 4
    )
    assert sorted(found["record_bytes"]) == [4 * 4, 4 * DIM]
    assert "tables of several widths: bytes are counted, time is not predicted" in printed
    assert all(one["traffic"]["bytes"]["fetched"] > 0 == len(one["timings"]) for one in found["outlooks"])


def test_an_order_that_is_decided_while_training_is_told(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fae = ["policy.name=fae", "train.evaluate_every_steps=2"]
    for settings, is_told in (([], False), (["policy.adapt_share=true"], True)):
        printed, _ = planned(capsys, config, *SMALL, *fae, *settings, "--trainers", 2)
        assert ("here they come as if these changed nothing" in printed) == is_told


@pytest.mark.parametrize("needs", [[0.3, 0.9, 3, 6, 12, 24], [0, 0, 0], [70], [0, 40]])
def test_memory_is_shared_out_by_what_planners_need(needs: list[float]) -> None:
    """What they take for sure fits, and all of it together."""
    least = [int(need * 1e9) for need in needs]
    shares = [sweep._share(100_000_000_000, one, sum(least), len(least)) for one in least]
    assert sum(shares) <= 100_000_000_000
    assert all(0 < share >= one for share, one in zip(shares, least, strict=True))
