"""What programs in Python start: a run with a training loop of their own, under `mpirun` like any other."""

import os
import sys
from collections.abc import Sequence
from inspect import iscoroutinefunction, isgeneratorfunction
from pathlib import Path
from typing import TYPE_CHECKING

from bagpipe_hpc.cli.outcome import exit_code_of
from bagpipe_hpc.cli.runs.train import GO_ON, train_from_file

if TYPE_CHECKING:
    from bagpipe_hpc.step.slice_step import Loop


def train(loop: "Loop", config: str | os.PathLike[str], overrides: Sequence[str] = ()) -> int:
    """Train with a loop of one's own. Collective over: all ranks of the job, each of which calls it alike.

    On trainers, and in a one-rank run, `loop` is called once with a `Session`. It goes through the slices of all
    training batches and calls `backward` of each with a loss; what comes before and behind that, from fetching rows to
    updates, evaluations and checkpoints, is as in `bagpipe train`. The other ranks return when the run is over.

    Args:
        loop: trains. A process trains once: MPI does not start again.
        config: TOML file of the run. A model of the calling program is `model.name = "__main__:ItsClass"`.
        overrides: `section.field=value`, such as those of the command line.

    Returns:
        The exit code of this rank, for `sys.exit`: 0, or 2 where the run was refused, which is said on stderr. Where a
        rank fails, the call does not return: the job is aborted.

    Raises:
        TypeError: `loop` is no function that trains: what calling it gave, or one with `yield`, which does nothing.
    """
    if not callable(loop) or isgeneratorfunction(loop) or iscoroutinefunction(loop):
        raise TypeError(f"bagpipe_hpc.train: loop = {loop!r}: give it a plain function, uncalled and without yield")
    program = Path(sys.argv[0]).name or "bagpipe"
    return exit_code_of(lambda: train_from_file(Path(config), overrides, loop), program, lambda: GO_ON)
