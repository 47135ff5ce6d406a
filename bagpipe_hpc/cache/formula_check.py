"""Tries the formula of a row optimizer before a run starts: whoever added it may have broken the contract."""

import traceback
from collections.abc import Iterator

import torch
from torch import Tensor

from bagpipe_hpc.config.doors import ROW_OPTIMIZERS, SettingError
from bagpipe_hpc.config.rates import RowsRateConfig
from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.kernels.rows.row_operations import RowOperations
from bagpipe_hpc.kernels.rows.update_kernels import UPDATE_KERNELS
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.optimizers.contract import KernelCall, RowOptimizer
from bagpipe_hpc.terminal import counted

_STEPS = 3
_NUMBERS = 40_000
"""Weights that are tried: more than torch gives one thread, so that borders between threads are tried, too."""
_FEWEST_ROWS = 9
_WIDEST = 4096
"""Largest width that is tried. A width that is too large by mistake is refused later, for the memory that it takes."""


def check_formula(
    config: OptimizerConfig,
    embedding_dim: int,
    device: torch.device,
    operations: RowOperations,
    rates: RowsRateConfig | None = None,
) -> None:
    """Check that a formula works in place, follows the rate, and gives a row the same bits among other rows and alone.

    Where a user's own class names a native kernel, that must give these bits, too.

    Args:
        config: names the row optimizer.
        embedding_dim: width D of the rows.
        device: where trainers compute.
        operations: row operations on that device, which know the native kernels.
        rates: the learning rate over the steps of the run; constant unless given.

    Raises:
        SettingError: it does not, or it fails.
    """
    optimizer = build_row_optimizer(config)
    width = min(embedding_dim, _WIDEST)
    rows = max(_FEWEST_ROWS, -(-_NUMBERS // width))
    random = torch.Generator().manual_seed(1)
    weights = torch.randn(rows, width, generator=random).to(device)
    gradients = torch.randn(_STEPS, rows, width, generator=random).to(device)
    try:
        together = _after_steps(optimizer, weights, gradients)
        if torch.equal(together[:, :width], weights):
            raise _FormulaError("leaves the weights as they were: change them in place, weights.sub_(...)")
        if not together.isfinite().all():
            raise _FormulaError("gives numbers that are not finite for weights and gradients of normal size")
        if rates is not None and rates.varies:
            slow = build_row_optimizer(config, RowsRateConfig(warmup_steps=10 * _STEPS))
            _require_rate_followed(optimizer, slow, together[:, :width], _after_steps(slow, weights, gradients))
        for chosen in _parts(rows):
            apart = _after_steps(optimizer, weights[chosen], gradients[:, chosen])
            if not torch.equal(apart.view(torch.int32), together[chosen].view(torch.int32)):
                raise _FormulaError(
                    "gives a row other bits among other rows, or when it is called again, so that trainers would not "
                    "agree: remember and draw nothing, use rows.optimizers.exact for roots and for sums over columns, "
                    "and operations that round once: a.add_(b * c) instead of addcmul_, addcdiv_, lerp_ and "
                    "add_(b, alpha=c)"
                )
        if config.rows not in ROW_OPTIMIZERS.entries:  # kernels of the package's own are tested
            _require_kernel_agrees(optimizer, operations, weights, gradients, together)
    except _FormulaError as error:
        raise SettingError(ROW_OPTIMIZERS.key, config.rows, f"its update {error}") from None
    except BagpipeError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}, line {frame.lineno}"
        cure = f"its update fails on {rows} rows of width {width} ({where}: {type(error).__name__}: {error})"
        raise SettingError(ROW_OPTIMIZERS.key, config.rows, cure) from error


def _require_rate_followed(optimizer: RowOptimizer, slow: RowOptimizer, full: Tensor, found: Tensor) -> None:
    """Check that weights and a kernel's numbers change with the learning rate.

    Args:
        optimizer: with the full rate in each step.
        slow: the same optimizer with lower rates.
        full: weights after some steps of `optimizer`, `[N, D]`.
        found: weights and state after as many steps of `slow`, `[N, D + state]`.
    """
    kernels = optimizer.kernel(1), slow.kernel(1)
    if torch.equal(full, found[:, : full.shape[1]]):
        raise _FormulaError(_IGNORES_RATE)
    if kernels[0] is not None and kernels[0] == kernels[1]:
        raise _FormulaError(f"does, and its kernel(step) {_IGNORES_RATE}")


def _require_kernel_agrees(
    optimizer: RowOptimizer, operations: RowOperations, weights: Tensor, gradients: Tensor, expected: Tensor
) -> None:
    """Check that a kernel is known, fits what is kept for a row, and gives the bits of the formula, step by step.

    Args:
        optimizer: whose formula and kernel they are.
        operations: have the kernels; the reference backend's have none, and then only the form of the call is checked.
        weights: `[N, D]`.
        gradients: `[steps, N, D]`.
        expected: what the formula makes of them.
    """
    tables = _new_tables(optimizer, weights)
    slots = torch.arange(len(weights), dtype=torch.int32, device=weights.device)
    for step, gradient in enumerate(gradients, 1):
        call = optimizer.kernel(step)
        kernel = None if call is None else operations.update_kernel(_known(call, optimizer).name, weights.shape[1])
        if call is None or kernel is None:
            optimizer.update(tables[0], tuple(tables[1:]), gradient.clone(), step)
        else:
            kernel(tables[0], tables[1:], slots, gradient, call.numbers)
    if not torch.equal(torch.cat(tables, dim=1).view(torch.int32), expected.view(torch.int32)):
        raise _FormulaError("and its kernel(step) give different bits: let both give the same, or leave kernel out")


def _known(call: object, optimizer: RowOptimizer) -> KernelCall:
    """What `kernel` gives, which must be the call of a kernel for such rows."""
    if not isinstance(call, KernelCall):
        raise _FormulaError(f"works, but its kernel(step) gives {call!r}: return a KernelCall(name, numbers), or None")
    shape = UPDATE_KERNELS.get(call.name)
    if shape is None:
        raise _FormulaError(f"works, but there is no kernel {call.name!r}: use one of {', '.join(UPDATE_KERNELS)}")
    kept = tuple(part.per_weight for part in optimizer.state)
    numbers = len(call.numbers) if isinstance(call.numbers, tuple) else None
    if (kept, numbers) != (shape.per_weight, shape.numbers):
        raise _FormulaError(
            f"works, but its kernel {call.name!r} takes {counted(shape.numbers, 'number')} and a state with per_weight "
            f"= {list(shape.per_weight)}; it has {call.numbers!r} and {list(kept)}"
        )
    return call


_IGNORES_RATE = (
    "does not follow [rows_rate]: take self.rate(step) instead of self.settings.lr, or leave [rows_rate] out"
)


class _FormulaError(Exception):
    """What is wrong with a formula, to be read after "its update"."""


def _parts(rows: int) -> Iterator[Tensor]:
    """Rows by themselves, without the first one, and in another order."""
    everywhere = torch.arange(rows)
    yield from (everywhere[place : place + 1] for place in (0, rows // 2, rows - 1))
    yield everywhere[1:]
    yield everywhere.flip(0)


def _after_steps(optimizer: RowOptimizer, weights: Tensor, gradients: Tensor) -> Tensor:
    """Weights and state of new rows after some steps, float32 `[N, D + state]`.

    Args:
        optimizer: whose formula it is.
        weights: `[N, D]`.
        gradients: `[steps, N, D]`.
    """
    tables = _new_tables(optimizer, weights)
    shapes = [table.shape for table in tables]
    for step, gradient in enumerate(gradients, 1):
        given = gradient.clone()
        if optimizer.update(tables[0], tuple(tables[1:]), given, step) is not None:
            raise _FormulaError("returns something: change weights and state in place, and return nothing")
        if [table.shape for table in tables] != shapes:
            raise _FormulaError(f"changes shapes from {_text(shapes)} to {_text([table.shape for table in tables])}")
        if not torch.equal(given, gradient):
            raise _FormulaError("changes the gradients, which others read: work on copies")
    return torch.cat(tables, dim=1)


def _new_tables(optimizer: RowOptimizer, weights: Tensor) -> list[Tensor]:
    """Copies of weights, and the state of rows that are new."""
    rows, width = weights.shape
    return [weights.clone(), *(weights.new_full((rows, part.width(width)), part.first) for part in optimizer.state)]


def _text(shapes: list[torch.Size]) -> str:
    return ", ".join(str(list(shape)) for shape in shapes)
