"""Evaluations of a checkpoint's own step that a run which goes on from it does not make once more.

A checkpoint knows of the evaluations before its step. Where the run goes on in the same way, the one after that step is
made again. Where the run is longer now, evaluates at other steps or trains on later rows, none may be due there, or one
on fewer test rows: then that of the run so far stays, if it stands in the output folder.
"""

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.run.output.folder import is_own_checkpoint
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, is_made_again, read_metrics
from bagpipe_hpc.telemetry.told_evaluations import require_evaluations

log = logging.getLogger(__name__)

_MEASURES = tuple(field.name for field in fields(Evaluation))


def find_kept(run: Run) -> tuple[Evaluation, ...]:
    """What the run's own metrics tell of them, in their order; read before these are cut."""
    if run.start is None or not is_own_checkpoint(run.config, run.start):
        return ()
    path, found, made_again = Path(run.config.train.output) / METRICS_NAME, [], run.evaluated_first

    def stays(event: dict[str, Any]) -> bool:
        is_of_step = event["event"] == "evaluation" and event["step"] == run.steps_done
        return is_of_step and not is_made_again(event, made_again)

    for event in read_metrics(path, stays).events:
        try:
            require_evaluations(event)
        except ValueError as error:
            log.warning("%s: the evaluation of step %d is not compared: %s", path, run.steps_done, error)
            continue
        found.append(Evaluation(**{name: event[name] for name in _MEASURES if name in event}))
    return tuple(found)
