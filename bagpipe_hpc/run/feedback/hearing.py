"""The evaluations by which a policy orders the samples that are left, as they come: on each rank that reads samples."""

import logging
import math
from dataclasses import replace
from pathlib import Path

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.plan.schedule import Segment
from bagpipe_hpc.planning.policy_choice import policy_class
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint

log = logging.getLogger(__name__)


class Hearing:
    """What a run has heard so far.

    Args:
        run: the run; what its first segment has heard was before it.
        speaks: whether it says what is decided.
    """

    def __init__(self, run: Run, *, speaks: bool = False) -> None:
        self._run, self._speaks = run, speaks
        self._replayed = {one.place: one for one in run.replayed}
        self.now = run.schedule[0].heard if run.schedule else ()
        """The evaluations, in their order."""

    def told(self, segment: Segment) -> Segment:
        """The segment, which comes next, with what was heard before it."""
        return segment if segment.heard == self.now else replace(segment, heard=self.now)

    def hear(self, segment: Segment, log_loss: float) -> None:
        """Take in an evaluation; where the run replays another one, that one's. It counts if its loss is finite.

        Args:
            segment: with that evaluation.
            log_loss: that was found.
        """
        own = Heard(*place_of(self._run, segment), log_loss)
        one = self._replayed[own.place] if self._replayed else own
        if not math.isfinite(one.log_loss):
            return
        self.now = (*(before for before in self.now if before.place < one.place), one)
        if not self._speaks:
            return
        policy, training = self._run.config.policy, replace(self._run.sample_orders.training, heard=self.now)
        if decision := policy_class(policy.name).decision(policy.settings, training):
            log.info("policy.name: behind step %d: %s", segment.last_step, decision)


def place_of(run: Run, segment: Segment) -> tuple[int, int]:
    """Where an evaluation is in a run: its epoch, and batches of that, from 1."""
    batches = -(-run.manifest.rows("train") // run.config.train.batch_size)
    return segment.epoch, segment.last_step - run.data_step - segment.epoch * batches


def as_replayed(run: Run) -> Run:
    """A run that is planned without being trained, in the order of the run that it replays, if it does.

    Returns:
        The run, whose segments have heard what that one had before each of them, and decide nothing more.
    """
    if not run.replayed:
        return run
    hearing, told = Hearing(run), []
    for segment in run.schedule:
        told.append(replace(hearing.told(segment), is_heard=False))
        if segment.is_heard:
            hearing.hear(segment, math.nan)  # the other run's counts
    return replace(run, schedule=tuple(told))


def find_replayed(run: Run) -> tuple[Heard, ...]:
    """The evaluations of the run that this one replays, by its newest checkpoint; none where it hears its own.

    Raises:
        CheckpointError: there is none.
        SettingError: it is of other samples, or lacks an evaluation.
    """
    policy = run.config.policy
    folder = policy_class(policy.name).replays(policy.settings)
    wanted = [place_of(run, segment) for segment in run.schedule if segment.is_heard]
    if not folder or not wanted:
        return ()
    checkpoint = load_checkpoint(Path(folder))
    manifest, problem = checkpoint.manifest, ""
    if manifest.training_data != run.manifest.digest("train"):
        problem = "is of other training rows"
    elif manifest.batch_size != run.config.train.batch_size:
        problem = f"has train.batch_size = {manifest.batch_size}, and this run {run.config.train.batch_size}"
    elif missing := [place for place in wanted if place not in {one.place for one in manifest.heard}]:
        epoch, batch = missing[0]
        problem = f"has heard no evaluation behind batch {batch} of epoch {epoch}"
    if problem:
        cure = f"{checkpoint.directory} {problem}; name a run with the same data, batches and evaluations"
        raise SettingError("policy.replay", folder, cure)
    return manifest.heard
