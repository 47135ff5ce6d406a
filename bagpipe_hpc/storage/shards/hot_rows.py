"""Hot rows: the most frequent rows of all tables together, and which training samples look up nothing else.

An HDF5 file beside the shards: `rows` int64 `[H]`, ascending; `samples` uint8, a bit for each training
sample, the first one in the highest bit. Attributes say which training rows it describes and how it was made.

Legend: `H` hot rows, `n` training samples.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.hdf5_attributes import plain_attribute, set_text
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.shards.shard_file import errors_name

_FORMAT = 1
_NUMBERS = ("total_rows", "budget_rows", "sample_percent", "seed", "sample_count", "hot_samples")
_AGAIN = "remove it, and it is made anew"
_AT_ONCE = 1 << 24
"""Bytes of bits that are counted together: Criteo's Terabyte data have 520 MB of them."""


@dataclass(frozen=True, eq=False)
class HotRows:
    """A profile of training rows.

    Attributes:
        training_data: digest of the training shards (`ShardManifest.digest`).
        total_rows: rows of all tables.
        budget_rows: most hot rows that were asked for.
        sample_percent: share of the training samples whose look-ups were counted, in percent.
        seed: by which the counted samples were drawn.
        sample_count: training samples n.
        rows: the hot rows, numbered through all tables, ascending, int64 `[H]`.
        samples: whether each training sample is hot, which means that it looks up hot rows alone; packed bits, uint8
            `[ceil(n / 8)]`.
    """

    training_data: str
    total_rows: int
    budget_rows: int
    sample_percent: float
    seed: int
    sample_count: int
    rows: NDArray[np.int64]
    samples: NDArray[np.uint8]

    @property
    def hot_samples(self) -> int:
        """Number of hot samples."""
        return _ones(self.samples)

    def are_hot(self, first: int, last: int) -> NDArray[np.bool_]:
        """Whether samples `first` up to `last` are hot, bool `[last - first]`."""
        begin = first // 8
        bits = np.unpackbits(self.samples[begin : -(-last // 8)])
        return bits[first - 8 * begin : last - 8 * begin].astype(np.bool_)

    def __str__(self) -> str:
        """How many rows and samples are hot, for people."""
        share = 100 * self.hot_samples / max(1, self.sample_count)
        return (
            f"{self.rows.size} of {self.total_rows} rows are hot, and {self.hot_samples} of {self.sample_count} "
            f"training samples ({share:.1f} %), which look up no other row"
        )

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all; the same bytes for the same profile.

        Raises:
            OSError: the system refuses.
        """
        with atomic_write(path) as partial, create_hdf5(partial) as file:
            file.attrs["format"] = _FORMAT
            set_text(file, "training_data", self.training_data)
            for name in _NUMBERS:
                file.attrs[name] = getattr(self, name)
            file.create_dataset("rows", data=self.rows, track_times=False)
            file.create_dataset("samples", data=self.samples, track_times=False)


def load_hot_rows(path: Path) -> HotRows:
    """Read a profile; as long as the file does not change, it is read once.

    Raises:
        DataError: it is missing or damaged.
    """
    if not path.is_file():
        raise DataError(
            f"{path}: there is no profile of hot rows; all ranks must see the oracle's data.path (or policy.profile)"
        )
    about = path.stat()
    return _load(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=2)
def _load(path: Path, _changed_ns: int, _bytes: int) -> HotRows:
    with errors_name(path), h5py.File(path, "r", locking=False) as file:
        found = {name: plain_attribute(file, name) for name in ("format", "training_data", *_NUMBERS)}
        rows, samples = (file[name][:] if _is_plain(file, name) else None for name in ("rows", "samples"))
    problem = _problem(found, rows, samples)
    if problem or rows is None or samples is None:
        raise DataError(f"{path}: is no profile of hot rows of this program ({problem}); {_AGAIN}")
    return HotRows(
        training_data=str(found["training_data"]),
        total_rows=int(found["total_rows"]),
        budget_rows=int(found["budget_rows"]),
        sample_percent=float(found["sample_percent"]),
        seed=int(found["seed"]),
        sample_count=int(found["sample_count"]),
        rows=rows,
        samples=samples,
    )


def _ones(bits: NDArray[np.uint8]) -> int:
    """How many of packed bits are set."""
    return sum(int(np.bitwise_count(bits[first : first + _AT_ONCE]).sum()) for first in range(0, bits.size, _AT_ONCE))


def _is_plain(file: h5py.File, name: str) -> bool:
    """Whether the file itself holds all of a list of numbers, so that reading it takes no more memory than the file."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink) or not isinstance(file[name], h5py.Dataset):
        return False
    dataset = file[name]
    return dataset.ndim == 1 and dataset.chunks is None and dataset.id.get_storage_size() == dataset.nbytes


def _problem(found: dict[str, Any], rows: NDArray[Any] | None, samples: NDArray[Any] | None) -> str:
    """What keeps a file from being a profile; empty if nothing does."""
    if not isinstance(number := found.get("format"), np.integer) or number != _FORMAT:
        return f"format = {found.get('format')!r:.80}"
    for name in _NUMBERS:
        if not isinstance(value := found.get(name), np.integer | np.floating) or not 0 <= value < 1 << 62:
            return f"{name} = {value!r:.80}"
    if not isinstance(digest := found.get("training_data"), str):
        return f"training_data = {digest!r:.80}"
    total_rows, count = int(found["total_rows"]), int(found["sample_count"])
    if rows is None or rows.dtype != np.int64 or samples is None or samples.dtype != np.uint8:
        return "rows or samples are not stored in it"
    if rows.size and not (rows[0] >= 0 and rows[-1] < total_rows and (np.diff(rows) > 0).all()):
        return f"rows do not ascend from 0 to below {total_rows}"
    if samples.size != -(-count // 8):
        return f"{samples.size} bytes of bits for {count} samples"
    if _ones(samples) != found["hot_samples"]:
        return f"not {found['hot_samples']} samples are hot"
    return ""
