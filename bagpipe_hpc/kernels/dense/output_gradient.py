"""The gradient of a linear layer's outputs, made ready on the CPU for the products of its backward pass.

A first layer needs one product, with inputs that are few: it is computed in the same pass.

Native code and its torch twin give the same bits: sums start with 0 and run over the samples of a block in order, then
over the blocks of a part, then over the parts. How many there are depends on the number of samples alone.

Legend: `B` samples, `I` inputs, `O` outputs of the layer. Tensors are float32, contiguous, on the CPU.
"""

from ctypes import c_int64, c_void_p
from typing import Protocol

import torch
from torch import Tensor, nn

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.backend import use_native
from bagpipe_hpc.kernels.plain_tensor import check_plain

FEW_INPUTS = 32
"""Most inputs that `multiply` takes: with so many, it takes 0.4 times as long as `prepare` and a library's product for
2,048 samples, and 0.9 times as long for 256."""
_BLOCK = 64
"""Samples that are summed up first."""
_MOST_PARTS = 16
"""Most parts that the samples are cut into, each of whole blocks; threads share the parts out."""


class OutputGradientKernel(Protocol):
    """What is done with a gradient: two operations that make it ready, and the product of a first layer."""

    def mask(self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False) -> tuple[Tensor, Tensor]:
        """Mask and sum a gradient: the first and the last of what `prepare` returns."""

    def prepare(
        self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mask, transpose and sum a gradient.

        Args:
            gradient: `[B, O]`.
            outputs: `[B, O]` of the layer's ReLU; where they are 0, the gradient is masked; where they are NaN, it
                is not, so that a NaN reaches the weights. None: no ReLU.
            in_place: the masked gradient takes the place of `gradient`.

        Returns:
            The masked gradient `[B, O]` (without ReLU, or in place, `gradient` itself), its transpose `[O, B]`, and its
            sum over the samples `[O]`.
        """

    def multiply(self, gradient: Tensor, outputs: Tensor | None, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mask a gradient and multiply it with the layer's inputs.

        Args:
            gradient: as for `prepare`.
            outputs: as for `prepare`.
            inputs: `[B, I]`; I is 0 to `FEW_INPUTS`.

        Returns:
            The gradients of the weight `[O, I]` and of the bias `[O]`, which has the bits that `prepare` gives.
        """


def output_gradient_kernel(backend: str) -> OutputGradientKernel:
    """Choose the implementation, and say so in the log.

    Args:
        backend: `kernels.backend`.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    return NativeOutputGradient() if use_native(backend, "output_gradient") else ReferenceOutputGradient()


class ReferenceOutputGradient:
    """Plain torch: the definition."""

    def mask(self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False) -> tuple[Tensor, Tensor]:
        """Mask and sum one after the other."""
        masked = gradient.copy_(_masked(gradient, outputs)) if in_place else _masked(gradient, outputs)
        values = _in_blocks(masked)
        sums = values.new_zeros(len(values), values.shape[2])
        for value in values.unbind(1):
            sums += value
        return masked, _total(sums)

    def prepare(
        self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mask, sum and transpose one after the other."""
        masked, sums = self.mask(gradient, outputs, in_place=in_place)
        return masked, masked.t().contiguous(), sums

    def multiply(self, gradient: Tensor, outputs: Tensor | None, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """All blocks side by side, sample after sample; a last one is filled up with zeros."""
        factors = torch.cat((inputs, inputs.new_ones(len(inputs), 1)), dim=1)
        values = _in_blocks(_masked(gradient, outputs))
        sums = values.new_zeros(len(values), values.shape[2], factors.shape[1])
        for value, factor in zip(values.unbind(1), _in_blocks(factors).unbind(1), strict=True):
            sums += value[:, :, None] * factor[:, None, :]
        totals = _total(sums)
        return totals[:, :-1].contiguous(), totals[:, -1].contiguous()


def _masked(gradient: Tensor, outputs: Tensor | None) -> Tensor:
    return gradient if outputs is None else torch.where(outputs <= 0, 0.0, gradient)


def _in_blocks(rows: Tensor) -> Tensor:
    """Rows of samples `[B, n]` as `[blocks, _BLOCK, n]`."""
    padded = nn.functional.pad(rows, (0, 0, 0, -len(rows) % _BLOCK))
    return padded.view(len(padded) // _BLOCK, _BLOCK, rows.shape[1])


def _total(sums: Tensor) -> Tensor:
    """The sum of all blocks `[blocks, ...]`: of those of each part, and then of the parts."""
    total = sums.new_zeros(sums.shape[1:])
    blocks = max(1, -(-len(sums) // _MOST_PARTS))
    for first in range(0, len(sums), blocks):
        of_part = sums.new_zeros(sums.shape[1:])
        for block in sums[first : first + blocks]:
            of_part += block
        total += of_part
    return total


class NativeOutputGradient:
    """C++ (csrc/output_gradient.cpp), on as many threads as torch uses."""

    def __init__(self) -> None:
        library = shared_library.load("output_gradient")
        self._run, self._multiply = library.output_gradient, library.weight_gradient
        library.most_inputs.argtypes, library.most_inputs.restype = [], c_int64
        self._most_inputs = library.most_inputs()
        self._run.argtypes = [*[c_int64] * 2, *[c_void_p] * 5, c_int64]
        self._multiply.argtypes = [*[c_int64] * 3, *[c_void_p] * 5, c_int64]
        self._run.restype = self._multiply.restype = None

    def mask(self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False) -> tuple[Tensor, Tensor]:
        """In one pass of native code."""
        return self._pass(gradient, outputs, None, in_place)

    def prepare(
        self, gradient: Tensor, outputs: Tensor | None, *, in_place: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """In native code, which transposes a block while it is in the caches."""
        transposed = gradient.new_empty(gradient.shape[::-1])
        masked, sums = self._pass(gradient, outputs, transposed, in_place)
        return masked, transposed, sums

    def _pass(
        self, gradient: Tensor, outputs: Tensor | None, transposed: Tensor | None, in_place: bool
    ) -> tuple[Tensor, Tensor]:
        """The masked gradient and its sums; its transpose goes to `transposed [O, B]`."""
        samples, width = gradient.shape
        check_plain(gradient, (samples, width), name="gradient")
        masked = gradient
        outputs_address = masked_address = None
        if outputs is not None:
            check_plain(outputs, (samples, width), name="outputs")
            masked = gradient if in_place else torch.empty_like(gradient)
            outputs_address, masked_address = outputs.data_ptr(), masked.data_ptr()
        sums = gradient.new_empty(width)
        self._run(
            samples,
            width,
            gradient.data_ptr(),
            outputs_address,
            masked_address,
            None if transposed is None else transposed.data_ptr(),
            sums.data_ptr(),
            torch.get_num_threads(),
        )
        return masked, sums

    def multiply(self, gradient: Tensor, outputs: Tensor | None, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """In one pass of native code."""
        (samples, width), count = gradient.shape, inputs.shape[1]
        check_plain(gradient, (samples, width), name="gradient")
        check_plain(inputs, (samples, count), name="inputs")
        if outputs is not None:
            check_plain(outputs, (samples, width), name="outputs")
        if count > self._most_inputs:
            raise ValueError(f"a layer of {count} inputs: native code multiplies {FEW_INPUTS} at most")
        for_weight, for_bias = gradient.new_empty(width, count), gradient.new_empty(width)
        self._multiply(
            samples,
            width,
            count,
            gradient.data_ptr(),
            None if outputs is None else outputs.data_ptr(),
            inputs.data_ptr(),
            for_weight.data_ptr(),
            for_bias.data_ptr(),
            torch.get_num_threads(),
        )
        return for_weight, for_bias
