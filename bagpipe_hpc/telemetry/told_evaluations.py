"""The evaluations in a metrics file, as far as they have what a summary needs of them."""

import logging
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any

from bagpipe_hpc.evaluation.click_evaluation import Evaluation
from bagpipe_hpc.telemetry.metrics_file import read_metrics

log = logging.getLogger(__name__)


def told_evaluations(path: Path) -> Iterator[dict[str, Any]]:
    """The events of evaluations in a metrics file, in their order; one that lacks a number is logged and left out.

    Args:
        path: the metrics file; without it there are none.
    """
    for event in read_metrics(path, lambda event: event["event"] == "evaluation").events:
        try:
            require_evaluations(event)
        except ValueError as error:
            log.warning("%s: the evaluation of step %d is left out of the summary: %s", path, event["step"], error)
        else:
            yield event


def require_evaluations(event: dict[str, Any]) -> None:
    """Check that an event has the measures of an `Evaluation`, and so has each of its further labels.

    Raises:
        ValueError: one is not there, or no number.
    """
    _require_measures("it", event)
    further = event.get("further_labels", {})
    if not isinstance(further, dict):
        raise ValueError(f"its further_labels are {further!r:.80}")
    for name, measures in further.items():
        _require_measures(f"label {name!r:.80}", measures)


def _require_measures(what: str, measures: Any) -> None:
    """Check that all measures are numbers; those without a meaning are null."""
    if not isinstance(measures, dict):
        raise ValueError(f"{what} has no measures but {measures!r:.80}")
    for field in fields(Evaluation):
        if field.name not in measures and field.default is MISSING:
            raise ValueError(f"{what} has no {field.name}")
        value = measures.get(field.name, field.default)
        if type(value) not in ((int,) if field.name == "samples" else (int, float, NoneType)):
            raise ValueError(f"{what} has {field.name} = {value!r:.80}")
