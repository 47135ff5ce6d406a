"""Where a run goes on: the checkpoint that `train.resume` asks for, and whether it fits the run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.run.output.folder import AUTO
from bagpipe_hpc.run.start.resumed_settings import require_same_training
from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint, load_checkpoint
from bagpipe_hpc.storage.checkpoints.finite_files import require_finite
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from bagpipe_hpc.storage.exported import ExportedModel
from bagpipe_hpc.storage.shards.manifest import ShardManifest

log = logging.getLogger(__name__)


def find_start(config: Config, shards: ShardManifest) -> Checkpoint | None:
    """The checkpoint that the run goes on from; None if it starts anew.

    Its files are there with their sizes; `verify_share` compares their contents.

    Raises:
        CheckpointError: there is none, it is damaged, or it is of another training.
    """
    resume = config.train.resume
    if not resume:
        return None
    output = Path(config.train.output)
    if resume == AUTO and not find_checkpoints(output):
        log.info("no complete checkpoint in %s: training starts anew", output)
        return None
    path = output if resume == AUTO else Path(resume)
    newest = find_checkpoints(path)
    with _offering(newest[-1] if newest else path):
        checkpoint = load_checkpoint(path)
        checkpoint.verify(quick=True)
    require_same_training(checkpoint, config, shards)
    log.info("going on after step %d: %s", checkpoint.manifest.step, checkpoint.directory)
    return checkpoint


def verify_share(checkpoint: Checkpoint | ExportedModel, part: int, parts: int) -> None:
    """Check one of `parts` shares of a checkpoint's files: digests, what the row files say they hold, finite numbers.

    What passes can be read to its end, so that no damage shows later, after other ranks have begun.

    Args:
        checkpoint: what the run begins with.
        part: number of the share.
        parts: number of shares.

    Raises:
        CheckpointError: a file is damaged, or holds NaN or infinity.
    """
    if isinstance(checkpoint, ExportedModel):
        for file in checkpoint.files[part::parts]:
            checkpoint.verify_file(file)
            checkpoint.require_finite(file)
        return
    share = checkpoint.files()[part::parts]
    for layer, info in share:
        with _offering(checkpoint.directory, layer.directory):
            layer.verify_file(info)
    for group in range(len(checkpoint.manifest.groups)):
        with _offering(checkpoint.directory, checkpoint.directory), checkpoint.open_rows(group) as rows:
            rows.check_rows(part, parts)
    for layer, info in share:
        with _offering(checkpoint.directory, layer.directory):
            require_finite(layer.directory, layer.manifest, info)


@contextmanager
def _offering(directory: Path, damaged: Path | None = None) -> Iterator[None]:
    """Name a checkpoint before `directory` in the error of one that is damaged.

    Args:
        directory: the checkpoint.
        damaged: where the damaged file lies, if that is known: what builds on it is no cure.
    """
    try:
        yield
    except CheckpointError as error:
        found = find_checkpoints(directory.parent.parent)
        earlier = found[: found.index(directory)] if directory in found else []
        cure = next((path for path in reversed(earlier) if _seems_whole(path, damaged)), None)
        if cure is None:
            raise
        raise CheckpointError(f"{error}. A checkpoint before it: train.resume={cure}") from error


def _seems_whole(directory: Path, damaged: Path | None) -> bool:
    """Whether a checkpoint has all its files with their sizes, none of them in the folder `damaged`."""
    try:
        checkpoint = load_checkpoint(directory)
        checkpoint.verify(quick=True)
        return damaged not in [layer.directory for layer in checkpoint.layers()]
    except CheckpointError:
        return False
