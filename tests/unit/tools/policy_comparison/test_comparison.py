"""`bagpipe compare-policies` from its arguments to its figures; runs are in end_to_end/test_compare_policies.py."""

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from bagpipe_hpc.cli import commands as cli
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import BagpipeError, ConfigError
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.run.feedback.hearing import as_replayed, place_of
from bagpipe_hpc.tools.planned_runs import run_decisions
from bagpipe_hpc.tools.policy_comparison.contender import Cell, Contender, cells
from bagpipe_hpc.tools.policy_comparison.traffic import MOVED, measure_traffic
from bagpipe_hpc.tools.policy_comparison.training import Trained, launch_command, train
from tests.unit.tools.small_clicks import small_config

DIM, BATCH = 8, 50
BASE = [f"model.embedding_dim={DIM}", f"train.batch_size={BATCH}", "optimizer.rows=sgd"]
SMALL = [*BASE, "lookahead.batches=4"]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_config(tmp_path_factory.mktemp("comparison"))


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, dict[str, Any]]:
    """What is printed, and the cells of the JSON line by policy, trainers and cache."""
    assert cli.main(["compare-policies", *arguments]) == 0
    printed = capsys.readouterr().out
    line = json.loads(printed.splitlines()[-1])
    return printed, {(one["policy"], one["trainers"], one["cache_percent"]): one for one in line["cells"]}


def test_traffic_is_what_the_batches_say(config: Path) -> None:
    """Without look-ahead every unique row of a batch is fetched and written, wherever it is used."""
    run = prepare_run(load_config(config, [*BASE, "lookahead.batches=1", "cache.sharing=replicated"]))
    (segment,) = (segment for segment in run.schedule if segment.is_training)
    batches = list(run.batches(segment))
    unique = np.mean([np.unique(rows.values).size for rows in batches])
    one, two = measure_traffic(run, 1), measure_traffic(run, 2)
    assert one.rows == dict.fromkeys(MOVED, 0.0) | {"fetched": unique, "written": unique, "now": one.rows["now"]}
    assert one.bytes["fetched"] == unique * 4 * DIM
    assert one.total_bytes == 2 * unique * 4 * DIM  # nobody to sum with
    assert (one.hit_rate, one.window, one.batches) == (0.0, 1, len(batches))
    shared = np.mean([_used_by_both(rows.values.reshape(rows.samples, -1)) for rows in batches])
    assert two.rows["now"] == shared
    assert two.bytes["now"] == shared * 4 * DIM  # half of each sum goes out, and half of the total
    assert two.rows["fetched"] == pytest.approx((unique + shared) / 2)  # shared rows by both, the others by their user
    assert two.rows["written"] == unique / 2
    assert two.plan_bytes > 0 < two.planner_ms
    assert one.oracle_bytes == one.plan_bytes
    assert two.plan_bytes < two.oracle_bytes < 2 * two.plan_bytes  # what both get goes to both


def _used_by_both(rows: "np.ndarray[Any, Any]") -> int:
    half = -(-len(rows) // 2)
    return np.intersect1d(rows[:half], rows[half:]).size


def test_a_home_moves_copies_and_gradients(config: Path) -> None:
    run = prepare_run(load_config(config, [*SMALL, "cache.sharing=home"]))
    found = measure_traffic(run, 2)
    assert found.rows["copied"] == found.rows["sent_home"] > 0
    assert found.rows["now"] > 0 < found.rows["later"]
    assert found.bytes["now"] == found.bytes["later"] == found.rows["added"] == 0  # sent home already
    assert found.rows["fetched"] == pytest.approx(found.rows["written"])
    assert 0 < found.hit_rate < 1


def test_a_few_batches(config: Path) -> None:
    run = prepare_run(load_config(config, SMALL))
    assert measure_traffic(run, 2, most_batches=3).batches == 3


def test_the_command_compares(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot, saved = tmp_path / "plot.svg", tmp_path / "saved.jsonl"
    policies = ["--policies", "bagpipe", "bagpipe cache.sharing=replicated lookahead.batches=2"]
    options = ["--trainers", "1", "2", "--cache", "0", "100", "0.1", "--plot", str(plot), "--save", str(saved)]
    printed, found = compared(capsys, str(config), *SMALL, *policies, *options)
    assert list(found) == [
        (policy, trainers, cache) for trainers in (1, 2) for cache in (0.0, 100.0, 0.1) for policy in policies[1:]
    ]
    whole = found["bagpipe", 2, 0.0]["traffic"]
    assert whole["window"] == 4
    assert found[policies[2], 2, 100.0]["traffic"]["window"] == 2
    assert found[policies[2], 2, 100.0]["traffic"]["rows"]["copied"] == 0 < whole["rows"]["copied"]
    too_small = found["bagpipe", 2, 0.1]
    assert too_small["traffic"] is None
    assert "raise cache.rows" in too_small["refusal"]
    assert f"bagpipe, T = 2, cache 0.1 %: refused: {too_small['refusal']}" in printed
    assert "T = 2, caches as large as they want: rows a trainer and batch" in printed
    assert json.loads(saved.read_text())["cells"] == list(found.values())
    drawn = ElementTree.parse(plot).getroot()
    labels = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert labels.count("bagpipe") == 4
    assert f"{sum(whole['bytes'].values()) / 1e3:,.0f} kB" in labels


def test_a_policy_that_is_refused_everywhere_is_told_of_once(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["--policies", "bagpipe", "none", "nobody", "--trainers", "1", "2", "--cache", "0", "0.1"]
    printed, found = compared(capsys, str(config), *SMALL, *policies)
    (refusal,) = {cell["refusal"] for (policy, _, _), cell in found.items() if policy == "nobody"}
    told = [line for line in printed.splitlines() if ": refused: " in line]
    assert f"nobody: refused: {refusal}" in told
    assert sum(line.startswith("nobody") for line in told) == 1
    assert {line.split(": refused")[0] for line in told if line.startswith("bagpipe")} == {
        "bagpipe, T = 1, cache 0.1 %",
        "bagpipe, T = 2, cache 0.1 %",
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--policies", "cache.rows=3"], "names nothing first"),
        (["--policies", "bagpipe home"], "'home' is no section.field=value"),
        (["--policies", "bagpipe 'x"], "No closing quotation"),
        (["--policies", "bagpipe", "bagpipe"], "'bagpipe' comes twice"),
        (["--policies", "bagpipe", "data.path="], "data.path is empty: name the shards"),
        (["--policies", "bagpipe", "--train"], "--output comparison"),
        (["--policies", "bagpipe", "--output", "o"], "--output o: is for runs, and without --train there are none"),
        (["--policies", "bagpipe", "--seeds", "2"], "--seeds 2: is for runs, and without --train there are none"),
        (["--policies", "bagpipe", "--train", "--output", "o", "--batches", "3"], "set train.max_steps"),
        (["--policies", "bagpipe", "--train", "--output", "o", "--launch", "mpirun"], "write {ranks} there"),
        (["--policies", "bagpipe", "--plot", "drawn.png"], "ends in .svg"),
        (["--policies", "bagpipe", "--plot", "nowhere/drawn.svg"], "nowhere"),
    ],
)
def test_what_cannot_be_is_refused_first(
    config: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare-policies", str(config), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_where_every_policy_is_refused_there_is_nothing_to_compare(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(config), *SMALL, "--policies", "nobody", "fae", "--cache", "0.001", "--trainers", "1"]
    assert cli.main(["compare-policies", *given]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "there is nothing to compare: nobody, T = 1" in printed.err
    assert "policy.name = 'nobody': use one of" in printed.err


def test_an_unknown_policy_is_refused_in_its_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, found = compared(capsys, str(config), *SMALL, "--policies", "bagpipe", "nobody", "--trainers", "1")
    assert found["bagpipe", 1, 0.0]["refusal"] is None
    assert "nobody" in found["nobody", 1, 0.0]["refusal"]


def test_cells_have_the_same_cache() -> None:
    (cell,) = cells([Contender.parse("bagpipe")], [2], [12.5])
    assert cell.overrides([], 1000) == ["policy.name=bagpipe", "cache.rows=125"]
    assert cell.overrides([], 1)[-1] == "cache.rows=1"  # 0 would be as many as it wants
    assert Cell(cell.contender, 2, 0.0).overrides([], 1000)[-1] == "cache.rows=0"
    common = ["train.seed=7", "policy.name=nobody", "cache.rows=3"]
    assert cell.overrides(common, 1000, "train.seed=1") == ["train.seed=1", "policy.name=bagpipe", "cache.rows=125"]
    assert cell.folder(3) == "bagpipe/trainers=2,cache=12.5,seed=3"


def test_a_policy_has_no_cache_of_its_own_size() -> None:
    with pytest.raises(ConfigError, match=r"'bagpipe cache\.rows=5000': cache\.rows=5000: .* use --cache PERCENT"):
        cells([Contender.parse("bagpipe cache.rows=5000")], [2], [0.0])


def test_the_launcher_hears_of_ranks_and_hosts() -> None:
    launcher = "hosts --ranks {hosts} -- mpirun -n {ranks}"
    assert launch_command(launcher, servers=2, trainers=3) == [
        *("hosts", "--ranks", "3,1,1,1", "--", "mpirun", "-n", "6")
    ]


@pytest.fixture
def launcher(tmp_path: Path) -> str:
    """Starts nothing, but notes that it was asked to and leaves a summary in the folder after `train.output=`."""
    script = tmp_path / "launcher"
    script.write_text(
        "#!/bin/sh\n"
        f'echo called >> {tmp_path}/calls\n[ "$1" = 3 ] || {{ echo no luck; exit 7; }}\n'
        'for word; do case $word in train.output=*) folder=${word#train.output=};; esac; done\nmkdir -p "$folder"\n'
        f'cp {tmp_path}/summary.json "$folder"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    trainer = {"total_ms": 10.0, "wait_rows_ms": 1.0, "wait_reductions_ms": 2.0}
    moved = {"rows_fetched": 5.0, "rows_written_back": 4.0}
    summary = {
        "samples_per_s": 100.0,
        "trainers": [trainer | moved, trainer | {"rows_fetched": 7.0, "rows_written_back": 4.0}],
        "evaluations": [{"auc": 0.5, "log_loss": 0.9}, {"auc": 0.7, "log_loss": 0.5}],
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    return str(script)


def test_a_run_that_has_finished_is_not_started_again(config: Path, launcher: str, tmp_path: Path) -> None:
    folder, launch = tmp_path / "runs" / "one", [launcher, "3"]
    output = f"train.output={folder}"
    expected = Trained(100.0, pytest.approx(0.1), pytest.approx(0.2), 0.7, 0.5, {"fetched": 6.0, "written": 4.0})
    assert train(launch, config, ["train.seed=1", output], folder) == expected
    assert train(launch, config, ["train.seed=1", output], folder) == expected
    assert (tmp_path / "calls").read_text() == "called\n"
    with pytest.raises(ConfigError, match="is a run with other settings"):
        train(launch, config, ["train.seed=2", output], folder)
    (told,) = (tmp_path / "runs").glob("*.started.json")
    told.unlink()
    with pytest.raises(ConfigError, match=r"one: is a run, and one\.started\.json beside it, .* is gone"):
        train(launch, config, ["train.seed=1", output], folder)


def test_a_run_that_fails_says_what_it_said(config: Path, launcher: str, tmp_path: Path) -> None:
    with pytest.raises(BagpipeError, match=r"status 7:\nno luck"):
        train([launcher, "4"], config, [], tmp_path / "runs" / "one")


def test_runs_differ_in_what_is_compared_alone(
    config: Path, launcher: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Linear layers that each run would choose by time are the same in all; what was set stays."""
    output = tmp_path / "runs"
    options = [
        "--trainers",
        "1",
        "--seeds",
        "2",
        "--train",
        "--output",
        str(output),
        "--launch",
        f"{launcher} {{ranks}}",
    ]
    _, found = compared(capsys, str(config), *SMALL, "train.seed=9", "--policies", "bagpipe", *options)
    assert [run["auc"] for run in found["bagpipe", 1, 0.0]["trained"]] == [0.7, 0.7]
    started = [set(json.loads(path.read_text())["overrides"]) for path in sorted(output.rglob("*.started.json"))]
    common = {*SMALL, "policy.name=bagpipe", "cache.rows=0", "roles.servers=1", "roles.placement=rank_order"}
    own = [{f"train.seed={seed}", f"train.output={output / found_in}"} for seed, found_in in _folders(2)]
    as_planned = {"kernels.linear=torch", "cache.sharing=replicated"}  # wherever runs are
    assert started == [common | as_planned | {'train.resume=""', "train.overwrite=true"} | of_run for of_run in own]

    options[options.index(str(output))] = str(tmp_path / "others")
    compared(capsys, str(config), *SMALL, "kernels.linear=onednn", "--policies", "bagpipe", *options, "train.seed=9")
    told = [path.read_text() for path in (tmp_path / "others").rglob("*.started.json")]
    assert all("kernels.linear=onednn" in text and "kernels.linear=torch" not in text for text in told)


def test_rows_that_runs_do_not_move_are_told(
    config: Path, launcher: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The launcher's runs move other rows than any plan names: an error, but for policies that decide as they train."""
    hot = "policy.hot_rows=9999 policy.sample_percent=100"
    fae, adaptive = f"fae {hot}", f"fae {hot} policy.adapt_share=true"
    slipstream = f"slipstream {hot} policy.first_snapshot=1 policy.between_percent=30"
    asked = [str(config), *SMALL, "train.evaluate_every_steps=2", "--trainers", "1", "--policies"]
    plot = tmp_path / "plot.svg"
    printed, found = compared(capsys, *asked, fae, adaptive, slipstream, "--plot", str(plot))
    orders = "orders samples by evaluations as it trains; here they come as if these changed nothing"
    leaves_out = "leaves samples out as it trains, and takes fewer steps; all are planned here"
    assert [one["decided_in_runs"] for one in found.values()] == [[], [orders], [leaves_out]]
    rows = [line.split("  ")[0] for line in printed.splitlines()[2:5]]
    assert rows == [fae, f"{adaptive} (as planned)", f"{slipstream} (as planned)"]
    assert f"\n{adaptive} (as planned): {orders}\n{slipstream} (as planned): {leaves_out}\n" in printed
    assert plot.read_text().count("(as planned)") == 2

    asked = [*asked, adaptive, slipstream, "--train", "--output", str(tmp_path / "runs"), "--launch"]
    printed, found = compared(capsys, *asked, f"{launcher} {{ranks}}", "--seeds", "1")
    moved = "its runs fetched 6.0 and wrote back 4.0 rows a trainer and batch"
    assert f"\n{adaptive}, T = 1, any cache: {moved}\n" in printed
    assert [one["trained"][0]["moved"]["fetched"] for one in found.values()] == [6.0, 6.0]
    assert cli.main(["compare-policies", *asked, f"{launcher} {{ranks}}", "--policies", fae]) == 2
    assert "in its plans" in capsys.readouterr().err


def test_that_runs_may_end_early_is_told(
    config: Path, launcher: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The means of such a run are of fewer steps than were planned, which is no error."""
    early = ["train.evaluate_every_steps=2", "train.stop_after=1"]
    options = ["--trainers", "1", "--train", "--seeds", "1", "--output", str(tmp_path / "runs"), "--launch"]
    asked = [str(config), *SMALL, *early, "--policies", "none", *options, f"{launcher} {{ranks}}"]
    _, found = compared(capsys, *asked)
    told = "may end before its last step, by train.stop_after; all steps are planned here"
    assert [one["decided_in_runs"] for one in found.values()] == [[told]]


def test_the_order_of_a_replayed_run_is_planned(config: Path) -> None:
    """Losses that always rise make turns shorter, down to one evaluation; the run decides nothing then."""
    fae = ["policy.name=fae", "policy.hot_rows=6300", "policy.sample_percent=100", "policy.adapt_share=true"]
    run = prepare_run(load_config(config, [*SMALL, *fae, "policy.share_percent=20", "train.evaluate_every_steps=2"]))
    assert as_replayed(run) is run
    places = [place_of(run, segment) for segment in run.schedule if segment.is_heard]
    losses = [Heard(*place, float(number)) for number, place in enumerate(places)]
    replayed = as_replayed(replace(run, replayed=tuple(losses)))
    assert [segment.heard for segment in replayed.schedule if segment.is_training] == [
        tuple(losses[:count]) for count in range(len(losses) + 1)
    ]
    assert run_decisions(run) != run_decisions(replayed) == []
    assert measure_traffic(replayed, 2).rows["fetched"] > measure_traffic(run, 2).rows["fetched"]


def _folders(seeds: int) -> list[tuple[int, str]]:
    return [(seed, f"bagpipe/trainers=1,cache=0,seed={seed}") for seed in range(1, seeds + 1)]
