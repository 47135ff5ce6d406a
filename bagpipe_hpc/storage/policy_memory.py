"""What a policy keeps of the rows that it was shown, in the output folder: a file for each time, by the step.

HDF5 files `policy/step-NNNNNNNN.h5` with a dataset for each array.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.output_errors import writing
from bagpipe_hpc.storage.plain_hdf5 import errors_name, open_plain, plain_dataset

SEEN_FOLDER = "policy"


def memory_path(output: Path, step: int) -> Path:
    """Where that of a step lies in an output folder."""
    return output / SEEN_FOLDER / f"step-{step:08d}.h5"


def save_memory(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the file, whole or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as partial, create_hdf5(partial) as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, track_times=False)


def load_memory(path: Path) -> dict[str, NDArray[Any]]:
    """Read the file.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    with open_plain(path) as file:
        with errors_name(path):
            names = [name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
        return {name: np.asarray(plain_dataset(file, name)[()]) for name in names}
