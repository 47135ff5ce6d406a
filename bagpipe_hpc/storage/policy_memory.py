"""What a policy keeps of the rows that it was shown: a file in the output folder each time, named after the step.

HDF5 files with a dataset for each array:

    OUTPUT/policy/step-00000700-to-00000900.h5    needed by checkpoints from step 700 to before step 900
    OUTPUT/policy/step-00000900.h5                the last of an epoch: it stays, as other runs may replay it
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints, step_of
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.output_errors import writing
from bagpipe_hpc.storage.plain_hdf5 import errors_name, open_plain, plain_dataset

SEEN_FOLDER = "policy"
_PASSING = re.compile(r"step-(\d{8,18})-to-(\d{8,18})\.h5", re.ASCII)


def memory_path(output: Path, step: int, until: int | None = None) -> Path:
    """Path of the file of a step in an output folder.

    Args:
        output: the folder.
        step: steps done when the policy was shown the rows.
        until: the step at which it is next shown rows in the same epoch; None if it is not.
    """
    passing = "" if until is None else f"-to-{until:08d}"
    return output / SEEN_FOLDER / f"step-{step:08d}{passing}.h5"


def save_memory(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays, by name, to a file, whole or not at all.

    Raises:
        OutputError: the file cannot be written.
    """
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as partial, create_hdf5(partial) as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, track_times=False)


def load_memory(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a file, by name.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    with open_plain(path) as file:
        with errors_name(path):
            names = [name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
        return {name: np.asarray(plain_dataset(file, name)[()]) for name in names}


def remove_unwanted_memories(output: Path) -> None:
    """Remove the files that neither a complete checkpoint of the output folder needs nor one that is still to come.

    Called after each new checkpoint, while no other is being written. Checkpoints to come are of later steps than the
    newest one. So a file that is needed up to that step at most is needed only by checkpoints that are already there.
    """
    folder = output / SEEN_FOLDER
    if not folder.is_dir():
        return
    steps = [step_of(path) for path in find_checkpoints(output)]
    for path in folder.iterdir():
        if (name := _PASSING.fullmatch(path.name)) is None:
            continue
        first, until = int(name[1]), int(name[2])
        if until <= max(steps, default=0) and not any(first <= step < until for step in steps):
            with suppress(OSError):  # what cannot be removed ends no run
                path.unlink()
