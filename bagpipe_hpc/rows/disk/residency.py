"""Which blocks of a file are in which frames of memory, and which of them has to go. Pure bookkeeping.

Frames whose blocks nobody uses are given to other blocks in this order: first those of blocks that are not likely to be
used again; then those of other blocks that nobody has announced, the longest unused first; last those of announced
blocks, the latest announced first.

Legend: `n` distinct blocks of one call.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.rows.disk.block_file import NO_BLOCK, Int64s

_NO_FRAME = -1
_SOUGHT_SHARE, _FEWEST_SOUGHT = 16, 1024
"""A search for frames that may go looks at a share of all, one in `_SOUGHT_SHARE`, or at `_FEWEST_SOUGHT`, and takes
the older half. So the cost of a frame does not depend on how many there are; a stricter order would gain little."""


@dataclass(frozen=True)
class Claim:
    """Blocks that are in frames, or will be once the moves are done; they stay until they are released.

    Attributes:
        blocks: int64 `[n]`.
        frames: of each, int64 `[n]`.
        moved: those of the frames that must be moved first, int64 `[m]`.
        written: blocks to which `moved` frames are written before they get their own, int64 `[m]`; `NO_BLOCK` for none.
        read: blocks that are read into `moved` frames, int64 `[m]`, as for `BlockFile.submit`.
    """

    blocks: Int64s
    frames: Int64s
    moved: Int64s
    written: Int64s
    read: Int64s


class Residency:
    """Blocks in frames. A block that was never written holds zeros.

    Args:
        blocks: of the file.
        frames: of the memory.
    """

    def __init__(self, blocks: int, frames: int) -> None:
        self.frames = frames
        self._frame_of = np.full(blocks, _NO_FRAME, dtype=np.int32)
        self._is_written = np.zeros(blocks, dtype=np.bool_)
        self._promised = np.zeros(blocks, dtype=np.int32)  # hundreds of trainers may announce a block
        self._block_of = np.full(frames, NO_BLOCK, dtype=np.int64)
        self._last_use = np.zeros(frames, dtype=np.int64)
        self._filled_by = np.zeros(frames, dtype=np.int64)
        self._users = np.zeros(frames, dtype=np.int32)
        self._is_changed = np.zeros(frames, dtype=np.bool_)
        self._now = 0
        self._fresh = 0
        self._sought = 0
        self._old, self._old_use = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)

    def claim(
        self, blocks: Int64s, done: int, *, stays: bool = True, is_whole: NDArray[np.bool_] | None = None
    ) -> Claim | None:
        """Give each block a frame, which it keeps until it is released.

        Args:
            blocks: distinct, int64 `[n]`.
            done: number of the last job that is done; frames of later jobs are left alone.
            is_whole: blocks that will be overwritten from end to end, bool `[n]`, and so are not read; None for none.
            stays: whether the blocks are likely to be used again; frames of others are the first to go.

        Returns:
            The claim; None if too many frames are in use.
        """
        frames = self._frame_of[blocks].astype(np.int64)
        is_here = frames != _NO_FRAME
        self._users[frames[is_here]] += 1
        absent = blocks[~is_here]
        taken = self._take(absent.size, done)
        if taken is None:
            self._users[frames[is_here]] -= 1
            return None
        left = self._block_of[taken]
        written = np.where(self._is_changed[taken], left, NO_BLOCK)
        self._frame_of[left[left != NO_BLOCK]] = _NO_FRAME
        self._is_written[written[written != NO_BLOCK]] = True
        read = np.where(self._is_written[absent], absent, NO_BLOCK)
        if is_whole is not None:
            read[is_whole[~is_here]] = NO_BLOCK
        self._frame_of[absent] = taken
        self._block_of[taken] = absent
        self._is_changed[taken] = False
        frames[~is_here] = taken
        self._now += 1
        if stays:
            self._last_use[frames] = self._now
        else:
            self._last_use[taken] = 0
            self._old, self._old_use = np.concatenate((taken, self._old)), np.append(taken * 0, self._old_use)
        must_move = (left != NO_BLOCK) | (read != NO_BLOCK)  # else the frame has held nothing yet: zeros
        return Claim(blocks, frames, taken[must_move], written[must_move], read[must_move])

    def claim_changed(self, first: int, last: int) -> Claim:
        """Claim the changed blocks in the frames `first` up to `last`, to be written; they stay in their frames."""
        changed = first + np.flatnonzero(self._is_changed[first:last])
        blocks = self._block_of[changed]
        order = np.argsort(blocks)  # neighbours are written in one piece
        frames, blocks = changed[order], blocks[order]
        self._is_changed[frames] = False
        self._is_written[blocks] = True
        self._users[frames] += 1
        return Claim(blocks, frames, frames, blocks, blocks)

    def fill(self, claim: Claim, job: int) -> None:
        """Note the job that moves what a claim needs."""
        self._filled_by[claim.moved] = job

    def last_job(self, claim: Claim) -> int:
        """The job after which all blocks of a claim are in their frames."""
        return int(self._filled_by[claim.frames].max(initial=0))

    def change(self, claim: Claim) -> None:
        """Note that the blocks are no longer what the file holds."""
        self._is_changed[claim.frames] = True

    def release(self, claim: Claim, *, come_back: bool = False) -> None:
        """Let the frames be given to other blocks.

        Args:
            claim: the frames.
            come_back: whether the blocks will next be overwritten from end to end: unchanged ones are of no use until
                then, and are the first to go.
        """
        self._users[claim.frames] -= 1
        if come_back:
            self._last_use[claim.frames[~self._is_changed[claim.frames]]] = 0

    def promise(self, blocks: Int64s) -> None:
        """Add a promise that each of these distinct blocks will be used."""
        self._promised[blocks] += 1

    def redeem(self, blocks: Int64s) -> None:
        """Take one promise of each of these blocks back."""
        self._promised[blocks] -= 1

    def _take(self, count: int, done: int) -> Int64s | None:
        """So many frames, in use from now on; None if there are fewer."""
        fresh = min(count, self.frames - self._fresh)
        parts, missing = [np.arange(self._fresh, self._fresh + fresh, dtype=np.int64)], count - fresh
        self._users[parts[0]] += 1
        while missing:
            if not self._old.size and not self._seek(missing, done):
                for part in parts:
                    self._users[part] -= 1
                return None
            frames, last_use = self._old[:missing], self._old_use[:missing]
            self._old, self._old_use = self._old[missing:], self._old_use[missing:]
            chosen = frames[self._may_go(frames, done) & (self._last_use[frames] == last_use)]
            self._users[chosen] += 1
            parts.append(chosen)
            missing -= chosen.size
        self._fresh += fresh
        return np.concatenate(parts)

    def _may_go(self, frames: Int64s | slice, done: int) -> NDArray[np.bool_]:
        may_go: NDArray[np.bool_] = (self._users[frames] == 0) & (self._filled_by[frames] <= done)
        return may_go

    def _seek(self, count: int, done: int) -> bool:
        """Find frames that go next, at least one; false if there is none."""
        most = min(self._fresh, max(2 * count, self.frames // _SOUGHT_SHARE, _FEWEST_SOUGHT))
        for _ in range(0, self._fresh + most, max(1, most)):  # once round, from wherever the last search has ended
            first = self._sought % max(1, self._fresh)
            held = slice(first, min(first + most, self._fresh))
            self._sought = held.stop
            may_go = self._may_go(held, done) & (self._promised[self._block_of[held]] <= 0)
            found = first + np.flatnonzero(may_go)
            if found.size:
                return self._list_old(found, self._last_use[found], -(-found.size // 2))
        found = np.flatnonzero(self._may_go(slice(0, self._fresh), done))
        return found.size > 0 and self._list_old(found, -self._last_use[found], min(found.size, count))

    def _list_old(self, found: Int64s, age: Int64s, count: int) -> bool:
        """Let so many of the frames go next, those of the smallest `age` first."""
        chosen = np.argpartition(age, count - 1)[:count]
        self._old = found[chosen[np.argsort(age[chosen], kind="stable")]]
        self._old_use = self._last_use[self._old]
        return True
