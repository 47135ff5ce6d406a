"""Training ends for want of better evaluations, the best checkpoint stays, and interruptions change nothing of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from bagpipe_hpc.storage.checkpoints.best import read_best
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import RunRanks, overrides, story, train

EVERY = ("train.evaluate_every_steps=5", "train.evaluate_samples=150", "train.checkpoint_every_steps=10")
STOPPING = ("train.epochs=6", *EVERY, "train.stop_after=3", "train.keep_best=true", "train.best_by=log_loss")
BEST, BEFORE, END = 27, 30, 40
"""The best evaluation is at the end of the first epoch; none of those after steps 30, 35 and 40 is better."""


def settings(output: Path, *more: str) -> list[str]:
    return overrides("rowwise_adagrad", output, *STOPPING, *more)


def checkpoints(output: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in (output / "checkpoints").glob("step-*"))


def summary(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_a_run_that_does_not_get_better_ends(config_path: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """As the reference; as it does once more where it goes on from its end, or in another folder from before."""
    reference, whole, later = (tmp_path / name for name in ("reference", "whole", "later"))
    alone = settings(reference, "train.reference_slices=2", "train.keep_checkpoints=1")
    train(run_ranks, 1, config_path, [alone], tmp_path)
    increments = ("train.keep_checkpoints=2", "train.full_checkpoint_every=3", "roles.servers=2")
    start = f"train.resume={whole / 'checkpoints' / f'step-{BEFORE:08d}'}"
    runs = [settings(whole, *increments), settings(later, start, "roles.servers=2")]
    runs.append(settings(whole, *increments, "train.resume=auto"))
    train(run_ranks, 5, config_path, runs, tmp_path)

    assert compare(reference, whole).largest() == compare(reference, later).largest() == 0.0
    told = story(reference)
    assert story(whole) == told
    assert [event for event in story(later) if event[1] > BEFORE] == [event for event in told if event[1] > BEFORE]
    assert max(step for _, step, *_ in told) == END
    best = f"step-{BEST:08d}"
    assert compare(reference / "checkpoints" / best, whole / "checkpoints" / best).largest() == 0.0
    assert checkpoints(reference) == [BEST, END]
    assert checkpoints(whole) == [20, BEST, BEFORE, END]  # each is an increment of the one before, but the last
    assert checkpoints(later) == [END]
    for output in (reference, whole):
        assert read_best(output / "checkpoints") is not None
        assert (
            summary(output)["best"].items() >= {"step": BEST, "directory": str(output / "checkpoints" / best)}.items()
        )
    assert read_best(later / "checkpoints") is None
    assert summary(later)["best"]["directory"] == str(whole / "checkpoints" / best)
    for output in (reference, whole, later):
        assert summary(output)["stopped_early"] == {"step": END, "evaluations_without_better": 3}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_the_last_evaluation_of_a_run_that_is_made_longer_stays(
    ranks: int, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """The longer run evaluates at other steps, and what is worse than that one does not become the best."""
    output = tmp_path / "run"
    more = ("train.keep_best=true", "train.best_by=log_loss", "train.keep_checkpoints=1", *EVERY[:2])
    first = overrides("rowwise_adagrad", output, *more, "train.max_steps=8")
    train(run_ranks, ranks, config_path, [first], tmp_path)
    longer = (*more, "train.max_steps=21", "train.resume=auto", "optimizer.rows_lr=30.0")
    train(run_ranks, ranks, config_path, [overrides("rowwise_adagrad", output, *longer)], tmp_path)
    found = [(one["step"], one["log_loss"]) for one in summary(output)["evaluations"] if one["samples"] == 150]
    assert [step for step, _ in found] == [5, 8, 10, 15, 20, 21]
    best, least = min(found, key=lambda one: one[1])
    assert best == 8
    named = read_best(output / "checkpoints")
    assert named is not None
    assert (named.step, named.value) == (summary(output)["best"]["step"], summary(output)["best"]["value"])
    assert (named.step, named.value) == (best, least)
    assert checkpoints(output) == [8, 21]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_the_best_is_not_an_earlier_one_where_a_longer_run_keeps_none(
    ranks: int, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """`--best` would score it. The first run ends with its best; the longer one has a better at its end, or before."""
    output = tmp_path / "run"
    more = ("train.best_by=log_loss", *EVERY[:2])
    first = overrides("rowwise_adagrad", output, *more, "train.max_steps=8", "train.keep_best=true")
    train(run_ranks, ranks, config_path, [first], tmp_path)
    named = read_best(output / "checkpoints")
    assert named is not None
    longer = overrides("rowwise_adagrad", output, *more, "train.max_steps=21", "train.resume=auto")
    train(run_ranks, ranks, config_path, [longer], tmp_path)
    best, now = summary(output)["best"], read_best(output / "checkpoints")
    assert best["step"] > named.step
    assert (now.step if now else None) == (best["step"] if best["step"] in checkpoints(output) else None)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_an_evaluation_on_more_rows_stays_beside_one_that_a_longer_run_makes_at_its_step(
    ranks: int, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    more = ("train.evaluate_every_steps=4", "train.evaluate_samples=50", "roles.servers=1")
    train(run_ranks, ranks, config_path, [overrides("sgd", output, *more, "train.max_steps=4")], tmp_path)
    (at_end,) = (one for one in summary(output)["evaluations"] if one["samples"] == 202)
    longer = overrides("sgd", output, *more, "train.max_steps=8", "train.resume=auto")
    train(run_ranks, ranks, config_path, [longer], tmp_path)
    found = summary(output)["evaluations"]
    assert at_end in found
    assert [(one["step"], one["samples"]) for one in found] == [(4, 202), (4, 50), (8, 202)]
