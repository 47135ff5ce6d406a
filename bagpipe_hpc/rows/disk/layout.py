"""How the rows of a server lie in a file, and how many of its blocks a given memory holds. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CapacityError

_MOST_UNITS = 16
_MOST_WASTE, _MOST_WASTE_BY_ONE = 0.1, 0.5
"""Most of a block that may be wasted at its end, where no further record fits. A block of a single record may waste
more: it can be written without being read first, and no unwanted neighbours are read with it."""
_FEWEST_FRAMES = 8

_BYTES_A_BLOCK = 15
"""What is kept about each block of the file, in memory or not: where it is, whether it was written, how many announced
uses it waits for, and how much of it a checkpoint has yet to read."""
_BYTES_A_FRAME = 32
"""What is kept about each frame besides the block in it."""
_FRAMES_A_SPARE = 16
_FEWEST_SPARES = 2


@dataclass(frozen=True)
class BlockLayout:
    """Rows in blocks: position k is record `k % rows_per_block` of block `k // rows_per_block`.

    Attributes:
        rows: of the server.
        record_bytes: of a row.
        block_bytes: of a block.
    """

    rows: int
    record_bytes: int
    block_bytes: int

    @classmethod
    def of(cls, rows: int, record_width: int, unit_bytes: int) -> "BlockLayout":
        """The layout of so many rows, in the smallest blocks that waste little.

        Args:
            rows: of the server.
            record_width: float32 numbers of a row's record.
            unit_bytes: direct reads and writes begin and end at multiples of it.
        """
        record_bytes = record_width * np.dtype(np.float32).itemsize
        least = -(-record_bytes // unit_bytes)
        sizes = [units * unit_bytes for units in range(least, max(least, _MOST_UNITS) + 1)]
        for block_bytes in sizes:
            waste = block_bytes % record_bytes / block_bytes
            if waste <= (_MOST_WASTE_BY_ONE if block_bytes < 2 * record_bytes else _MOST_WASTE):
                return cls(rows, record_bytes, block_bytes)
        return cls(rows, record_bytes, sizes[-1])

    @property
    def rows_per_block(self) -> int:
        """Records of a block."""
        return self.block_bytes // self.record_bytes

    @property
    def blocks(self) -> int:
        """Blocks of the file."""
        return -(-self.rows // self.rows_per_block)

    def rows_in(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of the rows are in each of some blocks: int64 `[n]` to int64 `[n]`."""
        return np.minimum(self.rows - blocks * self.rows_per_block, self.rows_per_block)

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self.blocks * self.block_bytes

    def frames_in(self, memory_bytes: int) -> int:
        """Number of blocks that fit in so much memory, with all that is kept about them and their `spares`.

        Raises:
            CapacityError: it is too small to work with.
        """
        if memory_bytes < self.least_bytes:
            raise CapacityError(
                f"tables.memory_gb: {memory_bytes / 1e9:.6f} GB for {self.rows} rows of {self.record_bytes} bytes on "
                f"one server is less than the {self.least_bytes / 1e9:.6f} GB that they take at the least; give more"
            )
        left = memory_bytes - self.blocks * _BYTES_A_BLOCK
        spare_bytes = self.block_bytes / _FRAMES_A_SPARE
        frames = int(left / (self.block_bytes + spare_bytes + _BYTES_A_FRAME))
        if spares(frames) == _FEWEST_SPARES:
            frames = (left - _FEWEST_SPARES * self.block_bytes) // (self.block_bytes + _BYTES_A_FRAME)
        return min(frames, self.blocks)

    @property
    def least_bytes(self) -> int:
        """The least memory that these rows take."""
        frames = min(_FEWEST_FRAMES, self.blocks)
        return self.bytes_with(frames)

    def bytes_with(self, frames: int) -> int:
        """The memory that these rows take with so many blocks of them in it, and its spares."""
        blocks = frames + spares(frames)
        return self.blocks * _BYTES_A_BLOCK + frames * _BYTES_A_FRAME + blocks * self.block_bytes


def spares(frames: int) -> int:
    """Number of blocks, besides so many frames, that can be kept as they were while a checkpoint is written."""
    return max(_FEWEST_SPARES, frames // _FRAMES_A_SPARE)
