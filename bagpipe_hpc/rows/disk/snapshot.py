"""Blocks as they were when a checkpoint began, for those that change before the checkpoint has read them."""

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.disk.block_file import Int64s
from bagpipe_hpc.rows.disk.layout import BlockLayout
from bagpipe_hpc.rows.disk.residency import Claim

_NOT_KEPT = -1
_AT_ONCE = 1 << 16


class Snapshot:
    """Keeps blocks that are about to change until all their rows have been read; under the store's lock.

    Args:
        layout: of the rows.
        spares: most blocks that are kept at a time.
        positions: rows that will be read, int64; None for all.
    """

    def __init__(self, layout: BlockLayout, spares: int, positions: Int64s | None = None) -> None:
        if positions is None:
            self._left = np.full(layout.blocks, layout.rows_per_block, dtype=np.int16)
            self._left[-1:] = layout.rows_in(np.asarray([layout.blocks - 1]))
        else:
            self._left = np.zeros(layout.blocks, dtype=np.int16)
            for first in range(0, len(positions), _AT_ONCE):  # counted in place, in pieces: takes little memory
                np.add.at(self._left, positions[first : first + _AT_ONCE] // layout.rows_per_block, 1)
        self._kept_at = np.full(layout.blocks, _NOT_KEPT, dtype=np.int32)
        self._kept = np.empty((spares, layout.rows_per_block), dtype=np.dtype((np.void, layout.record_bytes)))
        self._free = np.arange(spares, dtype=np.int32)

    def has_room(self, blocks: Int64s) -> bool:
        """Whether these distinct blocks, int64 `[n]`, could all be kept now."""
        return int(np.count_nonzero(self._must_keep(blocks))) <= self._free.size

    def keep(self, claim: Claim, records: NDArray[np.void]) -> bool:
        """Copy blocks that are about to change, where rows of them are still to be read.

        Args:
            claim: the blocks, which are in their frames.
            records: of all frames, `[frames, rows_per_block]`.

        Returns:
            Whether there was room for all that had to be copied; if not, nothing may change yet.
        """
        must_keep = self._must_keep(claim.blocks)
        blocks = claim.blocks[must_keep]
        if blocks.size > self._free.size:
            return False
        spare, self._free = self._free[: blocks.size], self._free[blocks.size :]
        self._kept[spare] = records[claim.frames[must_keep]]
        self._kept_at[blocks] = spare
        return True

    def read(self, blocks: Int64s, offsets: Int64s, into: NDArray[np.void]) -> None:
        """Replace rows that have changed by what they were, and note that all these rows have been read.

        Args:
            blocks: of each row, int64 `[n]`.
            offsets: of each row within its block, int64 `[n]`.
            into: the rows as they are now, an item each, `[n]`; changed in place.
        """
        kept_at = self._kept_at[blocks]
        is_kept = kept_at != _NOT_KEPT
        into[is_kept] = self._kept[kept_at[is_kept], offsets[is_kept]]
        read, counts = np.unique(blocks, return_counts=True)
        self._left[read] -= counts.astype(np.int16)
        over = read[(self._left[read] <= 0) & (self._kept_at[read] != _NOT_KEPT)]
        self._free = np.concatenate((self._free, self._kept_at[over]))
        self._kept_at[over] = _NOT_KEPT

    def _must_keep(self, blocks: Int64s) -> NDArray[np.bool_]:
        must_keep: NDArray[np.bool_] = (self._left[blocks] > 0) & (self._kept_at[blocks] == _NOT_KEPT)
        return must_keep
