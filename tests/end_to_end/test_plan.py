"""`bagpipe plan` says beforehand what real runs then do, and keeps plans that they can send with the same bits."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.cli import commands as cli
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import RunRanks, story, train
from tests.end_to_end.train_many import END_OF_RUN

WINDOW = ["lookahead.batches=5", "lookahead.group=2"]
COUNTED = {
    "fetched": "rows_fetched",
    "written": "rows_written_back",
    "now": "reduced_now",
    "later": "reduced_later",
    "copied": "copied",
    "sent_home": "sent_home",
}
"""What plans say, and the names in a run's summary."""
SHARINGS = ("home", "replicated")
TRAINERS = 2


CUTS = ["train.evaluate_every_steps=5", "train.checkpoint_every_steps=10"]


def foretold(config: Path, settings: list[str], capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """The figures of a run's own window."""
    assert cli.main(["plan", str(config), *settings, "--trainers", str(TRAINERS), *more]) == 0
    (outlook,) = json.loads(capsys.readouterr().out.splitlines()[-1])["outlooks"]
    return dict(outlook)


def summary_of(output: Path) -> dict[str, Any]:
    return dict(json.loads((output / "summary.json").read_text()))


def used_slots(output: Path) -> int:
    """The most that were in use, as the oracle says."""
    (used,) = re.findall(r"cache: (\d+) of \d+ rows were in use at most", (output / "logs/oracle-0.log").read_text())
    return int(used)


def test_runs_do_what_their_plans_say(
    short_config: Path, run_ranks: RunRanks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Peaks and rows to the last one, so bytes of rows, too.

    Saved plans give the same bits: of a whole run, of one that goes on from a checkpoint, and of one that ends early.
    """
    settings = {sharing: [*WINDOW, *CUTS, f"cache.sharing={sharing}"] for sharing in SHARINGS}
    options = {"home": ["--save", str(tmp_path / "plans")], "replicated": ["--lookahead", "5"]}
    outlooks = {name: foretold(short_config, own, capsys, *options[name]) for name, own in settings.items()}
    names = (*SHARINGS, "saved", "later", "early", "early, saved")
    outputs = {name: tmp_path / name for name in names}
    from_file = f"train.plans={tmp_path / 'plans'}"
    ends_early = ("train.stop_after=1", "train.stop_min_delta=0.9")
    further = {
        "home": ["cache.measure=all"],
        "replicated": [f"cache.rows={outlooks['replicated']['peak_rows']}"],
        "saved": [from_file],
        "later": [from_file, f"train.resume={outputs['home'] / 'checkpoints/step-00000010'}"],
        "early": ends_early,
        "early, saved": [*ends_early, from_file],
    }
    runs = [[*settings.get(name, settings["home"]), *further[name], f"train.output={outputs[name]}"] for name in names]
    train(run_ranks, 2 + TRAINERS, short_config, runs, tmp_path)
    for sharing, outlook in outlooks.items():
        require_foretold(summary_of(outputs[sharing]), outlook)
        assert used_slots(outputs[sharing]) == outlook["peak_rows"]
    whole = outputs["home"]
    assert compare(whole, outputs["saved"]).largest() == compare(whole, outputs["later"]).largest() == 0.0
    assert compare(outputs["early"], outputs["early, saved"]).largest() == 0.0
    assert story(whole) == story(outputs["saved"])
    assert story(outputs["early"]) == story(outputs["early, saved"])
    assert [event for event in story(outputs["later"]) if event[1] > 10] == [e for e in story(whole) if e[1] > 10]
    saved, planned = summary_of(outputs["saved"]), summary_of(whole)
    for name in ("lookahead_batches", "group_batches", "cache_rows", "cache_bytes", "hit_rate"):
        assert saved[name] == planned[name]
    assert saved["planner_bytes"] == 0 < planned["planner_bytes"]
    assert summary_of(outputs["early, saved"])["steps"] == 10 < summary_of(whole)["steps"]


@pytest.mark.slow
def test_saved_plans_go_on_from_a_checkpoint_with_rows_verified(
    short_config: Path, run_ranks: RunRanks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plans have the steps of updates before the checkpoint, from which rows come without."""
    own = [*WINDOW, *CUTS, "cache.sharing=home", "debug.verify_rows=true"]
    foretold(short_config, own, capsys, "--save", str(tmp_path / "plans"))
    by_plans = [*own, f"train.plans={tmp_path / 'plans'}"]
    whole, later = tmp_path / "whole", tmp_path / "later"
    start = f"train.resume={whole / 'checkpoints/step-00000010'}"
    runs = [[*by_plans, f"train.output={whole}"], [*by_plans, start, f"train.output={later}"]]
    train(run_ranks, 2 + TRAINERS, short_config, runs, tmp_path)
    assert compare(whole, later).largest() == 0.0


def require_foretold(summary: dict[str, Any], outlook: dict[str, Any]) -> None:
    """See that a run did what its plans say."""
    assert summary["lookahead_batches"] == 5  # not cut: the cache is as large as it must be
    assert summary["cache_rows"] == outlook["peak_rows"]
    assert summary["planner_bytes"] == pytest.approx(outlook["planner_bytes"], rel=1 / 16)  # to spare in lists
    assert summary["hit_rate"] == outlook["traffic"]["hit_rate"]
    for planned, counted in COUNTED.items():
        of_run = sum(trainer[counted] for trainer in summary["trainers"]) / TRAINERS
        assert of_run == pytest.approx(outlook["traffic"]["rows"][planned], rel=1e-12), planned


def test_plans_of_another_run_refuse_it_before_it_starts(
    short_config: Path, run_ranks: RunRanks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every rank ends with the oracle's message, and an earlier run in the output folder is as it was."""
    plans = tmp_path / "plans"
    foretold(short_config, WINDOW, capsys, "--save", str(plans))
    output = tmp_path / "run"
    output.mkdir()
    common = [*WINDOW, f"train.plans={plans}", f"train.output={output}"]
    said = train(
        run_ranks, 2 + TRAINERS, short_config, [[*common, "train.seed=9"], [*common, *CUTS]], tmp_path, "--refused"
    )
    first, second, _ = said.split(END_OF_RUN)
    assert f"{plans / 'plans.json'}: the plans are of another run: train.seed: 1 there, 9 here" in first
    assert "train.checkpoint_every_steps: 0 there, 10 here" in second
    assert list(output.iterdir()) == []
    assert cli.main(["train", str(short_config), *common]) == 2  # one rank
    assert f"train.plans = '{plans}': a one-rank run sends no plans" in capsys.readouterr().err
