"""Stores of a few rows whose memory holds a part of them."""

import numpy as np
import pytest

from bagpipe_hpc.kernels.block_file import NativeBlockFile
from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.disk.block_file import OpenBlockFile, PlainBlockFile
from bagpipe_hpc.rows.disk.store import DiskStore

WIDTH = 50
"""Five records of 200 bytes in a block of 1024; a record of 400 bytes has a block of its own."""
ROWS = 233
FILES = pytest.mark.parametrize("open_file", [PlainBlockFile, NativeBlockFile])
MEMORY_BYTES = 15_500
"""For 12 of 47 blocks."""


def new_store(
    folder: str, open_file: OpenBlockFile = PlainBlockFile, memory_bytes: int = MEMORY_BYTES, width: int = WIDTH
) -> DiskStore:
    return DiskStore(ROWS, width, memory_bytes, folder, open_file, may_be_memory=True)


def records(count: int, seed: int, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def fill(store: DiskStore) -> np.ndarray:
    table = records(ROWS, 1)
    DiskRows(store)[:] = table
    return table
