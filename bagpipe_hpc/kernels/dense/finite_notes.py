"""Notes, kept on a GPU, of the first step with a number that was not finite, and where: only reading them waits.

A note is two numbers: the step, from 1, and what was not finite first in that step. There is a note for each of some
kinds, and each stream has its own notes, since the work of two streams has no order.

Legend: `R` rows of a table, `K` its columns, `N` rows of one call.
"""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int32, c_int64, c_void_p
from typing import Protocol

import torch
from torch import Tensor

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.kernels.cuda_calls import MOST_TABLES, CudaCalls
from bagpipe_hpc.kernels.dense.finite import ReferenceFinite

_SIGNATURES: dict[str, tuple[type, ...]] = {
    "note_rows": (c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_void_p, c_int32, c_int64, c_void_p),
    "note_tensors": (c_void_p, c_void_p, c_int32, c_int64, c_void_p),
}


class FiniteNotes(Protocol):
    """Notes of some kinds, numbered from 0; threads may take them at the same time."""

    def see_rows(self, kind: int, step: int, tables: Sequence[Tensor], slots: Tensor, numbers: Tensor | None) -> None:
        """Note the first row that is not finite, unless the kind has a note.

        Args:
            kind: whose note it is.
            step: number of the step.
            tables: float32 `[R, K]` each, contiguous.
            slots: of the rows, int32 `[N]`, N at least 1.
            numbers: what is noted for slot s is `numbers[s]`, int64 `[R]`; None: s itself.
        """

    def see_tensors(self, kind: int, step: int, tensors: Sequence[Tensor]) -> None:
        """Note the place of the first tensor, float32, of any shape, that is not finite, unless the kind has a note."""

    def read(self) -> list[tuple[int, int]]:
        """For each kind the step and what was not finite, or 0 and 0 if all was. Waits for the work so far."""


def finite_notes(backend: str, device: torch.device, kinds: int) -> FiniteNotes:
    """Choose the implementation for a device, and say so in the log.

    Args:
        backend: `kernels.backend`.
        device: where the numbers are.
        kinds: number of kinds.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    if device.type == "cuda" and use_native(backend, "cuda"):
        return CudaNotes(shared_library.load("cuda"), device, kinds)
    return ReferenceNotes(device, kinds)


class _NotesOfStreams:
    """A tensor of notes for each stream that has put work on a device: int64 `[kinds, width]`.

    Args:
        device: where they are.
        first: what a note is at first.
        kinds: number of kinds.
        current_stream: the stream that the calling thread puts work on; torch's unless given.
    """

    def __init__(
        self, device: torch.device, first: Sequence[int], kinds: int, current_stream: Callable[[], int] | None = None
    ) -> None:
        self._first = torch.tensor([first] * kinds, dtype=torch.int64)
        self._device = device
        self._kinds = kinds
        self._current_stream = current_stream or self._stream_of_torch
        self._of_streams: dict[int, Tensor] = {}

    def _stream_of_torch(self) -> int:
        if self._device.type == "cpu":
            return 0
        return int(torch.cuda.current_stream(self._device).cuda_stream)

    def mine(self) -> Tensor:
        """The notes of the calling thread's stream."""
        stream = self._current_stream()
        if (notes := self._of_streams.get(stream)) is None:
            notes = self._of_streams[stream] = self._first.to(self._device, copy=True)
        return notes

    def read(self) -> list[tuple[int, int]]:
        """For each kind the earliest note of all streams."""
        if self._device.type != "cpu":
            torch.cuda.synchronize(self._device)
        found = [(0, 0)] * self._kinds
        for notes in list(self._of_streams.values()):
            for kind, (step, which, *_) in enumerate(notes.tolist()):
                if step and (found[kind][0] == 0 or step < found[kind][0]):
                    found[kind] = step, which
        return found


class ReferenceNotes:
    """Plain torch, on any device: the definition.

    Args:
        device: where the numbers are.
        kinds: number of kinds.
        current_stream: the stream that the calling thread puts work on; torch's unless given.
    """

    def __init__(self, device: torch.device, kinds: int, current_stream: Callable[[], int] | None = None) -> None:
        self._notes = _NotesOfStreams(device, (0, 0), kinds, current_stream)
        self._finite = ReferenceFinite()
        self.read = self._notes.read

    def see_rows(self, kind: int, step: int, tables: Sequence[Tensor], slots: Tensor, numbers: Tensor | None) -> None:
        """As in `FiniteNotes`."""
        place = self._finite.first_row(tables, slots)
        slot = slots.index_select(0, place.clamp(max=slots.numel() - 1).view(1))
        self._note(kind, step, place < slots.numel(), slot if numbers is None else numbers.index_select(0, slot))

    def see_tensors(self, kind: int, step: int, tensors: Sequence[Tensor]) -> None:
        """As in `FiniteNotes`."""
        place = self._finite.first_tensor(tensors)
        self._note(kind, step, place < len(tensors), place)

    def _note(self, kind: int, step: int, found: Tensor, which: Tensor) -> None:
        note = self._notes.mine()[kind]
        new = torch.stack((torch.full_like(note[0], step), which.view(()).long()))
        note.copy_(torch.where(found & (note[0] == 0), new, note))


class CudaNotes:
    """A kernel for rows, and one for tensors (csrc/cuda_finite.cu): a launch each, that reads every number once.

    Args:
        library: `_cuda.so`.
        device: as for `CudaCalls`.
        kinds: number of kinds.
        current_stream: as for `CudaCalls`.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        device: torch.device,
        kinds: int,
        current_stream: Callable[[], int] | None = None,
    ) -> None:
        self._cuda = CudaCalls(library, device, current_stream, _SIGNATURES)
        self._notes = _NotesOfStreams(device, (0, 0, -1, 0), kinds, current_stream)
        self.read = self._notes.read

    def see_rows(self, kind: int, step: int, tables: Sequence[Tensor], slots: Tensor, numbers: Tensor | None) -> None:
        """As in `FiniteNotes`."""
        named = None if numbers is None else self._cuda.long_integers(numbers)
        rows = self._cuda.integers(slots), slots.numel(), named
        note = self._notes.mine()[kind].data_ptr()
        for first in range(0, len(tables), MOST_TABLES):
            some = self._cuda.tables(tables[first : first + MOST_TABLES])
            self._cuda.call("note_rows", *some, *rows, first + MOST_TABLES >= len(tables), step, note)

    def see_tensors(self, kind: int, step: int, tensors: Sequence[Tensor]) -> None:
        """As in `FiniteNotes`; torch looks at tensors that are not contiguous float32."""
        plain = [_plain(tensor) for tensor in tensors]
        addresses = (c_void_p * len(plain))(*(self._cuda.floats(tensor) for tensor in plain))
        counts = (c_int64 * len(plain))(*(tensor.numel() for tensor in plain))
        self._cuda.call("note_tensors", addresses, counts, len(plain), step, self._notes.mine()[kind].data_ptr())


def _plain(tensor: Tensor) -> Tensor:
    """A tensor as a kernel takes it, or one number that is finite where all of the tensor's are."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous():
        return tensor
    return torch.where(torch.isfinite(tensor).all(), 0.0, torch.nan).float()
