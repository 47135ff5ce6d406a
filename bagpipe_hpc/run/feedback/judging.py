"""How a run's evaluations are compared, what follows from that at a segment's end, and what is said of the best one."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

from bagpipe_hpc.evaluation.standing import Judge, Rule
from bagpipe_hpc.plan.schedule import Segment, judged_samples
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.best import Best
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints, step_of

log = logging.getLogger(__name__)

GROUP_AUC = "group_auc"
"""The measure that depends on a setting more: by which feature test rows are grouped."""


def start_judge(run: Run) -> Judge:
    """What compares the evaluations of a run, with the standing of the checkpoint that it goes on from.

    Where evaluations are compared in another way than then, such as by an AUC of other groups, or are of other test
    rows, comparing starts anew. An evaluation of that step that is kept counts, too.
    """
    config = run.config.train
    samples = judged_samples(config, run.manifest.rows("test"))
    rule = Rule(config.best_by, samples, config.stop_after, config.stop_min_delta)
    manifest = run.start.manifest if run.start else None
    if manifest is None or not run.trains:
        return Judge(rule)
    group = manifest.config.get("train", {}).get("auc_group", "")
    of_these_groups = config.best_by != GROUP_AUC or group == config.auc_group
    compares = manifest.evaluation_data == run.manifest.digest("test") and of_these_groups
    if manifest.standing is None or (compares and rule.applies_to(manifest.standing)):
        judge = Judge(rule, manifest.standing)
        for evaluation in run.kept_evaluations if compares else ():
            if evaluation.samples == samples:
                judge.see(manifest.step, evaluation)
        return judge
    log.info(
        "evaluations up to step %d were of other test rows, or compared by %s: the best one, and how long none was "
        "better, count anew",
        manifest.step,
        _named(manifest.standing.measure, group),
    )
    return Judge(rule)


def _named(measure: str, group: str) -> str:
    """A measure that evaluations were compared by, with the settings that chose it."""
    if measure == GROUP_AUC:
        return f"{measure} of {group} (train.best_by, train.auc_group)"
    return f"{measure} (train.best_by)"


class SegmentEnd(NamedTuple):
    """What a run does of checkpoints when a segment has ended, in this order.

    Attributes:
        saves: it saves one, unless that step has one already.
        marks_best: it names that of the best evaluation, which is this one.
        outdoes_best: it keeps none for the best evaluation, which is this one; one that was kept is the best no more.
    """

    saves: bool
    marks_best: bool
    outdoes_best: bool


def segment_end(
    segment: Segment, judge: Judge, *, keep_best: bool, stopped: bool = False, ends: bool = False
) -> SegmentEnd:
    """What is to be done when a segment has ended.

    Args:
        segment: the one.
        judge: of the run's evaluations; has seen that of the segment, if it is one that is compared.
        keep_best: `train.keep_best`.
        stopped: whether the run was stopped before the segment, of which no batch is done.
        ends: whether the run ends behind the segment, for want of better evaluations.
    """
    is_best = segment.is_judged and not stopped and judge.is_best(segment.last_step)
    keeps_best = is_best and keep_best
    return SegmentEnd(
        saves=segment.checkpoint or stopped or ends or keeps_best,
        marks_best=keeps_best,
        outdoes_best=is_best and not keeps_best,
    )


def best_of(judge: Judge) -> Best:
    """What names the checkpoint of the best evaluation; there must have been one."""
    assert judge.now is not None, "an evaluation was compared"
    return Best(judge.now.best_step, judge.now.measure, judge.now.best, judge.now.samples)


def outcome(run: Run, judge: Judge, ended_early_at: int | None) -> dict[str, Any]:
    """What the summary says of the best evaluation, and of an end before the last step.

    The checkpoint of the best one is looked for in the output folder and in that of the checkpoint that this start
    went on from. It may lie elsewhere, as where an earlier start went on from another folder.

    Args:
        run: the run.
        judge: of its evaluations.
        ended_early_at: the step after which it ended for want of better evaluations; None where it did not.
    """
    if judge.now is None:
        return {"best": None, "stopped_early": None}
    best = best_of(judge)
    places = [Path(run.config.train.output)]
    if run.start and best.step <= run.start.manifest.step:  # what is behind that one there is of another training
        places.append(run.start.output)
    found = [path for place in places for path in find_checkpoints(place) if step_of(path) == best.step]
    early = {"step": ended_early_at, "evaluations_without_better": judge.now.without_better}
    return {
        "best": {**vars(best), "directory": str(found[0]) if found else None},
        "stopped_early": None if ended_early_at is None else early,
    }
