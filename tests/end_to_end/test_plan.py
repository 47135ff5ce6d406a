"""`bagpipe plan` says beforehand what real runs then do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.cli import commands as cli
from tests.end_to_end.test_equality import RunRanks, train

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


def foretold(config: Path, settings: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The figures of a run's own window."""
    assert cli.main(["plan", str(config), *settings, "--trainers", str(TRAINERS), "--lookahead", "5"]) == 0
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
    """Peaks and rows to the last one; so bytes of rows are, too."""
    common = [*WINDOW, "train.evaluate_every_steps=5"]
    settings = {sharing: [*common, f"cache.sharing={sharing}"] for sharing in SHARINGS}
    outlooks = {sharing: foretold(short_config, own, capsys) for sharing, own in settings.items()}
    outputs = {sharing: tmp_path / sharing for sharing in SHARINGS}
    measured = {"home": "cache.measure=all", "replicated": f"cache.rows={outlooks['replicated']['peak_rows']}"}
    runs = [[*settings[name], measured[name], f"train.output={outputs[name]}"] for name in SHARINGS]
    train(run_ranks, 2 + TRAINERS, short_config, runs, tmp_path)
    for sharing, outlook in outlooks.items():
        summary = summary_of(outputs[sharing])
        assert summary["lookahead_batches"] == 5  # not cut: the cache is as large as it must be
        assert summary["cache_rows"] == outlook["peak_rows"] == used_slots(outputs[sharing])
        assert summary["planner_bytes"] == pytest.approx(outlook["planner_bytes"], rel=0.02)  # lists grow by use
        assert summary["hit_rate"] == outlook["traffic"]["hit_rate"]
        for planned, counted in COUNTED.items():
            if sharing == "home" and planned in ("now", "later"):
                continue  # which a home sums by itself; plans say them as `sent_home`
            of_run = sum(trainer[counted] for trainer in summary["trainers"]) / TRAINERS
            assert of_run == pytest.approx(outlook["traffic"]["rows"][planned], rel=1e-12), planned
