"""Native row operations give the bits of plain torch, for every width, instruction set, size and number of threads."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.rows import native
from bagpipe_hpc.kernels.rows.native import NativeRowOperations
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from bagpipe_hpc.kernels.rows.row_operations import RowOperations, row_operations
from bagpipe_hpc.kernels.rows.update_kernels import UPDATE_KERNELS
from tests.instruction_sets import each_instruction_set, each_way_to_store
from tests.row_optimizers import BUILT_IN, row_optimizer

CPU = torch.device("cpu")
ROWS, USED = 300, 200
WIDTHS = (1, 7, 8, 16, 31, 32, 48, 64, 96, 100, 128, 256)

pytestmark = pytest.mark.skipif(not shared_library.is_built(native.LIBRARY), reason="_row_operations.so is not built")


@cache
def floats(seed: int, *shape: int) -> Tensor:
    """Numbers of both signs over many orders of magnitude, with zeros of both signs among them; not to be changed."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, shape) * (rng.random(shape) > 0.1)
    return torch.from_numpy(values.astype(np.float32))


@cache
def integers(seed: int, below: int, count: int) -> Tensor:
    """As popular rows are: half of the numbers come from the first twentieth."""
    draws = np.random.default_rng(seed).random(count) ** 4 * below
    return torch.from_numpy(draws.astype(np.int32))


def results(operations: RowOperations, width: int, look_ups: int) -> dict[str, list[Tensor]]:
    """What every operation makes of the same inputs."""
    slots = torch.from_numpy(np.random.default_rng(1).permutation(ROWS)[:USED].astype(np.int32))
    positions, gradients = integers(2, USED - 3, look_ups), floats(3, USED, width)  # the last positions get no look-up
    table, row_state = floats(4, ROWS, width), floats(5, ROWS, 1).abs()
    state = [floats(seed, ROWS, width).abs() for seed in (6, 7)]
    columns = [table.clone(), row_state.clone(), state[0].clone()]
    operations.scatter_records(columns, slots, floats(8, USED, 2 * width + 1))
    alone = [table.clone()]
    operations.scatter_records(alone, slots, gradients)
    found = {
        "gather": [operations.gather(table, slots)],
        "gather_look_ups": [operations.gather_look_ups(table, slots, positions)],
        "gather_records": [operations.gather_records([table, row_state, state[0]], slots)],
        "scatter_records": columns + alone,
        "sum_by_position": [operations.sum_by_position(floats(9, look_ups, width), positions, USED)],
    }
    for name, kernel in UPDATE_KERNELS.items():
        per_weight = iter(state)
        state_tables = [next(per_weight) if has_all else row_state for has_all in kernel.per_weight]
        weights, *parts = [part.clone() for part in (table, *state_tables)]
        update_rows(operations, OPTIMIZERS[name], weights, parts, slots, gradients, step=3)
        found[name] = [weights, *parts]
    return found


OPTIMIZERS = {name: row_optimizer(name, lr=0.01) for name in BUILT_IN if name != "ftrl"} | {
    "nesterov": row_optimizer("momentum", lr=0.01, nesterov=True),
    "ftrl": row_optimizer("ftrl", lr=0.01, l1=0.3, l2=0.1, beta=0.01),
}
"""By the name of its kernel."""


def pool_layout(look_ups: int, *, is_scaled: bool) -> PoolLayout:
    """Bags of very different sizes, empty ones among them: one of half of the look-ups, and at the end many of one."""
    rng = np.random.default_rng(10)
    singles = look_ups // 4
    drawn = np.minimum(rng.zipf(1.5, look_ups) - 1, 200)
    drawn[3] = look_ups // 2
    ends = np.minimum(np.cumsum(drawn), look_ups - singles)
    starts = np.concatenate(([0], ends[: look_ups // 2], np.arange(look_ups - singles, look_ups + 1)))
    starts[look_ups // 2 + 1] = look_ups - singles
    counts = np.diff(starts)
    outputs = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    scales = floats(11, look_ups) if is_scaled else None
    return PoolLayout(torch.from_numpy(starts.astype(np.int32)), torch.from_numpy(outputs), scales)


def pooled_results(
    operations: RowOperations, table: Tensor, slots: Tensor, positions: Tensor
) -> dict[str, list[Tensor]]:
    """Pooling and its derivative, with scales and without."""
    found: dict[str, list[Tensor]] = {"pool": [], "sum_pooled": []}
    for is_scaled in (False, True):
        layout = pool_layout(len(positions), is_scaled=is_scaled)
        gradients = floats(12, layout.outputs_count, table.shape[1])
        found["pool"].append(operations.pool(table, slots, positions, layout))
        found["sum_pooled"].append(operations.sum_pooled(gradients, positions, USED, None, layout))
    return found


def differing(found: dict[str, list[Tensor]], expected: dict[str, list[Tensor]]) -> list[str]:
    """Operations whose results differ in any bit, be it the sign of a zero."""
    return [
        name
        for name, tensors in expected.items()
        if any(
            not torch.equal(one.view(torch.int32), other.view(torch.int32))
            for one, other in zip(tensors, found[name], strict=True)
        )
    ]


def update(operations: NativeRowOperations, name: str, tables: list[Tensor], slots: Tensor, gradients: Tensor) -> None:
    """Call a kernel with numbers of no importance."""
    weights, *state = tables
    kernel = operations.update_kernel(name, tables[0].shape[1])
    assert kernel is not None
    kernel(weights, state, slots, gradients, [0.5] * UPDATE_KERNELS[name].numbers)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_instruction_set_gives_the_bits_of_torch(width: int) -> None:
    expected = results(ReferenceRowOperations(), width, look_ups=1000)
    for instruction_set in each_instruction_set(native.LIBRARY):
        for way in each_way_to_store(native.LIBRARY):
            found = results(NativeRowOperations(threads=1), width, look_ups=1000)
            assert differing(found, expected) == [], (instruction_set, way)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_give_the_bits_of_torch(threads: int) -> None:
    """With enough look-ups for all of them, and for several pieces of a thread's sum."""
    look_ups = 20000
    expected = results(ReferenceRowOperations(), 48, look_ups)
    assert differing(results(NativeRowOperations(threads), 48, look_ups), expected) == []


def test_many_rows_are_shared_out_over_threads() -> None:
    rows, width = 9000, 128
    slots = torch.from_numpy(np.random.default_rng(1).permutation(rows).astype(np.int32))
    table, gradients = floats(1, rows, width).clone(), floats(2, rows, width)
    expected = table.clone()
    sgd = row_optimizer("sgd", lr=0.5)
    update_rows(ReferenceRowOperations(), sgd, expected, [], slots, gradients, step=1)
    update_rows(NativeRowOperations(threads=3), sgd, table, [], slots, gradients, step=1)
    assert torch.equal(table, expected)


@pytest.mark.parametrize("slot", [-1, ROWS, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("place", [0, 2])
def test_a_slot_outside_the_table_is_refused_before_anything_is_written(slot: int, place: int) -> None:
    operations, table = NativeRowOperations(threads=1), floats(1, ROWS, 8)
    before, values = table.clone(), torch.ones(3, 8)
    slots = torch.tensor([4, 5, 6], dtype=torch.int32)
    slots[place] = slot
    calls: list[Callable[[], object]] = [
        lambda: operations.gather(table, slots),
        lambda: operations.gather_look_ups(table, slots, torch.zeros(1, dtype=torch.int32)),
        lambda: operations.scatter_records([table], slots, values),
        lambda: update(operations, "sgd", [table], slots, values),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=f"slots reach .*{slot}.*: must lie in 0 to {ROWS - 1}"):
            call()
    assert torch.equal(table, before)


def test_a_position_outside_its_range_is_refused() -> None:
    operations, positions = NativeRowOperations(threads=1), torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(IndexError, match="positions reach from 0 to 3: must lie in 0 to 2"):
        operations.sum_by_position(torch.ones(2, 8), positions, 3)
    with pytest.raises(IndexError, match="positions reach from 0 to 3: must lie in 0 to 1"):
        operations.gather_look_ups(floats(1, ROWS, 8), torch.tensor([5, 6], dtype=torch.int32), positions)


@pytest.mark.parametrize(
    ("starts", "outputs", "message"),
    [
        ([0, 1, 3], [0, 1], "starts must ascend from 0 to 2"),
        ([1, 1, 2], [0, 1], "starts must ascend from 0 to 2"),
        ([0, 3, 2], [0, 1], "starts must ascend from 0 to 2"),
        ([0, -1, 2], [0, 1], "starts must ascend from 0 to 2"),
        ([0, 1, 2], [0, 2], "outputs reach from 0 to 2: must lie in 0 to 1"),
        ([0, 1, 2], [-1, 1], "outputs reach from -1 to 1: must lie in 0 to 1"),
    ],
)
def test_a_layout_of_other_look_ups_is_refused(starts: list[int], outputs: list[int], message: str) -> None:
    operations, table = NativeRowOperations(threads=1), floats(1, ROWS, 8)
    slots = positions = torch.tensor([0, 1], dtype=torch.int32)
    layout = PoolLayout(*(torch.tensor(numbers, dtype=torch.int32) for numbers in (starts, outputs)), None)
    with pytest.raises(IndexError, match=message):
        operations.pool(table, slots, positions, layout)
    with pytest.raises(IndexError, match=message):
        operations.sum_pooled(torch.ones(2, 8), positions, 2, None, layout)


def test_what_pooling_would_misread_is_refused() -> None:
    operations, table = NativeRowOperations(threads=1), floats(1, ROWS, 8)
    slots = positions = torch.tensor([0, 1], dtype=torch.int32)
    layout = PoolLayout(torch.tensor([0, 0, 2], dtype=torch.int32), torch.ones(2, dtype=torch.int32), torch.ones(2))
    with pytest.raises(IndexError, match="slots reach"):
        operations.pool(table, slots + ROWS, positions, layout)
    with pytest.raises(IndexError, match="positions reach"):
        operations.pool(table, slots, positions + 1, layout)
    with pytest.raises(IndexError, match="positions reach"):
        operations.sum_pooled(torch.ones(layout.outputs_count, 8), positions, 1, None, layout)
    with pytest.raises(ValueError, match=r"gradients is torch.float32 \(7, 8\)"):
        operations.sum_pooled(torch.ones(7, 8), positions, 2, None, layout)
    with pytest.raises(ValueError, match=r"scales is torch.float32 \(1,\)"):
        operations.pool(table, slots, positions, layout._replace(scales=torch.ones(1)))
    with pytest.raises(ValueError, match=r"starts is torch.int64"):
        operations.pool(table, slots, positions, layout._replace(starts=layout.starts.long()))
    with pytest.raises(ValueError, match=r"outputs is torch.int32 \(1,\)"):
        operations.pool(table, slots, positions, layout._replace(outputs=layout.outputs[:1]))


def test_what_a_kernel_would_misread_is_refused() -> None:
    operations, table = NativeRowOperations(threads=1), floats(1, ROWS, 8)
    slots = torch.tensor([1, 2], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"slots is torch.int64 \(2,\) on cpu: native code needs contiguous int32"):
        operations.gather(table, slots.long())
    with pytest.raises(ValueError, match=r"gradients is torch.float32 \(2, 7\) .* contiguous float32 \(2, 8\)"):
        update(operations, "sgd", [table], slots, torch.ones(2, 7))
    with pytest.raises(ValueError, match=r"gradients is torch.float64"):
        update(operations, "sgd", [table], slots, torch.ones(2, 8).double())
    with pytest.raises(ValueError, match=r"columns is .* contiguous float32"):
        operations.gather(table[:, :4], slots)
    with pytest.raises(ValueError, match=r"columns is torch.float32 \(300, 0\) .* contiguous float32 \(300, 1\)"):
        operations.gather(torch.zeros(ROWS, 0), slots)
    with pytest.raises(ValueError, match=r"records is .* contiguous float32 \(2, 16\)"):
        operations.scatter_records([table, table.clone()], slots, torch.ones(2, 8))
    with pytest.raises(ValueError, match=r"state\[0\] is .* contiguous float32 \(300, 1\)"):
        update(operations, "rowwise_adagrad", [table, table], slots, torch.ones(2, 8))
    with pytest.raises(ValueError, match=r"state\[1\] is .* contiguous float32 \(300, 8\)"):
        update(operations, "adam", [table, table.clone(), table[:2]], slots, torch.ones(2, 8))


def test_every_built_in_optimizer_has_a_kernel() -> None:
    operations = NativeRowOperations(threads=1)
    for name in BUILT_IN:
        call = row_optimizer(name).kernel(1)
        assert call is not None
        assert operations.update_kernel(call.name, 9000) is not None
    assert operations.update_kernel("there_is_none", 1) is None
    assert ReferenceRowOperations().update_kernel("sgd", 1) is None


def test_the_backend_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(row_operations("native", CPU), NativeRowOperations)
    assert isinstance(row_operations("auto", CPU), NativeRowOperations)
    assert isinstance(row_operations("reference", CPU), ReferenceRowOperations)
    monkeypatch.setattr(native, "LIBRARY", "row_operations_that_nobody_built")
    assert isinstance(row_operations("auto", CPU), ReferenceRowOperations)
    with pytest.raises(ConfigError, match=r"kernels.backend = 'native': _row_operations_.*\.so was not built"):
        row_operations("native", CPU)
