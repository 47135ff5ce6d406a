"""How the rows of a server lie in a file, and how many of its blocks a given memory holds. Pure."""

from dataclasses import dataclass

import numpy as np

from bagpipe_hpc.errors import CapacityError

PAGE_BYTES = 4096
"""Direct reads and writes begin and end at multiples of it, in the file and in memory, on any disk."""
_MOST_PAGES = 16
_MOST_WASTE = 0.1
"""Of a block, at its end, where no further record fits."""
_FEWEST_FRAMES = 8

_BYTES_A_BLOCK = 15
"""What is kept of each block of the file, in memory or not: where it is, whether it was written, who waits for it, and
of a checkpoint under way, what is left of it."""
_BYTES_A_FRAME = 32
"""What is kept of each frame besides its block."""
_FRAMES_A_SPARE = 16
_FEWEST_SPARES = 2


@dataclass(frozen=True)
class BlockLayout:
    """Rows in blocks: position k is record `k % rows_per_block` of block `k // rows_per_block`.

    Attributes:
        rows: of the server.
        record_bytes: of a row.
        pages: of a block; a read of a few neighbouring pages takes a disk hardly longer than that of one.
    """

    rows: int
    record_bytes: int
    pages: int

    @classmethod
    def of(cls, rows: int, record_width: int) -> "BlockLayout":
        """The layout of so many rows, in the smallest blocks that waste little.

        Args:
            rows: of the server.
            record_width: float32 numbers of a row's record.
        """
        record_bytes = record_width * np.dtype(np.float32).itemsize
        least = -(-record_bytes // PAGE_BYTES)
        for pages in range(least, max(least, _MOST_PAGES) + 1):
            block_bytes = pages * PAGE_BYTES
            if block_bytes % record_bytes <= _MOST_WASTE * block_bytes:
                return cls(rows, record_bytes, pages)
        return cls(rows, record_bytes, max(least, _MOST_PAGES))

    @property
    def block_bytes(self) -> int:
        """Size of a block."""
        return self.pages * PAGE_BYTES

    @property
    def rows_per_block(self) -> int:
        """Records of a block."""
        return self.block_bytes // self.record_bytes

    @property
    def blocks(self) -> int:
        """Blocks of the file."""
        return -(-self.rows // self.rows_per_block)

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        return self.blocks * self.block_bytes

    def frames_in(self, memory_bytes: int) -> int:
        """Blocks that so much memory holds, with all that is kept of them, and `spares` besides.

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
    """Blocks that may be kept as they were while a checkpoint is written, besides so many frames."""
    return max(_FEWEST_SPARES, frames // _FRAMES_A_SPARE)
