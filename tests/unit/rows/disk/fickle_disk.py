"""A disk that does as it likes within the contract of `BlockFile`, and notices who does not keep to it."""

import mmap
import os
import threading
from dataclasses import dataclass

import numpy as np

from bagpipe_hpc.errors import FileError
from bagpipe_hpc.rows.disk.block_file import NO_BLOCK, Int64s, OpenBlockFile, move_error

_RUBBISH = 0xA5


@dataclass(eq=False)
class _Move:
    job: int
    frame: int
    written: int
    read: int
    half: np.ndarray | None = None
    is_written: bool = False
    is_scribbled: bool = False


class FickleDisk:
    """`BlockFile` in memory: moves get on in any order and in small steps, whenever somebody asks what is done.

    A write takes the two halves of a frame at different times, and a read leaves rubbish in the frame before the block
    comes. A frame that is touched in between, one that is in two jobs, and a block that two jobs write are errors.

    Args:
        seed: of the order.
        fails_after: moves after which every one fails; None for none.
        descriptor: closed at once: the rows are kept in memory, as many as the file has room for.
        memory: of the frames.
        block_bytes: size of a block and of a frame.
        name: of the file, for errors.
    """

    def __init__(
        self, seed: int, fails_after: int | None, descriptor: int, memory: mmap.mmap, block_bytes: int, name: str
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._left_until_failure = fails_after
        self._name = name
        self._failure: FileError | None = None
        self._frames = np.frombuffer(memory, np.uint8)[: len(memory) // block_bytes * block_bytes].reshape(
            -1, block_bytes
        )
        self._disk = np.full((os.fstat(descriptor).st_size // block_bytes, block_bytes), _RUBBISH, np.uint8)
        os.close(descriptor)
        self._moves: list[_Move] = []
        self._jobs = 0
        self._lock = threading.Lock()

    @classmethod
    def opener(cls, seed: int, fails_after: int | None = None) -> OpenBlockFile:
        """Opens such a disk."""
        return lambda *given: cls(seed, fails_after, *given)

    def submit(self, frames: Int64s, written: Int64s, read: Int64s) -> int:
        """Start one job of moves."""
        with self._lock:
            self._jobs += 1
            moves = [
                _Move(self._jobs, *numbers)
                for numbers in zip(frames.tolist(), written.tolist(), read.tolist(), strict=True)
            ]
            both = self._moves + moves
            assert len({move.frame for move in both}) == len(both), "a frame is in two jobs"
            to_write = [move.written for move in both if move.written != NO_BLOCK and not move.is_written]
            assert len(set(to_write)) == len(to_write), "a block is written twice at a time"
            self._moves = both
            return self._jobs

    def done(self) -> int:
        """The number of the last job that is done."""
        with self._lock:
            if self._failure:
                raise self._failure
            for _ in range(int(self._rng.integers(0, 4))):
                if self._moves and not self._failure:
                    self._step(self._moves[int(self._rng.integers(0, len(self._moves)))])
            return min((move.job for move in self._moves), default=self._jobs + 1) - 1

    def close(self) -> None:
        """Give the memory back."""
        del self._frames

    def _step(self, move: _Move) -> None:
        frame, middle = self._frames[move.frame], self._disk.shape[1] // 2
        if move.written != NO_BLOCK and not move.is_written:
            if move.half is None:
                move.half = frame.copy()
                self._disk[move.written, :middle] = frame[:middle]
                return
            np.testing.assert_array_equal(frame, move.half, "a frame has changed while it was written")
            self._disk[move.written, middle:] = frame[middle:]
            move.is_written = True
        elif move.read == NO_BLOCK:
            frame[:] = 0
            self._finish(move)
        elif move.read == move.written:
            self._finish(move)
        elif not any(other.written == move.read and not other.is_written for other in self._moves):
            if move.is_scribbled:
                assert (frame == _RUBBISH).all(), "a frame was touched while it was read"
                frame[:] = self._disk[move.read]
                self._finish(move)
            else:
                frame[:] = _RUBBISH
                move.is_scribbled = True

    def _finish(self, move: _Move) -> None:
        if self._left_until_failure is not None:
            self._left_until_failure -= 1
            if self._left_until_failure < 0:
                self._failure = move_error(self._name, move.read, 5, is_write=False)
                return
        self._moves.remove(move)
