"""Calls of functions of `_cuda.so` (csrc/cuda_*.cu) on one GPU, on torch's current stream: no copies, no waiting."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int32, c_void_p

import torch
from torch import Tensor

MOST_TABLES = 4
"""Most tables of a record that one kernel takes, `kMostParts` of csrc/cuda_row_operations.h."""


class CudaCalls:
    """Some functions of the library, for tensors on one GPU.

    Args:
        library: `_cuda.so`.
        device: the GPU, torch's current one where it has no number; every tensor must be on it.
        current_stream: the CUDA stream that the calling thread puts work on; torch's unless given.
        signatures: of the functions, without `bagpipe_`: their arguments after device and stream.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        device: torch.device,
        current_stream: Callable[[], int] | None,
        signatures: Mapping[str, tuple[type, ...]],
    ) -> None:
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._device = device
        self._current_stream = current_stream or (lambda: int(torch.cuda.current_stream(device).cuda_stream))
        self._error_text = library.bagpipe_error_text
        self._error_text.argtypes, self._error_text.restype = (ctypes.c_int,), ctypes.c_char_p
        self._functions = {name: _typed(library, name, of_function) for name, of_function in signatures.items()}

    def call(self, name: str, *arguments: object) -> None:
        """Put a kernel on the current stream.

        Raises:
            RuntimeError: CUDA could not start it.
        """
        code = self._functions[name](self._device.index or 0, self._current_stream(), *arguments)
        if code:
            raise RuntimeError(f"CUDA could not start {name} on {self._device}: {self._error_text(code).decode()}")

    def tables(self, columns: Sequence[Tensor]) -> tuple[object, object, int]:
        """Addresses, widths and number of some tables, float32 `[R, K]` each, as C arrays."""
        addresses = (c_void_p * len(columns))(*(self.floats(part) for part in columns))
        widths = (c_int32 * len(columns))(*(part.shape[1] for part in columns))
        return addresses, widths, len(columns)

    def floats(self, numbers: Tensor) -> int:
        """The address of float32 numbers.

        Raises:
            ValueError: they are of another type, elsewhere, or not contiguous.
        """
        return self._address(numbers, torch.float32)

    def integers(self, numbers: Tensor) -> int:
        """The address of int32 numbers; errors as for `floats`."""
        return self._address(numbers, torch.int32)

    def long_integers(self, numbers: Tensor) -> int:
        """The address of int64 numbers; errors as for `floats`."""
        return self._address(numbers, torch.int64)

    def _address(self, tensor: Tensor, dtype: torch.dtype) -> int:
        if tensor.device != self._device or tensor.dtype != dtype or not tensor.is_contiguous():
            raise ValueError(
                f"a row operation on {self._device} needs a contiguous {dtype} tensor there, but got "
                f"{tensor.dtype} {list(tensor.shape)} with strides {tensor.stride()} on {tensor.device}"
            )
        return tensor.data_ptr()


def _typed(library: ctypes.CDLL, name: str, signature: tuple[type, ...]) -> Callable[..., int]:
    function = library[f"bagpipe_{name}"]
    function.argtypes = (ctypes.c_int, c_void_p, *signature)
    function.restype = ctypes.c_int
    return function
