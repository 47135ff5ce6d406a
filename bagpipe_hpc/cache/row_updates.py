"""Updates rows: by a native kernel where the optimizer has one, else by its formula on copies of the rows."""

from collections.abc import Sequence

from torch import Tensor

from bagpipe_hpc.cache.row_clipping import clip_rows
from bagpipe_hpc.cache.row_decay import RowDecay
from bagpipe_hpc.kernels.rows.row_operations import RowOperations
from bagpipe_hpc.rows.optimizers.contract import RowOptimizer


def update_rows(
    operations: RowOperations,
    optimizer: RowOptimizer,
    weights: Tensor,
    state: Sequence[Tensor],
    slots: Tensor,
    gradients: Tensor,
    step: int,
    clip_norm: float = 0.0,
    decay: RowDecay | None = None,
) -> None:
    """Update distinct rows in place; both ways give the same bits.

    Args:
        operations: row operations on the tables' device.
        optimizer: whose formula it is.
        weights: of all rows, float32 `[R, D]`.
        state: a table for each of the optimizer's `state`, float32 `[R, D]` or `[R, 1]`.
        slots: of the rows, int32 `[N]`; nothing is done for none.
        gradients: of the global-batch mean loss, float32 `[N, D]`.
        step: number of the training step that they come from, from 1.
        clip_norm: largest norm of a row's gradient, see `clip_rows`; 0 for any.
        decay: of the rows' weights; None for none.
    """
    if not slots.numel():
        return
    if clip_norm:
        gradients = clip_rows(gradients, clip_norm)
    if decay is not None:
        rate = optimizer.rate(step) if decay.is_decoupled else 0.0
        gradients = decay.apply(operations, weights, slots, gradients, rate)
    call = optimizer.kernel(step)
    if call and (kernel := operations.update_kernel(call.name, weights.shape[1])):
        kernel(weights, state, slots, gradients, call.numbers)
        return
    tables = [weights, *state]
    new_weights, *new_state = rows = [operations.gather(table, slots) for table in tables]
    optimizer.update(new_weights, tuple(new_state), gradients, step)
    for table, values in zip(tables, rows, strict=True):
        operations.scatter_records([table], slots, values)
