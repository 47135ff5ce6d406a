"""A run compares evaluations where its checkpoint left off, unless they are other evaluations; and names the best."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from bagpipe_hpc.config.schema import Config, TrainConfig
from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.evaluation.standing import Judge, Rule, Standing
from bagpipe_hpc.plan.schedule import Segment, SegmentKind
from bagpipe_hpc.run.feedback.judging import SegmentEnd, best_of, outcome, segment_end, start_judge
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.best import Best
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.entries import ShardInfo, TableInfo
from bagpipe_hpc.storage.shards.manifest import ShardManifest
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

TABLES = (4,)
SHARDS = ShardManifest(1, "criteo", 1, (TableInfo("C1", 4),), (), (ShardInfo("test-00000.h5", 50, 7, 1, "0" * 64),))
STANDING = Standing("auc", 50, 40, 0.75, 0.7, 2)


def run_of(output: Path, start: Path | None = None, **settings: object) -> Run:
    train = TrainConfig(output=str(output), stop_after=3, stop_min_delta=0.5, **settings)  # type: ignore[arg-type]
    return Run(Config(train=train), SHARDS, (), load_checkpoint(start) if start else None)


def write(output: Path, step: int, **facts: object) -> Path:
    return write_checkpoint(output, sample_records(TABLES, 2), TABLES, step=step, **facts)


def test_a_checkpoint_carries_the_standing(tmp_path: Path) -> None:
    start = write(tmp_path, 100, standing=STANDING, evaluation_data=SHARDS.digest("test"))
    assert load_checkpoint(start).manifest.standing == STANDING
    judge = start_judge(run_of(tmp_path, start))
    assert judge.now == STANDING
    assert judge.rule == Rule("auc", 50, patience=3, least_gain=0.5)
    bounded = start_judge(run_of(tmp_path, evaluate_every_steps=7, evaluate_samples=20))
    assert (bounded.rule.samples, bounded.now) == (20, None)


@pytest.mark.parametrize(
    ("settings", "digest"),
    [({"best_by": "log_loss"}, ""), ({"evaluate_every_steps": 7, "evaluate_samples": 20}, ""), ({}, "3" * 64)],
)
def test_other_evaluations_count_anew(
    settings: dict[str, object], digest: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start = write(tmp_path, 100, standing=STANDING, evaluation_data=digest or SHARDS.digest("test"))
    with caplog.at_level(logging.INFO):
        assert start_judge(run_of(tmp_path, start, **settings)).now is None
    assert "evaluations up to step 100 were of other test rows, or compared by auc" in caplog.text


def test_an_auc_of_other_groups_counts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """So does one of the checkpoint's own step that is kept."""
    of_groups = replace(STANDING, measure="group_auc")
    facts = {"evaluation_data": SHARDS.digest("test"), "config": {"train": {"auc_group": "C1"}}}
    start = write(tmp_path / "all", 100, standing=of_groups, **facts)
    same = start_judge(run_of(tmp_path, start, best_by="group_auc", auc_group="C1"))
    assert same.now == of_groups
    assert start_judge(run_of(tmp_path, start, best_by="auc", auc_group="C2")).now is None
    caplog.clear()
    with caplog.at_level(logging.INFO):
        other = start_judge(run_of(tmp_path, start, best_by="group_auc", auc_group="C2"))
    assert other.now is None
    assert "compared by group_auc of C1 (train.best_by, train.auc_group): the best one" in caplog.text
    first = write(tmp_path / "first", 100, **facts)
    for group, now in (("C1", 0.8), ("C2", None)):
        run = run_of(tmp_path, first, best_by="group_auc", auc_group=group)
        kept = start_judge(replace(run, kept_evaluations=(replace(evaluation(0.7), group_auc=0.8),))).now
        assert (kept.best if kept else None) == now


def evaluation(auc: float, samples: int = 50) -> Evaluation:
    return Evaluation(samples, auc, 0.0, 0.5, 1.0, 1.0)


@pytest.mark.parametrize("standing", [STANDING, None])
def test_an_evaluation_of_the_checkpoints_step_counts_where_it_is_not_made_again(
    standing: Standing | None, tmp_path: Path
) -> None:
    """That of as many test rows; a checkpoint of that step would still be one before it."""
    start = write(tmp_path, 100, standing=standing, evaluation_data=SHARDS.digest("test"))
    run = replace(run_of(tmp_path, start), kept_evaluations=(evaluation(0.99, 40), evaluation(0.8)))
    judge = start_judge(run)
    assert judge.now is not None
    assert (judge.now.best_step, judge.now.best) == (100, 0.8)
    assert judge.before(100) == standing
    assert start_judge(replace(run, manifest=replace(SHARDS, test=()))).now is None  # of other test rows
    worse = start_judge(replace(run, kept_evaluations=(evaluation(0.7),))).now
    assert worse is not None
    assert (worse.best_step, worse.without_better) == ((40, 3) if standing else (100, 0))


def test_a_checkpoint_before_any_evaluation_has_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start = write(tmp_path, 100)
    with caplog.at_level(logging.INFO):
        assert start_judge(run_of(tmp_path, start)).now is None
    assert not caplog.text


def test_the_outcome_names_the_best_checkpoint_where_it_lies(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    start = write(other, 100)
    judge = Judge(Rule("auc", 50), STANDING)
    run = run_of(own, start)
    nothing = outcome(run, Judge(judge.rule), None)
    assert nothing == {"best": None, "stopped_early": None}
    found = {"step": 40, "measure": "auc", "value": 0.75, "samples": 50}
    assert best_of(judge) == Best(**found)  # type: ignore[arg-type]
    assert outcome(run, judge, None) == {"best": {**found, "directory": None}, "stopped_early": None}
    for output in (other, own):
        directory = str(write(output, 40))
        early = {"step": 70, "evaluations_without_better": 2}
        assert outcome(run, judge, 70) == {"best": {**found, "directory": directory}, "stopped_early": early}
    assert outcome(replace(run, start=None), judge, None)["best"]["directory"] == directory


def test_a_checkpoint_of_another_training_is_not_the_best(tmp_path: Path) -> None:
    """The run that wrote the start has gone on from there by itself."""
    start = write(tmp_path / "other", 30)
    write(tmp_path / "other", 40)
    judge = Judge(Rule("auc", 50), STANDING)
    assert outcome(run_of(tmp_path / "own", start), judge, None)["best"]["directory"] is None


def segment_of(step: int, *, is_judged: bool = True) -> Segment:
    kind = SegmentKind.EVALUATE if is_judged else SegmentKind.TRAIN
    steps = 0 if is_judged else 10
    return Segment(kind, 0, 0, steps or 3, step - steps, 100, 10, checkpoint=False, is_judged=is_judged)


NOTHING = SegmentEnd(saves=False, marks_best=False, outdoes_best=False)


def test_the_best_evaluation_is_kept_or_outdoes_the_one_that_was() -> None:
    judge = Judge(Rule("auc", 50), STANDING)
    judge.see(60, evaluation(0.8))
    best = segment_of(60)
    assert segment_end(best, judge, keep_best=True) == SegmentEnd(True, marks_best=True, outdoes_best=False)
    assert segment_end(best, judge, keep_best=False) == SegmentEnd(False, marks_best=False, outdoes_best=True)
    of_other_samples = replace(best, is_judged=False)
    assert segment_end(of_other_samples, judge, keep_best=True) == NOTHING
    judge.see(70, evaluation(0.75))
    assert segment_end(segment_of(70), judge, keep_best=True) == NOTHING


@pytest.mark.parametrize("keep_best", [False, True])
def test_a_segment_ends_with_a_checkpoint_where_one_is_due_or_the_run_ends(keep_best: bool) -> None:
    judge = Judge(Rule("auc", 50), STANDING)
    training = segment_of(60, is_judged=False)
    saves = NOTHING._replace(saves=True)
    assert segment_end(training, judge, keep_best=keep_best) == NOTHING
    assert segment_end(replace(training, checkpoint=True), judge, keep_best=keep_best) == saves
    assert segment_end(segment_of(60), judge, keep_best=keep_best, ends=True) == saves


def test_an_evaluation_that_was_not_made_is_not_the_best() -> None:
    """The one before was at the same step, as where a run is stopped between evaluations of a step."""
    judge = Judge(Rule("auc", 50), STANDING)
    judge.see(60, evaluation(0.8))
    assert segment_end(segment_of(60), judge, keep_best=True, stopped=True) == NOTHING._replace(saves=True)


def test_the_best_evaluation_may_be_the_last() -> None:
    """Where it is better, but not by as much as it has to be."""
    judge = Judge(Rule("auc", 50, patience=3, least_gain=0.5), STANDING)
    judge.see(60, evaluation(0.8))
    assert judge.has_lost_patience
    assert segment_end(segment_of(60), judge, keep_best=True, ends=True) == SegmentEnd(True, True, False)
    assert segment_end(segment_of(60), judge, keep_best=False, ends=True) == SegmentEnd(True, False, True)
