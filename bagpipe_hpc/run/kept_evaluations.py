"""Evaluations of a checkpoint's own step that a run which goes on from it does not make once more.

A checkpoint knows of the evaluations before its step. Where the run goes on in the same way, the one after that step is
made again. Where the run is longer now, evaluates at other steps or trains on later rows, none may be due there: then
that of the run so far stays, if it stands in the output folder.
"""

from contextlib import suppress
from dataclasses import fields
from pathlib import Path

from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.run.output_folder import is_own_checkpoint
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, read_metrics


def find_kept(run: Run) -> tuple[Evaluation, ...]:
    """What the run's own metrics tell of them, in their order; read before these are cut."""
    if run.start is None or run.evaluates_first or not is_own_checkpoint(run.config, run.start):
        return ()
    found = []
    for event in read_metrics(Path(run.config.train.output) / METRICS_NAME).events:
        if event["event"] == "evaluation" and event["step"] == run.steps_done:
            with suppress(KeyError):  # of another version
                found.append(Evaluation(**{field.name: event[field.name] for field in fields(Evaluation)}))
    return tuple(found)
