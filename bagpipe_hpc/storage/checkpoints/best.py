"""Which checkpoint of a run is the best one: a small file in the folder of its checkpoints, replaced as a whole."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.checked_json import Count, load_json
from bagpipe_hpc.storage.output_errors import reason

log = logging.getLogger(__name__)

BEST_NAME = "best.json"
_MOST_BYTES = 1 << 16
_CURE = "remove the file: the next best evaluation of a run with train.keep_best writes it anew"


@dataclass(frozen=True)
class Best:
    """The checkpoint with the best evaluation so far.

    Attributes:
        step: its step.
        measure: name of the measure by which it is the best.
        value: what the evaluation gave for that measure.
        samples: test rows of the evaluation.
    """

    step: Count
    measure: str
    value: float
    samples: Count


def read_best(checkpoints: Path) -> Best | None:
    """Read which checkpoint is the best, from the folder of a run's checkpoints; None where none was named.

    Raises:
        CheckpointError: the file is malformed or cannot be read.
    """
    path = checkpoints / BEST_NAME
    try:
        return load_json(Best, path, _MOST_BYTES, CheckpointError, _CURE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); {_CURE}") from None


def write_best(checkpoints: Path, best: Best) -> None:
    """Name another checkpoint as the best; readers see the old file or the new one.

    Raises:
        CheckpointError: it cannot be written.
    """
    path = checkpoints / BEST_NAME
    try:
        with atomic_write(path) as partial:
            partial.write_text(json.dumps(asdict(best), allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written ({reason(error)}); check the free space") from error


def outdo_best(checkpoints: Path, best: Best, *, is_saved: bool) -> bool:
    """Take note of a better evaluation in a run that keeps no checkpoint for it (`train.keep_best=false`).

    Where a checkpoint is named as the best, an earlier run kept it. The checkpoint of the better evaluation takes its
    place, if that step has one; otherwise none is named from now on.

    Args:
        checkpoints: the folder of the run's checkpoints.
        best: the better one.
        is_saved: whether its step has a checkpoint, complete or in writing.

    Returns:
        Whether `best` is to be named once its checkpoint is complete.

    Raises:
        CheckpointError: the file is malformed or cannot be removed.
    """
    if (named := read_best(checkpoints)) is None:
        return False
    if is_saved:
        return True
    try:
        (checkpoints / BEST_NAME).unlink()
    except OSError as error:
        raise CheckpointError(f"{checkpoints / BEST_NAME}: cannot be removed ({reason(error)})") from error
    log.warning(
        "the evaluation after step %d is the best so far, but has no checkpoint (train.keep_best=false): the "
        "checkpoint of step %d is no longer named the best, and no other one is",
        best.step,
        named.step,
    )
    return False


def forget_best_after(checkpoints: Path, step: int) -> None:
    """Remove the file if it names a checkpoint after a step, from which a run goes on: later ones will be made anew.

    Raises:
        CheckpointError: the file is malformed.
    """
    best = read_best(checkpoints)
    if best is not None and best.step > step:
        (checkpoints / BEST_NAME).unlink()
