"""The program of an exported model as ONNX, where onnxscript is installed and knows its operations.

Onnxscript 0.7 lacks `repeat_interleave` with a known size and `index_add`, of which the pooling of ragged features
consists. This module translates them to ONNX.
"""

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram

from bagpipe_hpc.errors import ConfigError

INSTALL = "pip install onnx onnxscript"


def is_installed() -> bool:
    """Whether a program can be translated here."""
    return all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript"))


def require_installed() -> None:
    """Check that a program can be translated here.

    Raises:
        ConfigError: onnxscript is not installed.
    """
    if not is_installed():
        raise ConfigError(f"--onnx: onnxscript is not installed; {INSTALL}, or leave it out")


def onnx_bytes(program: ExportedProgram) -> bytes:
    """Translate a program.

    Args:
        program: a program whose linear layers torch itself multiplies.

    Returns:
        The content of an ONNX file.

    Raises:
        ConfigError: onnxscript is not installed, or does not know an operation.
    """
    require_installed()
    try:
        with _quiet():
            translated = torch.onnx.export(
                program, dynamo=True, verbose=False, output_names=["logits"], custom_translation_table=_translations()
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise ConfigError(f"--onnx: the model cannot be translated ({reason:.200}); leave it out") from error
    assert translated is not None
    content: bytes = translated.model_proto.SerializeToString()
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what torch prints for its own developers, and about packages that it can do without."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _translations() -> dict[Any, Any]:
    from onnxscript import opset18 as op

    def sample_of_each(repeats: Any, output_size: Any = None) -> Any:  # noqa: ARG001 - torch's own
        """The sample of each place: how many samples end before the place or at it."""
        one, zero = op.Constant(value_ints=[1]), op.Constant(value_ints=[0])
        ends = op.CumSum(repeats, op.Constant(value_int=0))
        size = op.Add(op.ReduceSum(repeats, zero), one)
        nothing = op.Expand(zero, size)
        marks = op.ScatterElements(nothing, ends, op.Expand(one, op.Shape(ends)), axis=0, reduction="add")
        return op.Slice(op.CumSum(marks, op.Constant(value_int=0)), zero, op.Constant(value_ints=[-1]), zero)

    def index_add(self: Any, dim: int, index: Any, source: Any, alpha: float = 1.0) -> Any:
        """Add rows in their order; along the first axis only."""
        if dim != 0 or alpha != 1.0:
            raise NotImplementedError(f"index_add along axis {dim}, times {alpha}")
        places = op.Expand(op.Unsqueeze(index, op.Constant(value_ints=[1])), op.Shape(source))
        return op.ScatterElements(self, places, source, axis=0, reduction="add")

    return {torch.ops.aten.repeat_interleave.Tensor: sample_of_each, torch.ops.aten.index_add.default: index_add}
