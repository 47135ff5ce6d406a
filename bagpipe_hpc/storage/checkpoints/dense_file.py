"""Dense weights and the dense optimizer's state in one HDF5 file, bit for bit and without pickling.

A state is a tree of dicts, lists and tuples. Its tensors become datasets under readable names, such as
`model/top.0.weight` and `optimizer/state/0/exp_avg`; the tree itself, with its plain values, is JSON in the scalar
dataset `tree`. Nothing in the file can run code when it is read.
"""

import json
import math
import reprlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import h5py
import numpy as np
import torch

from bagpipe_hpc.errors import CheckpointError
from bagpipe_hpc.storage.hdf5_attributes import plain_attribute, set_text
from bagpipe_hpc.storage.hdf5_output import create_hdf5
from bagpipe_hpc.storage.plain_hdf5 import errors_name, open_plain, plain_dataset

_STORED_AS: dict[torch.dtype, str] = {
    torch.float64: "<f8",
    torch.float32: "<f4",
    torch.float16: "<f2",
    torch.bfloat16: "<i2",  # HDF5 has no such type: its bits are kept in an integer
    torch.int64: "<i8",
    torch.int32: "<i4",
    torch.int16: "<i2",
    torch.int8: "|i1",
    torch.uint8: "|u1",
    torch.bool: "|u1",
}
_BENDING_NAMES = {"": "%", ".": "%2E"}
_LARGEST_TREE_BYTES = 32 << 20
"""A tensor takes about 74 bytes of the tree: with 100,000 weights, and Adam's three tensors for each, it has 30 MB.
Parsed, it takes up to 50 times as much memory."""
_DTYPE_NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in _STORED_AS}


def write_dense_file(path: Path, model_state: dict[str, Any], optimizer_state: dict[str, Any]) -> None:
    """Write what `state_dict()` of a module and of a `torch.optim` optimizer give.

    Args:
        path: the file, replaced if it exists.
        model_state: tensors by parameter name, on any device.
        optimizer_state: tensors, numbers, strings, booleans and None in dicts, lists and tuples.

    Raises:
        TypeError: a state holds something else; the message says where.
    """
    with create_hdf5(path) as file:
        put = partial(_write_tensor, file)
        tree = {
            "model": _encode(put, "model", model_state),
            "optimizer": _encode(put, "optimizer", optimizer_state),
        }
        # A dataset, since attributes are limited to 64 KiB.
        file["tree"] = np.frombuffer(json.dumps(tree, allow_nan=False).encode(), np.uint8)


def require_storable(name: str, state: object) -> None:
    """Check, before anything is written, that `write_dense_file` would take a state.

    Args:
        name: of the state, for messages.
        state: the state of a model or of an optimizer, as `write_dense_file` takes it.

    Raises:
        TypeError: it would not; the message says where.
    """
    _encode(_stored_type, name, state)


def read_dense_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of the model and of its optimizer, equal to what was written; tensors are on the CPU.

    Memory for tensors is at most the file's size: each is read once, and lies in the file in full.

    Raises:
        CheckpointError: the file is absent, damaged or malformed.
    """
    with open_plain(path) as file:
        tree = _read_tree(file)
        _states(file, tree, _outlined)
        return _states(file, tree, _read_tensor)


def outline_dense_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """As `read_dense_file`, with tensors on torch's `meta` device: shapes and types without values.

    Raises:
        CheckpointError: the file is absent, damaged or malformed.
    """
    with open_plain(path) as file:
        return _states(file, _read_tree(file), _outlined)


def _read_tree(file: h5py.File) -> Any:
    dataset = plain_dataset(file, "tree")
    if dataset.nbytes > _LARGEST_TREE_BYTES:
        raise CheckpointError(
            f"{file.filename}: its tree has {dataset.nbytes} bytes, more than {_LARGEST_TREE_BYTES}: no model has so "
            "many tensors; use another checkpoint"
        )
    with errors_name(file.filename):
        text = dataset[()].tobytes()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file.filename}: its tree is no JSON ({error}); use another checkpoint") from None


def _states(
    file: h5py.File, tree: Any, read: Callable[[h5py.Dataset, torch.dtype], torch.Tensor]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two states that a tree describes, their tensors as `read` gives them."""
    tensors = _Tensors(file, read)
    try:
        states = _decode(tensors, tree["model"]), _decode(tensors, tree["optimizer"])
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise CheckpointError(f"{file.filename}: its tree is malformed ({error!r}); use another checkpoint") from None
    for state in states:
        if not isinstance(state, dict):
            raise CheckpointError(f"{file.filename}: holds {reprlib.repr(state)} for a state; use another checkpoint")
    return states


class _Tensors:
    """The tensors of a file, each of which a tree may name once.

    Args:
        file: the file.
        read: makes a tensor of a dataset and its type.
    """

    def __init__(self, file: h5py.File, read: Callable[[h5py.Dataset, torch.dtype], torch.Tensor]) -> None:
        self._file = file
        self._read = read
        self._names: set[str] = set()
        with errors_name(file.filename):
            self._bytes_left = file.id.get_filesize()

    def take(self, name: object) -> torch.Tensor:
        """A tensor by its name.

        Raises:
            TypeError: the name is no text, or the dataset is not of a type that tensors have.
            ValueError: the name was taken before, or the tensors taken so far have more bytes than the file.
            CheckpointError: there is no such dataset, or it is not stored in full.
        """
        if not isinstance(name, str):
            raise TypeError(f"a tensor at {reprlib.repr(name)}")
        if name in self._names:
            raise ValueError(f"tensor {reprlib.repr(name)} is named twice")
        self._names.add(name)
        dataset = plain_dataset(self._file, name)
        self._bytes_left -= dataset.nbytes
        if self._bytes_left < 0:  # several names of one dataset
            raise ValueError("tensors of more bytes than the file has")
        with errors_name(self._file.filename):
            written = plain_attribute(dataset, "dtype")
        dtype = _DTYPE_NAMES.get(written) if isinstance(written, str) else None
        if dtype is None or dataset.dtype != np.dtype(_STORED_AS[dtype]):
            raise TypeError(f"{reprlib.repr(name)} is {dataset.dtype} with dtype = {reprlib.repr(written)}")
        return self._read(dataset, dtype)


def _encode(put: Callable[[str, torch.Tensor], object], path: str, value: object) -> Any:
    """A node of the tree as JSON; containers and what JSON lacks are written as `{kind: contents}`.

    Args:
        put: is given the path of each tensor, and the tensor.
        path: of the node.
        value: what it stands for.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case torch.Tensor():
            put(path, value)
            return {"tensor": path}
        case dict():
            return {"dict": [[_key(path, key), _encode(put, _member(path, key), item)] for key, item in value.items()]}
        case list() | tuple():
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [_encode(put, _member(path, number), item) for number, item in enumerate(value)]}
    raise TypeError(
        f"{path} is a {type(value).__name__}: a state may hold tensors, numbers, strings, booleans, None, dicts, lists "
        "and tuples"
    )


def _decode(tensors: _Tensors, node: Any) -> Any:
    """The inverse of `_encode`."""
    if not isinstance(node, dict):
        if isinstance(node, list):
            raise TypeError(f"a bare list {reprlib.repr(node)}")
        return node
    ((kind, contents),) = node.items()
    match kind:
        case "float":
            return float(contents)
        case "tensor":
            return tensors.take(contents)
        case "dict":
            return {key: _decode(tensors, item) for key, item in contents}
        case "list":
            return [_decode(tensors, item) for item in contents]
        case "tuple":
            return tuple(_decode(tensors, item) for item in contents)
    raise KeyError(kind)


def _stored_type(path: str, tensor: torch.Tensor) -> str:
    stored_as = _STORED_AS.get(tensor.dtype)
    if stored_as is None or tensor.layout != torch.strided:
        raise TypeError(f"{path} is a {tensor.layout} tensor of {tensor.dtype}: use one of {', '.join(_DTYPE_NAMES)}")
    return stored_as


def _write_tensor(file: h5py.File, path: str, tensor: torch.Tensor) -> None:
    stored_as = _stored_type(path, tensor)
    plain = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        plain = plain.view(torch.int16)
    dataset = file.create_dataset(path, data=plain.numpy().astype(stored_as, copy=False))
    set_text(dataset, "dtype", str(tensor.dtype).removeprefix("torch."))


def _read_tensor(dataset: h5py.Dataset, dtype: torch.dtype) -> torch.Tensor:
    # `[()]` gives a scalar, not an array, where there are no dimensions.
    with errors_name(dataset.file.filename):
        plain = torch.from_numpy(np.array(dataset[()], dtype=dataset.dtype.newbyteorder("=")))
    return plain.view(torch.bfloat16) if dtype == torch.bfloat16 else plain.to(dtype)


def _outlined(dataset: h5py.Dataset, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(dataset.shape, dtype=dtype, device="meta")


def _key(path: str, key: object) -> str | int:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise TypeError(f"{path} has the key {key!r}: keys must be strings or whole numbers")
    return key


def _member(path: str, key: object) -> str:
    """HDF5 path of a member; what has a meaning in a path, such as a slash or a lone dot, is percent-encoded."""
    name = quote(str(key), safe="")
    return f"{path}/{_BENDING_NAMES.get(name, name)}"
