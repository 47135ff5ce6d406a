"""Real runs move as many rows as the rules say: each trainer, in each step, with rows replicated and with one home."""

import json
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import RunRanks, overrides, train
from tests.unit.planning.lookahead.moved_rows import HomeCounts, Moved, replicated_counts
from tests.unit.planning.lookahead.rule_model import Rules

STEPS = 12
WINDOW = (5, 2)
WAYS = {
    "home": ["cache.sharing=home"],
    "home, over a grid": ["cache.sharing=home", "cache.exchange=grid"],
    "replicated": ["cache.sharing=replicated"],
}
"""Settings of how trainers share rows."""


def settings_of(way: str, output: Path) -> list[str]:
    """Of a run in one segment whose trainers tell of each step.

    Threads of Horovod spin: with many trainers on two cores its sums would take a second or two a step.
    """
    window = (f"lookahead.batches={WINDOW[0]}", f"lookahead.group={WINDOW[1]}")
    told = (f"train.max_steps={STEPS}", "train.log_every_steps=1", "train.log_trainers=12", "train.evaluate=false")
    return overrides("sgd", output, "roles.servers=1", "train.dense_sums=mpi", *WAYS[way], *window, *told)


def of_run(output: Path) -> list[list[Moved]]:
    """What each trainer counted in each step."""
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record["trainers"] for line in lines if (record := json.loads(line))["event"] == "progress"]
    return [
        [
            Moved(
                fetched=own["rows_fetched"],
                copied=own["copied"],
                sent_home=own["sent_home"],
                relayed=own["relayed"],
                summed=own["reduced_now"] + own["reduced_later"],
                updated=own["reduced_now"] + own["reduced_later"] + own["private"],
                written=own["rows_written_back"],
            )
            for own in trainers
        ]
        for trainers in records
    ]


def without_writers(moved: list[list[Moved]]) -> list[tuple[list[Moved], int]]:
    """Of replicated rows it does not matter who writes back what all have."""
    return [
        ([Moved(**{**vars(own), "written": 0}) for own in of_batch], sum(own.written for own in of_batch))
        for of_batch in moved
    ]


def require_told_of_servers(output: Path) -> None:
    """The rows that a run says its one server has moved are those that its trainers have."""
    (server,) = (summary := json.loads((output / "summary.json").read_text(encoding="utf-8")))["moved_at_servers"]
    for at_server, at_trainers in (("rows_got", "rows_fetched"), ("rows_put", "rows_written_back")):
        assert server[at_server] == pytest.approx(STEPS * sum(own[at_trainers] for own in summary["trainers"]))
    assert server["rows_got"] == server["rows_put"] > 0
    assert (server["rows_added"], server["bytes"] % (2 * server["rows_got"])) == (0, 0)


@pytest.mark.parametrize("trainers", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 4, 12))])
def test_runs_move_what_the_rules_say(trainers: int, config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    outputs = {way: tmp_path / way for way in WAYS if trainers > 2 or "grid" not in way}
    runs = [settings_of(*run) for run in outputs.items()]
    train(run_ranks, 2 + trainers, config_path, runs, tmp_path)
    run = prepare_run(load_config(config_path, settings_of("home", tmp_path / "nowhere")))
    rules = Rules(list(run.batches(run.schedule[0])), trainers, *WINDOW)
    for way in set(outputs) - {"replicated"}:
        counts = HomeCounts(rules, columns=Grid.balanced(trainers).columns if "grid" in way else 0)
        assert of_run(outputs[way]) == counts.of_batches()[:-1]
        assert compare(outputs[way], outputs["replicated"]).largest() == 0.0
        require_told_of_servers(outputs[way])
    assert without_writers(of_run(outputs["replicated"])) == without_writers(replicated_counts(rules)[:-1])
