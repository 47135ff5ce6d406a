"""Which checkpoint is scored."""

from pathlib import Path

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checkpoints.best import BEST_NAME, read_best
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import CHECKPOINTS_FOLDER, checkpoint_name, find_checkpoints, step_of


def choose_checkpoint(path: Path, *, best: bool = False) -> Checkpoint:
    """Open a checkpoint.

    Args:
        path: a checkpoint's folder, or a run's output folder for its newest one.
        best: `path` is an output folder; take its best checkpoint.

    Raises:
        CheckpointError: there is none, it is incomplete, or none is named the best.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: is absent; name a checkpoint, or the output folder of a run")
    if not best:
        return load_checkpoint(path)
    checkpoints = path / CHECKPOINTS_FOLDER
    named = read_best(checkpoints) if checkpoints.is_dir() else None
    if named is None:
        raise CheckpointError(
            f"{checkpoints / BEST_NAME}: is absent, so nobody has said which is the best; leave out --best, name a "
            "checkpoint, or train with train.keep_best=true"
        )
    found = {step_of(directory): directory for directory in find_checkpoints(path)}
    return load_checkpoint(found.get(named.step, checkpoints / checkpoint_name(named.step)))
