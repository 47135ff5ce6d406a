"""The one encoding of plan records: integers and flat arrays, one record or many in one memory. Pure data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 8
_NARROW = np.dtype(np.uint16)

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class PlanRecord:
    """Base of the plan records: integers and flat arrays, encoded in the order in which the fields are declared.

    The encoding is an int64 header (every integer field, then the length of every array field) followed by the
    arrays' bytes, each padded to 8 bytes; it is private to one job, so native byte order is used. Optional arrays come
    behind that, if there is any: a header with the length of each (-1 for one that is not there), then their bytes.

    An array of `NARROW` may be uint16 instead of what `ARRAYS` says, and has half as many bytes then. Its length n is
    ~n in the header.
    """

    ARRAYS: ClassVar[dict[str, np.dtype[Any]]] = {}
    """Name -> dtype of the array fields; all other fields but the optional ones are integers."""
    OPTIONAL: ClassVar[dict[str, np.dtype[Any]]] = {}
    """Name -> dtype of array fields that are mostly None, which takes no bytes."""
    NARROW: ClassVar[frozenset[str]] = frozenset()
    """Names of array fields, not optional ones, whose numbers may be 16 bits wide."""
    _memory: ClassVar[NDArray[np.uint8] | None] = None
    """On a record whose arrays are views of its encoding: that encoding."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The array fields that are there, by name, in their order."""
        fields_of = {name: getattr(self, name) for name in (*self.ARRAYS, *self.OPTIONAL)}
        return {name: array for name, array in fields_of.items() if array is not None}

    def encode(self) -> NDArray[np.uint8]:
        """The record as bytes, uint8 `[encoded size]`; not a copy where it was allocated or decoded in one piece."""
        if self._memory is not None:
            return self._memory
        arrays = self.arrays()
        integers = {name: getattr(self, name) for name in _integer_names(type(self))}
        narrow = {name for name in self.NARROW if arrays[name].dtype == _NARROW}
        lengths = {name: ~array.size if name in narrow else array.size for name, array in arrays.items()}
        record = self.allocate(lengths, **integers)
        for name, array in arrays.items():
            getattr(record, name)[:] = array
        return record.encode()

    @classmethod
    def allocate(cls, lengths: Mapping[str, int], **integers: int) -> Self:
        """A record whose arrays are still to be filled, in one piece of memory: filling them encodes it.

        Args:
            lengths: of the array fields, by name, ~n of one that is narrow; optional ones that are not named are None.
            integers: the integer fields.
        """
        required = [lengths[name] for name in cls.ARRAYS]
        optional = [lengths.get(name, -1) for name in cls.OPTIONAL]
        starts = _starts(cls, required)
        has_optional = any(length >= 0 for length in optional)
        ends = starts[1:] + (_optional_starts(cls, optional, starts[-1])[1:] if has_optional else [])
        words = np.empty(ends[-1] // _ALIGNMENT, dtype=np.int64)
        words[[end // _ALIGNMENT - 1 for end in ends]] = 0  # each array's last one, for what lies behind it
        header = [*(integers[name] for name in _integer_names(cls)), *required]
        words[: len(header)] = header
        if has_optional:
            words[starts[-1] // _ALIGNMENT :][: len(optional)] = optional
        return cls._on(words.view(np.uint8), integers, required, starts)

    @classmethod
    def decode(cls, encoded: NDArray[np.uint8]) -> Self:
        """The record that `encode` wrote; its arrays are views of `encoded`, which must be 8-byte aligned."""
        names = _integer_names(cls)
        header = encoded[: (len(names) + len(cls.ARRAYS)) * _ALIGNMENT].view(np.int64).tolist()
        lengths = header[len(names) :]
        starts = _starts(cls, lengths)
        return cls._on(encoded, dict(zip(names, header, strict=False)), lengths, starts)

    @classmethod
    def _on(
        cls, encoded: NDArray[np.uint8], integers: dict[str, int], lengths: Sequence[int], starts: Sequence[int]
    ) -> Self:
        """A record on the memory of its encoding."""
        values: dict[str, Any] = dict(integers)
        for (name, dtype), length, start in zip(cls.ARRAYS.items(), lengths, starts, strict=False):
            items, kind = (length, dtype) if length >= 0 else (~length, _NARROW)
            values[name] = encoded[start : start + items * kind.itemsize].view(kind)
        if starts[-1] < encoded.size:
            values |= cls._optional_on(encoded[starts[-1] :])
        record = cls(**values)
        object.__setattr__(record, "_memory", encoded)  # the class is frozen
        return record

    @classmethod
    def _optional_on(cls, encoded: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """The optional arrays that are there."""
        lengths = encoded[: len(cls.OPTIONAL) * _ALIGNMENT].view(np.int64).tolist()
        starts = _optional_starts(cls, lengths, 0)
        return {
            name: encoded[start : start + length * dtype.itemsize].view(dtype)
            for (name, dtype), length, start in zip(cls.OPTIONAL.items(), lengths, starts, strict=False)
            if length >= 0
        }


def _integer_names(kind: type[PlanRecord]) -> list[str]:
    return [entry.name for entry in fields(kind) if entry.name not in kind.ARRAYS and entry.name not in kind.OPTIONAL]


def _starts(kind: type[PlanRecord], lengths: Sequence[int]) -> list[int]:
    """Where each array begins in the encoding, and the end of the last."""
    return _laid_out((len(_integer_names(kind)) + len(lengths)) * _ALIGNMENT, lengths, kind.ARRAYS)


def _optional_starts(kind: type[PlanRecord], lengths: Sequence[int], start: int) -> list[int]:
    """The same of optional arrays, -1 long where they are not there, whose header begins at `start`."""
    return _laid_out(start + len(lengths) * _ALIGNMENT, [max(0, length) for length in lengths], kind.OPTIONAL)


def _laid_out(start: int, lengths: Sequence[int], types: Mapping[str, np.dtype[Any]]) -> list[int]:
    """Where arrays begin, one behind the other from `start`, and the end of the last."""
    starts = [start]
    for length, dtype in zip(lengths, types.values(), strict=True):
        size = length * dtype.itemsize if length >= 0 else ~length * _NARROW.itemsize
        starts.append(starts[-1] + (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT)
    return starts


Record = TypeVar("Record", bound=PlanRecord)


class EncodedRecords(Sequence[Record], Generic[Record]):
    """Records that lie encoded in one memory, one behind the other; they are decoded when one of them is asked for.

    Args:
        kind: their class.
        memory: their encodings.
        bounds: first byte of each and the end of the last, `[records + 1]`.
        optional: names of the optional arrays that each of them has; the others have none.
    """

    def __init__(self, kind: type[Record], memory: Bytes, bounds: Sequence[int], optional: Sequence[str] = ()) -> None:
        self._kind = kind
        self.optional = tuple(optional)
        self.encoded = [memory[first:end] for first, end in pairwise(bounds)]
        """Each record as bytes."""

    @classmethod
    def allocate(
        cls, kind: type[Record], lengths: NDArray[np.int64], optional: Sequence[str] = ()
    ) -> tuple[Self, NDArray[np.intp]]:
        """Records of arrays alone, which are still to be filled: filling them encodes the records.

        Args:
            kind: their class, which has no integers.
            lengths: of the arrays of each record in their order, `[records, arrays]`: of all that are not optional, ~n
                of one that is narrow, then of those that `optional` names.
            optional: names of the optional arrays, in their order.

        Returns:
            The records; the address of each array, `[records, arrays]`.
        """
        heads = np.zeros((2, len(kind.ARRAYS) + len(optional)), dtype=np.int64)  # bytes before each array; of an item
        heads[0, 0] = len(kind.ARRAYS) * _ALIGNMENT
        if optional:
            heads[0, len(kind.ARRAYS)] = len(kind.OPTIONAL) * _ALIGNMENT
        heads[1] = [dtype.itemsize for dtype in (*kind.ARRAYS.values(), *(kind.OPTIONAL[name] for name in optional))]
        of_arrays = np.where(lengths < 0, ~lengths * _NARROW.itemsize, lengths * heads[1])
        sizes = -(-of_arrays // _ALIGNMENT) * _ALIGNMENT
        ends = np.cumsum(heads[0] + sizes).reshape(sizes.shape)
        words = np.empty(ends[-1, -1] // _ALIGNMENT, dtype=np.int64)
        words[ends // _ALIGNMENT - 1] = 0  # each array's last one, for what lies behind it
        starts = (ends - sizes) // _ALIGNMENT

        def write_header(first_array: int, numbers: NDArray[np.int64]) -> None:
            count = numbers.shape[1]
            words[starts[:, first_array, np.newaxis] + np.arange(-count, 0)] = numbers

        write_header(0, lengths[:, : len(kind.ARRAYS)])
        if optional:
            there = np.full((len(lengths), len(kind.OPTIONAL)), -1, dtype=np.int64)
            there[:, [list(kind.OPTIONAL).index(name) for name in optional]] = lengths[:, len(kind.ARRAYS) :]
            write_header(len(kind.ARRAYS), there)
        records = cls(kind, words.view(np.uint8), [0, *ends[:, -1].tolist()], optional)
        return records, words.ctypes.data + starts * _ALIGNMENT

    def __len__(self) -> int:
        return len(self.encoded)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._decoded[index]

    @cached_property
    def _decoded(self) -> list[Record]:
        return [self._kind.decode(encoded) for encoded in self.encoded]


def encode_each(records: Sequence[PlanRecord]) -> list[Bytes]:
    """Each record as bytes."""
    return records.encoded if isinstance(records, EncodedRecords) else [record.encode() for record in records]


def any_has(records: Sequence[PlanRecord], names: Sequence[str]) -> bool:
    """Whether any record has one of these optional arrays."""
    if isinstance(records, EncodedRecords):
        return not set(names).isdisjoint(records.optional)
    return any(getattr(record, name) is not None for record in records for name in names)
