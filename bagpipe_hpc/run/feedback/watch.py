"""Shows a policy the weights of rows that it watches, between segments, and keeps what it makes of them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.planning.policy import Policy, Sight, WatchedRows
from bagpipe_hpc.planning.policy_choice import policy_class
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.policy_memory import SEEN_FOLDER, load_memory, memory_path, save_memory

_CURE = "copy the whole output folder again, or resume from an earlier checkpoint"


def watched_rows(run: Run) -> NDArray[np.int64]:
    """The rows that the policy watches, int64 `[n]`."""
    return _rows(_watched(run))


def require_seen(run: Run) -> None:
    """See that a run finds what policies kept of rows that they were shown, where it needs it.

    One that goes on needs what its own kept last before that, in the same epoch. One that replays another run needs
    what that kept last in each epoch.

    Raises:
        CheckpointError: what its own kept is missing or damaged.
        SettingError: the other run has kept nothing at a step.
    """
    _kept(run)
    watched, policy = _watched(run), run.config.policy
    folder = policy_class(policy.name).replays(policy.settings)
    if watched is None or not folder:
        return
    for segment in run.schedule:
        if not segment.shows_rows or segment.first_batch + segment.batches != watched.before[-1]:
            continue
        if not (path := memory_path(Path(folder), segment.last_step)).exists():
            cure = "name a run with the same data, batches and settings that has trained as far"
            raise SettingError("policy.replay", folder, f"{path} is missing, by which this run is to decide; {cure}")


class Watch:
    """Shows rows to a policy: on the oracle, and in the reference.

    Args:
        run: the run. Where it goes on from a checkpoint, the policy gets what it kept before that.
        policy: of the run.

    Raises:
        CheckpointError: what it kept is missing or damaged.
        OutputError: that cannot be written to the run's own output folder.
    """

    def __init__(self, run: Run, policy: Policy) -> None:
        self._run, self._policy = run, policy
        self._output = Path(run.config.train.output)
        self._watched = _watched(run)
        self.rows = _rows(self._watched)
        """The rows that it watches, int64 `[n]`."""
        if (kept := _kept(run)) is not None:
            path, arrays = kept
            self._restore(path, arrays)
            save_memory(self._output / SEEN_FOLDER / path.name, arrays)  # where it goes on from that of another folder

    def _restore(self, path: Path, arrays: dict[str, NDArray[Any]]) -> None:
        try:
            self._policy.restore(arrays)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}; {_CURE}") from error

    def see(self, segment: Segment, weights: NDArray[np.float32]) -> None:
        """Show the policy the weights of the rows, float32 `[n, D]`, at the end of a segment.

        Raises:
            OutputError: what it keeps of them cannot be written.
        """
        batch = segment.first_batch + segment.batches
        sight = Sight(segment.epoch, batch, segment.last_step, weights, partial(self._look_ups, segment))
        kept = self._policy.see(sight)
        assert self._watched is not None, "it is shown what it watches"
        save_memory(_path(self._output, self._watched, batch, segment.last_step), kept)

    def _look_ups(self, segment: Segment, batch: int) -> Bags:
        return next(self._run.batches(replace(segment, first_batch=batch, batches=1)))


def _watched(run: Run) -> WatchedRows | None:
    if not run.trains:
        return None
    policy = run.config.policy
    return policy_class(policy.name).watched(policy.settings, run.sample_orders.training)


def _rows(watched: WatchedRows | None) -> NDArray[np.int64]:
    return np.empty(0, dtype=np.int64) if watched is None else watched.rows


def _folder(run: Run) -> Path:
    """The output folder of the checkpoint that the run goes on from."""
    assert run.start is not None, "it goes on from a checkpoint"
    return run.start.output


def _path(output: Path, watched: WatchedRows, batch: int, step: int) -> Path:
    """Where that lies which the policy keeps when it is shown rows before a batch of an epoch, after a step."""
    following = [later for later in watched.before if later > batch]
    return memory_path(output, step, step + following[0] - batch if following else None)


def _kept(run: Run) -> tuple[Path, dict[str, NDArray[Any]]] | None:
    """What the policy kept before the checkpoint that the run goes on from, in the same epoch; and its place."""
    watched, next_one = _watched(run), next((one for one in run.schedule if one.is_training), None)
    if watched is None or run.start is None or next_one is None:
        return None
    before = [batch for batch in watched.before if batch <= next_one.first_batch]
    if not before:
        return None
    step = next_one.first_step - (next_one.first_batch - before[-1])
    path = _path(_folder(run), watched, before[-1], step)
    found = path if path.exists() else memory_path(_folder(run), step)  # older versions called all of them so
    if not found.exists():
        raise CheckpointError(
            f"{path}: is missing: what policy.name = {run.config.policy.name!r} keeps of the rows of step {step}; "
            f"{_CURE}"
        )
    return path, load_memory(found)
