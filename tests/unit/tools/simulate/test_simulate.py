"""`bagpipe simulate` from its arguments to its figures."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.cli import commands as cli
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.tools.simulate.compute_time import calibrate
from bagpipe_hpc.tools.simulate.trace import shards_trace, trace_policy
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings
from tests.extending import Example

SMALL = ["model.embedding_dim=8", "train.batch_size=50", "lookahead.batches=4"]


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "run.toml"
    path.write_text("[optimizer]\nrows = 'sgd'\n")
    return str(path)


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The JSON line."""
    assert cli.main(["simulate", *arguments]) == 0
    line: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return line


def test_synthetic_rows(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rows", "100000", "--compute-us-per-sample", "100", "--trainers", "1", "4", "--batches", "20"]
    result = predicted(capsys, config, *SMALL, *options)
    assert (result["total_rows"], result["record_bytes"], result["batch_size"]) == (100_000, 32, 50)
    by_job = {(job["trainers"], job["lookahead"]): job for job in result["predictions"]}
    assert list(by_job) == [(1, 1), (4, 1), (1, 4), (4, 4)]
    assert by_job[1, 1]["compute_s"] == pytest.approx(5e-3)
    assert by_job[4, 1]["compute_s"] == pytest.approx(1.3e-3)  # slices of 13 samples
    for trainers in (1, 4):
        plain, looking_ahead = by_job[trainers, 1], by_job[trainers, 4]
        assert plain["hit_rate"] == 0
        assert looking_ahead["hit_rate"] > 0.3
        assert looking_ahead["samples_per_s"] > plain["samples_per_s"]
        assert looking_ahead["cache_rows"] > plain["cache_rows"] > 0
        assert plain["sharing"] == looking_ahead["sharing"] == ("home" if trainers > 1 else "replicated")


def test_a_step_takes_time_beside_its_samples(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rows", "100000", "--compute-us-per-sample", "100", "--batches", "20", "--trainers", "1", "4"]
    options += ["--lookahead", "4"]
    for beside_s, told in (
        (0.0, "100.00 us of compute a sample\n"),
        (7e-4, "100.00 us of compute a sample and 700 us a"),
    ):
        asked = ["--compute-us-per-step", "700"] if beside_s else []
        assert cli.main(["simulate", config, *SMALL, *options, *asked]) == 0
        output = capsys.readouterr().out
        assert told in output
        one, four = json.loads(output.splitlines()[-1])["predictions"]
        assert (one["compute_s"], four["compute_s"]) == pytest.approx((5e-3 + beside_s, 1.3e-3 + beside_s))


def test_the_group_of_the_settings_counts_for_their_window(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As for `bagpipe plan`."""
    options = ["--rows", "100000", "--compute-us-per-sample", "100", "--batches", "20", "--trainers", "2"]
    found = {}
    for group in (1, 3):
        result = predicted(capsys, config, *SMALL, f"lookahead.group={group}", *options, "--lookahead", "4", "6")
        of_settings, other = result["predictions"]
        assert (of_settings["group"], other["group"]) == (group, 1)
        found[group] = of_settings["step_s"]
    assert found[3] != found[1]


def test_a_window_that_does_not_fit_the_cache_is_marked(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rows", "100000", "--compute-us-per-sample", "100", "--batches", "20", "--trainers", "1"]
    (needed,) = predicted(capsys, config, *SMALL, *options, "--lookahead", "4")["predictions"]
    assert needed["fits"]
    for rows, fits in ((needed["cache_rows"], True), (needed["cache_rows"] - 1, False)):
        assert cli.main(["simulate", config, *SMALL, *options, "--lookahead", "4", f"cache.rows={rows}"]) == 0
        output = capsys.readouterr().out
        assert json.loads(output.splitlines()[-1])["predictions"][0]["fits"] is fits
        assert (f"!: more than cache.rows = {rows}: a run would cut the window" in output) is not fits
        assert (f"{needed['cache_rows']:,} !" in output) is not fits


def test_a_skew_needs_ids_that_are_drawn(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*SMALL, "--compute-us-per-sample", "100", "--trainers", "1", "--batches", "5", "--lookahead", "4"]
    assert cli.main(["simulate", config, *options, "--zipf", "2"]) == 2
    assert "--zipf 2: is the skew of ids that are drawn, and those of data.path are read" in capsys.readouterr().err
    usual, same, steep = (
        predicted(capsys, config, *options, "--rows", "100000", *zipf)["predictions"]
        for zipf in ([], ["--zipf", "1.05"], ["--zipf", "2"])
    )
    assert usual == same != steep


def test_a_policy_of_one_s_own(
    config: str, capsys: pytest.CaptureFixture[str], example: Callable[[str], Example]
) -> None:
    """It keeps nothing, whatever look-ahead is asked for; samples that go by a row make slices of different sizes."""
    example("Policy")
    options = ["--rows", "100000", "--compute-us-per-sample", "100", "--trainers", "2", "--batches", "20"]
    (plain,) = predicted(capsys, config, *SMALL, "policy.name=no_cache:NoCache", *options)["predictions"]
    assert (plain["lookahead"], plain["hit_rate"]) == (1, 0.0)
    by_row = predicted(capsys, config, *SMALL, "policy.name=by_row:ByRow", *options)["predictions"]
    assert [job["lookahead"] for job in by_row] == [1, 4]
    assert by_row[0]["compute_s"] > plain["compute_s"] * 1.01


@pytest.mark.parametrize("name", ["fae", "pinned", "slipstream"])
def test_policies_that_go_by_the_data_have_no_drawn_rows(
    name: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*SMALL, f"policy.name={name}", "--rows", "100000", "--compute-us-per-sample", "100"]
    assert cli.main(["simulate", config, *options]) == 2
    assert f"policy.name = '{name}': goes by the rows of the data, and --rows draws others" in capsys.readouterr().err


def test_a_trace_of_shards_is_that_of_a_run_from_its_start(config: str, tmp_path: Path) -> None:
    """Whatever stands in its output folder; and its policy knows what that of the run does."""
    clicks, shards = tmp_path / "clicks.tsv", tmp_path / "shards"
    generate_clicks(900, clicks)
    prepare_clicks([str(clicks)], shards, PrepareSettings(), lambda _: None)
    rows = [f"data.path={shards}", "cache.rows=77", f"train.output={tmp_path / 'run'}", "train.resume=auto"]
    asked = load_config(Path(config), [*SMALL, *rows])
    trace = shards_trace(asked)
    facts, of_run = trace_policy(trace, asked, 2).facts, prepare_run(asked).policy(2).whole.facts
    for name in ("cache_rows", "table_names", "trainers", "sharing", "feature_tables"):
        assert getattr(facts, name) == getattr(of_run, name)
    assert facts.training is not None
    by_data = replace(asked, policy=PolicyConfig("slipstream"))
    assert trace_policy(shards_trace(by_data), by_data, 2).facts.training is not None


def test_shards_and_a_measured_run(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clicks, shards, run = tmp_path / "clicks.tsv", tmp_path / "shards", tmp_path / "run"
    generate_clicks(900, clicks)
    prepare_clicks([str(clicks)], shards, PrepareSettings(), lambda _: None)
    run.mkdir()
    (run / "config.toml").write_text("[train]\nbatch_size = 100\n")
    told = {"number": 2, "mean": {"total_ms": 6.0, "wait_rows_ms": 1.0}}
    record = {"event": "progress", "of_trainers": told}
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n\n")  # an empty line says nothing
    options = ["--calibrate", str(run), "--trainers", "1", "--lookahead", "2", "--batches", "10"]
    result = predicted(capsys, config, f"data.path={shards}", *SMALL, *options)
    assert result["predictions"][0]["compute_s"] == pytest.approx(50 * 1e-4)
    assert 0 < result["predictions"][0]["rows_fetched"] <= 50 * 26
    assert result["batches"] == 10
    fewer = predicted(capsys, config, f"data.path={shards}", *SMALL, "--calibrate", str(run), "--trainers", "1")
    assert fewer["batches"] == 17 - 2 * 4
    options = ["--calibrate", str(run), "--batches", "10"]
    assert cli.main(["simulate", config, f"data.path={shards}", *SMALL, *options]) == 2
    assert "the trace has 17 batches" in capsys.readouterr().err


@pytest.mark.parametrize("rows", ["10", "1741", "9223372036854775807"])
def test_rows_that_no_tables_can_have_are_refused(rows: str, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The smallest number that is allowed is planned like any other."""
    options = ["--compute-us-per-sample", "100", "--trainers", "1", "--batches", "3"]
    assert cli.main(["simulate", config, *SMALL, "--rows", rows, *options]) == 2
    assert f"--rows {rows}: use 1742 to 9007199254740992 rows" in capsys.readouterr().err
    result = predicted(capsys, config, *SMALL, "--rows", "1742", *options)
    assert result["total_rows"] == 1742


def test_rows_of_several_widths_are_refused(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--compute-us-per-sample", "100", "--rows", "1742", "model.embedding_dim_of={ C3 = 2 }"]
    assert cli.main(["simulate", config, *SMALL, *options]) == 2
    assert "model.embedding_dim_of = {'C3': 2}: a simulation has rows of one width" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["--lookahead", "1000000000"], "2000000100 batches to plan, one by one (--batches 100, and twice the look-"),
        (["--batches", "1000000", "--lookahead", "1"], "1000002 batches to plan"),
        (["--lookahead", "300000", "--trainers", "1"], "rows and a look-ahead of 300000 needs 8"),
    ],
)
def test_more_than_a_host_can_plan_is_refused(
    settings: list[str], message: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--rows", str(10**14), "--compute-us-per-sample", "100", *settings]
    assert cli.main(["simulate", config, *SMALL, "kernels.planner_state=dense", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/metrics\.jsonl: No such file or directory; name the output folder of a"):
        calibrate(tmp_path)
