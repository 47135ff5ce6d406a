"""`metrics.jsonl`: a JSON object a line, in the order in which things happened.

Long runs write millions of lines, so they are read one by one, and only what is needed of them is kept.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bagpipe_hpc.storage.atomic_write import atomic_write

METRICS_NAME = "metrics.jsonl"
SUMMARY_NAME = "summary.json"
_STEPS = 1 << 63
"""Steps stay below this: no run has so many."""
_SHOWN = 5
"""Most damaged lines whose numbers are shown."""

log = logging.getLogger(__name__)


class Metrics(NamedTuple):
    """What a metrics file holds.

    Attributes:
        events: in their order, as far as they were kept.
        damaged: numbers, from 1, of the lines that hold no event; a last line that was cut off in writing is not one.
    """

    events: list[dict[str, Any]]
    damaged: list[int]

    def tell_damage(self) -> str:
        """The damaged lines in words; empty if there are none."""
        if not self.damaged:
            return ""
        shown = ", ".join(map(str, self.damaged[:_SHOWN]))
        rest = f" and {len(self.damaged) - _SHOWN} more" if len(self.damaged) > _SHOWN else ""
        several = "lines" if len(self.damaged) > 1 else "line"
        return f"{several} {shown}{rest}: no event of a run, left out"


def read_metrics(path: Path, wanted: Callable[[dict[str, Any]], bool] | None = None) -> Metrics:
    """What a metrics file holds; nothing if it is absent.

    Args:
        path: the file.
        wanted: says which events to keep; all if it is not given.
    """
    damaged: list[int] = []
    return Metrics([event for event in each_event(path, damaged) if wanted is None or wanted(event)], damaged)


def each_event(path: Path, damaged: list[int]) -> Iterator[dict[str, Any]]:
    """The events of a metrics file, one after the other; none if it is absent.

    Args:
        path: the file.
        damaged: takes the numbers of the lines that hold none, as `Metrics` has them.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if (event := _event(line)) is not None:
                    yield event
                elif line.endswith("\n"):  # else it is the last one, whose end was not written
                    damaged.append(number)
    except FileNotFoundError:
        return


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_event = isinstance(event, dict) and isinstance(event.get("event"), str) and _is_step(event.get("step"))
    return event if is_event else None


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value < _STEPS


def is_made_again(event: dict[str, Any], samples: Collection[int]) -> bool:
    """Whether an event is an evaluation whose number of test rows is among `samples`, or is not said."""
    return event["event"] == "evaluation" and bool(samples) and event.get("samples") in (None, *samples)


def cut_metrics(path: Path, step: int, made_again: Collection[int]) -> None:
    """Keep the events of a run up to the checkpoint of a step, from which it goes on: it writes the later ones anew.

    Args:
        path: of the file.
        step: of the checkpoint.
        made_again: test rows of the evaluations at that step that the run makes again; they come after the checkpoint.
    """
    damaged: list[int] = []
    with atomic_write(path) as partial, partial.open("w", encoding="utf-8") as file:
        for event in each_event(path, damaged):
            if event["step"] < step or (event["step"] == step and not is_made_again(event, made_again)):
                file.write(json.dumps(event) + "\n")
    if damage := Metrics([], damaged).tell_damage():
        log.warning("%s: %s", path, damage)
