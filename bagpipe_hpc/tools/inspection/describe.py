"""Says in plain text what a folder of this program holds."""

from dataclasses import replace
from pathlib import Path

from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.storage.checkpoints.best import read_best
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import CHECKPOINTS_FOLDER, checkpoint_step, find_checkpoints, is_checkpoint
from bagpipe_hpc.storage.exported import is_exported
from bagpipe_hpc.storage.shards.manifest import MANIFEST_NAME, UNFINISHED_NAME, load_manifest
from bagpipe_hpc.tools.inspection.checkpoint_text import describe_checkpoint
from bagpipe_hpc.tools.inspection.description import Description
from bagpipe_hpc.tools.inspection.shard_text import describe_shards


def describe(path: Path, verify: bool = False) -> Description:
    """Describe a shard directory, a checkpoint, or the newest checkpoint of a run's output folder.

    Damaged files are part of the description, not an error: `Description.faults` names them.

    Args:
        path: a folder of this program.
        verify: read every file and check its SHA-256, and for a checkpoint summarise the weights of each table; else
            presence and sizes are checked only.

    Raises:
        BagpipeError: the path is none of these, or its manifest is malformed.
    """
    if is_checkpoint(path):
        return describe_checkpoint(load_checkpoint(path), verify)
    if (path / CHECKPOINTS_FOLDER).is_dir():
        newest = describe_checkpoint(load_checkpoint(path), verify)
        steps = ", ".join(str(checkpoint_step(found)) for found in find_checkpoints(path))
        text = f"{path}: complete checkpoints of steps {steps}{_best(path)}; the newest:\n\n{newest.text}"
        return replace(newest, text=text)
    if is_exported(path):
        raise BagpipeError(
            f"{path}: is an exported model, which its README.md describes; name the checkpoint that it was made of"
        )
    if (path / MANIFEST_NAME).is_file() or (path / UNFINISHED_NAME).is_file():
        return describe_shards(path, load_manifest(path), verify)
    problem = "holds neither shards nor a checkpoint" if path.is_dir() else "is no folder"
    raise BagpipeError(
        f"{path}: {problem}; name a folder that bagpipe prepare has written, a run's output folder, or a "
        f"checkpoint such as OUTPUT/{CHECKPOINTS_FOLDER}/step-00000100"
    )


def _best(output: Path) -> str:
    """Which checkpoint of an output folder is the best one, if it says so."""
    best = read_best(output / CHECKPOINTS_FOLDER)
    if best is None:
        return ""
    return f"; the best is that of step {best.step} ({best.measure} {best.value:.5f} on {best.samples} test rows)"
