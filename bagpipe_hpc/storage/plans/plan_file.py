"""A file of plans, one after the other, each with a checksum; written and read one at a time.

The file begins with `MAGIC`. A plan is a head and a body. The head is four int64 numbers: the plan's number in its
segment, the bytes of its body, a bit for each optional array that its trainers' parts have, and the CRC-32 of all else,
which starts from the key of the run that the plan was made for. The body is the size of each part, int64 `[G, 1 + T]`,
then the parts as they are sent (`BatchPlan.encode`), those of a group of tables side by side. Everything is a multiple
of 8 bytes long, in the byte order of the machine that wrote it.

Legend: `G` groups of tables, `T` trainers.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import PlanFileError
from bagpipe_hpc.plan.batch_plan import BatchPlan, SharedPlan, TrainerPlan
from bagpipe_hpc.plan.plan_record import Bytes, EncodedRecords, any_has

MAGIC = b"bagpipe plans 2\n"
PLAN_AGAIN = "save the plans again (bagpipe plan --save), or leave out train.plans"
_HEAD = 4
_WORD_BYTES = 8
_OPTIONAL = tuple(TrainerPlan.OPTIONAL)


class Stretch(NamedTuple):
    """Where the plans of a segment lie.

    Attributes:
        first: offset of the first one in the file, in bytes.
        bytes: size of all of them.
        plans: how many there are, the closing one included.
    """

    first: int
    bytes: int
    plans: int


class PlanWriter:
    """Writes the plans of one segment after the other.

    Args:
        file: empty, opened for writing.
        key: of the run that the plans are for, so that no other run takes them for its own.
    """

    def __init__(self, file: BinaryIO, key: int = 0) -> None:
        self._file, self._key = file, key
        self._written = file.write(MAGIC)
        self.largest_bytes = 0
        """Size of the largest body of a plan so far."""

    def write(self, plans: Iterator[BatchPlan]) -> Stretch:
        """Write the plans of a segment; returns where they lie."""
        first, number = self._written, -1
        for number, plan in enumerate(plans):
            self._write_plan(number, plan)
        return Stretch(first, self._written - first, number + 1)

    def _write_plan(self, number: int, plan: BatchPlan) -> None:
        encoded = [group.encode() for group in plan.groups]
        sizes = np.asarray([[part.size for part in group] for group in encoded], dtype=np.int64)
        body_bytes = sizes.nbytes + int(sizes.sum())
        there = sum(1 << bit for bit, name in enumerate(_OPTIONAL) if _have(plan, name))
        head = np.asarray([number, body_bytes, there, 0], dtype=np.int64)
        parts = [part for group in encoded for part in group]
        pieces: list[Bytes] = [sizes.reshape(-1).view(np.uint8), *parts]
        head[-1] = _checksum(self._key, head, pieces)
        for piece in (head.view(np.uint8), *pieces):
            self._written += self._file.write(piece.data) if piece.size else 0
        self.largest_bytes = max(self.largest_bytes, body_bytes)


def _have(plan: BatchPlan, name: str) -> bool:
    return any(any_has(group.trainers, [name]) for group in plan.groups)


def _checksum(key: int, head: NDArray[np.int64], pieces: list[Bytes]) -> int:
    found = crc32(head[:-1].data, key)
    for piece in pieces:
        if piece.size:
            found = crc32(piece.data, found)
    return found


class PlanReader:
    """Reads the plans of segments; holds one plan at a time.

    Args:
        path: the file.
        size_bytes: that it must have.
        groups: number of groups of tables G.
        trainers: number T.
        largest_bytes: of a plan's body; none is larger.
        key: as of `PlanWriter`.

    Raises:
        PlanFileError: by this and all methods: the file is missing, damaged or of another size.
    """

    def __init__(
        self, path: Path, size_bytes: int, groups: int, trainers: int, largest_bytes: int, key: int = 0
    ) -> None:
        self._path, self._key = path, key
        self._groups, self._trainers, self._largest = groups, trainers, largest_bytes
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise PlanFileError(f"{path}: {error.strerror}; {PLAN_AGAIN}") from error
        with ExitStack() as refusing:
            refusing.callback(self.close)
            found = os.fstat(self._file.fileno()).st_size
            if found != size_bytes:
                self._refuse(f"has {found} bytes instead of {size_bytes}")
            if self._file.read(len(MAGIC)) != MAGIC:
                self._refuse("is no file of plans, or of another version")
            refusing.pop_all()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def plans(self, stretch: Stretch) -> Iterator[BatchPlan]:
        """The plans of a segment, one after the other."""
        place, end = stretch.first, stretch.first + stretch.bytes
        for number in range(stretch.plans):
            head = self._read(place, _HEAD, number)
            self._require_head(head, number, place, end)
            body = self._read(place + head.nbytes, int(head[1]) // _WORD_BYTES, number)
            self._require_sum(head, body, place)
            place += head.nbytes + body.nbytes
            yield self._plan(body, int(head[2]), number)
        self._require_end(place, end)

    def _require_head(self, head: NDArray[np.int64], number: int, place: int, end: int) -> None:
        """Check that a head is that of plan `number`, and that its body lies in the segment and is not too large."""
        body_bytes = int(head[1])
        least = self._groups * (1 + self._trainers) * _WORD_BYTES
        most = min(end - place - head.nbytes, self._largest)
        if head[0] != number or not least <= body_bytes <= most or body_bytes % _WORD_BYTES:
            self._refuse(f"is damaged at byte {place}, where plan {number} of a segment begins")

    def _require_sum(self, head: NDArray[np.int64], body: NDArray[np.int64], place: int) -> None:
        """Check a plan against its checksum."""
        if _checksum(self._key, head, [body.view(np.uint8)]) != head[-1]:
            end = place + head.nbytes + body.nbytes
            self._refuse(f"is damaged between bytes {place} and {end}, or of another run: its CRC-32 is another one")

    def _require_end(self, place: int, end: int) -> None:
        """Check that the plans of a segment fill their part of the file."""
        if place != end:
            self._refuse(f"is damaged: {end - place} bytes are left behind byte {place}")

    def _read(self, place: int, words: int, number: int) -> NDArray[np.int64]:
        read = np.empty(words, dtype=np.int64)
        into = read.view(np.uint8).data
        done = 0
        try:
            while done < len(into):
                count = os.preadv(self._file.fileno(), [into[done:]], place + done)
                if not count:
                    self._refuse(f"ends at byte {place + done}, in plan {number} of a segment")
                done += count
        except OSError as error:
            raise PlanFileError(f"{self._path}: {error.strerror} at byte {place}; {PLAN_AGAIN}") from error
        return read

    def _plan(self, body: NDArray[np.int64], there: int, number: int) -> BatchPlan:
        """The plan that a body holds; its arrays are views of the body."""
        head = self._groups * (1 + self._trainers)
        sizes = body[:head].reshape(self._groups, -1)
        whole = body[head:].view(np.uint8)
        if sizes.min() < 0 or (sizes % _WORD_BYTES).any() or sizes.sum() != whole.size:
            self._refuse(f"is damaged: the parts of plan {number} of a segment do not fill it")
        optional = [name for bit, name in enumerate(_OPTIONAL) if there >> bit & 1]
        ends = [0, *np.cumsum(sizes).tolist()]
        groups = []
        for first in range(0, head, 1 + self._trainers):
            bounds = ends[first + 1 : first + 2 + self._trainers]
            shared = SharedPlan.decode(whole[ends[first] : bounds[0]])
            groups.append(BatchPlan(shared, EncodedRecords(TrainerPlan, whole, bounds, optional)))
        return BatchPlan(groups[0].shared, groups[0].trainers, tuple(groups[1:]))

    def _refuse(self, problem: str) -> NoReturn:
        raise PlanFileError(f"{self._path}: {problem}; {PLAN_AGAIN}")
