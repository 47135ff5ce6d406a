"""Files in the format of safetensors, written in pieces: a tensor may be larger than memory.

A file is the length of its header (8 bytes, little-endian), the header (a JSON object with type, shape and place of
each tensor), and the numbers of all tensors, raw and little-endian, one tensor after the other
(https://huggingface.co/docs/safetensors). The library safetensors reads such files, as the tests do; but it can write
only tensors that are in memory as a whole.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.checked_json import FileInfo

METADATA = "__metadata__"
"""Name of the metadata in a header, which no tensor may have."""
ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}
"""Bytes of a number of each type."""
_ALIGNED_TO = 8
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000
"""Upper limit for a header, the same as safetensors' own."""
_CURE = "export the model again"


@dataclass(frozen=True)
class StreamedTensor:
    """A tensor that is to be written.

    Attributes:
        name: in the file.
        kind: type of its numbers, one of `ITEM_BYTES`.
        shape: its sizes.
        pieces: gives its numbers in C order, little-endian, in contiguous arrays of any types and shapes; called once.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[NDArray[Any]]]

    @property
    def bytes(self) -> int:
        """Size of its numbers."""
        return ITEM_BYTES[self.kind] * math.prod(self.shape)


def header_of(tensors: Sequence[StreamedTensor], metadata: Mapping[str, str]) -> bytes:
    """The header of a file with these tensors, and its length before it.

    Args:
        tensors: in the order of the file.
        metadata: texts by name, for readers.

    Raises:
        ValueError: two tensors have one name, or one is named as no tensor may be.
    """
    places: dict[str, Any] = {METADATA: dict(metadata)}
    end = 0
    for tensor in tensors:
        if tensor.name in places:
            raise ValueError(f"a tensor is named {tensor.name!r}, which is taken")
        first, end = end, end + tensor.bytes
        places[tensor.name] = {"dtype": tensor.kind, "shape": list(tensor.shape), "data_offsets": [first, end]}
    text = json.dumps(places, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED_TO)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def write_tensors(path: Path, tensors: Sequence[StreamedTensor], metadata: Mapping[str, str]) -> FileInfo:
    """Write a new file, one piece after the other, and force it to the disk.

    Args:
        path: the file; must not exist.
        tensors: what it is to hold, in this order.
        metadata: texts by name, for readers.

    Returns:
        Its name, size and SHA-256.

    Raises:
        ValueError: the pieces of a tensor have another size than its shape says; or as by `header_of`.
    """
    with path.open("xb") as file:
        digest = hashlib.sha256()

        def write(content: bytes | memoryview) -> int:
            file.write(content)
            digest.update(content)
            return len(content)

        written = write(header_of(tensors, metadata))
        for tensor in tensors:
            of_tensor = sum(write(_bytes_of(piece)) for piece in tensor.pieces())
            if of_tensor != tensor.bytes:
                raise ValueError(f"tensor {tensor.name}: {of_tensor} bytes came, and its shape says {tensor.bytes}")
            written += of_tensor
        file.flush()
        os.fsync(file.fileno())
    return FileInfo(path.name, written, digest.hexdigest())


def _bytes_of(piece: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data


class TensorPlace(NamedTuple):
    """Where a tensor lies in a file.

    Attributes:
        kind: type of its numbers, one of `ITEM_BYTES`.
        shape: its sizes.
        first: place of its first byte in the file.
        bytes: size of its numbers.
    """

    kind: str
    shape: tuple[int, ...]
    first: int
    bytes: int


def tensor_places(path: Path) -> dict[str, TensorPlace]:
    """Where each tensor of a file lies; none of them is read.

    Raises:
        CheckpointError: the file is absent, or is none of this format, or a tensor does not lie in it in full.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if size < _LENGTH_BYTES or length > min(size - _LENGTH_BYTES, _MOST_HEADER_BYTES):
                raise CheckpointError(f"{path}: is no safetensors file; {_CURE}")
            header = json.loads(file.read(length))
        return {name: _place(about, _LENGTH_BYTES + length, size) for name, about in header.items() if name != METADATA}
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); {_CURE}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: its header is damaged ({error}); {_CURE}") from error


def _place(about: Mapping[str, Any], begin: int, size: int) -> TensorPlace:
    shape = tuple(about["shape"])
    first, end = about["data_offsets"]
    if any(type(number) is not int or number < 0 for number in (*shape, first, end)):
        raise ValueError(f"{about!r:.80} holds what is no size")
    if end - first != ITEM_BYTES[about["dtype"]] * math.prod(shape) or begin + end > size:
        raise ValueError(f"{about!r:.80} does not lie in the file")
    return TensorPlace(about["dtype"], shape, begin + first, end - first)
