"""What the CUDA row operations must do, for the kernels on a GPU (tests/gpu) and on the emulator (tests/unit/kernels).

Every check compares with the torch twin on the CPU, bit for bit. `on` brings a tensor to where the operations work.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bagpipe_hpc.cache.row_updates import update_rows
from bagpipe_hpc.kernels.dense.finite_notes import FiniteNotes, ReferenceNotes
from bagpipe_hpc.kernels.rows.cuda import CudaRowOperations
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.reference import ReferenceRowOperations
from tests.row_optimizers import BUILT_IN, row_optimizer

LR, STEP = 0.005, 7
TWIN = ReferenceRowOperations()

alignments = pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "unaligned"])
SETTINGS: dict[str, dict[str, Any]] = {"nesterov": {"nesterov": True}, "ftrl": {"beta": 0.5, "l1": 3.0, "l2": 0.1}}
"""Of optimizers that are not taken as they are by default: FTRL's make about half of the weights zero."""
optimizers = pytest.mark.parametrize("optimizer", [*BUILT_IN, "nesterov"])

On = Callable[[Tensor], Tensor]


def numbers(seed: int, rows: int, width: int) -> Tensor:
    """Float32 numbers of both signs over twelve orders of magnitude, and zeros of both signs."""
    rng = np.random.default_rng(seed)
    sign_and_fraction = rng.integers(0, 2**32, (rows, width), dtype=np.uint32) & np.uint32(0x807FFFFF)
    exponent = rng.integers(107, 148, (rows, width), dtype=np.uint32) << np.uint32(23)
    values = (sign_and_fraction | exponent).view(np.float32)
    values[rng.integers(0, 20, (rows, width), dtype=np.uint8) == 0] *= 0.0
    return torch.from_numpy(values)


def distinct_slots(seed: int, count: int) -> Tensor:
    """Slots in a table of `2 * count + 1` rows."""
    return torch.from_numpy(np.random.default_rng(seed).permutation(2 * count + 1)[:count].astype(np.int32))


def placed(on: On, values: Tensor, offset: int) -> Tensor:
    """A copy whose first number lies `offset` numbers behind a boundary of 16 bytes."""
    memory = on(torch.full((values.numel() + 4,), float("nan")))
    start = -memory.data_ptr() // 4 % 4 + offset
    return memory[start : start + values.numel()].view(values.shape).copy_(values)


def assert_same_bits(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == expected.dtype == torch.float32
    np.testing.assert_array_equal(found.cpu().numpy().view(np.int32), expected.numpy().view(np.int32))


def check_copies(operations: CudaRowOperations, on: On, rows: int, width: int, offset: int) -> None:
    """Rows, look-ups that repeat, and records of two to five tables; one kernel moves four."""
    slots = distinct_slots(1, rows)
    table = numbers(2, 2 * rows + 1, width)
    assert_same_bits(operations.gather(placed(on, table, offset), on(slots)), TWIN.gather(table, slots))
    if rows:
        positions = torch.from_numpy(np.random.default_rng(3).integers(0, rows, 2 * rows, dtype=np.int32))
        found = operations.gather_look_ups(placed(on, table, offset), on(slots), on(positions))
        assert_same_bits(found, TWIN.gather_look_ups(table, slots, positions))
    for state in ((1,), (width,), (width, width, 1), (1, width, width, 1)):
        tables = [numbers(4 + part, 2 * rows + 1, columns) for part, columns in enumerate((width, *state))]
        columns = [placed(on, part, offset) for part in tables]
        assert_same_bits(operations.gather_records(columns, on(slots)), TWIN.gather_records(tables, slots))
        records = numbers(9, rows, width + sum(state))
        operations.scatter_records(columns, on(slots), placed(on, records, offset))
        TWIN.scatter_records(tables, slots, records)
        for found, expected in zip(columns, tables, strict=True):
            assert_same_bits(found, expected)


def look_up_positions(lengths: list[int]) -> Tensor:
    """Positions, in random order, of rows that have so many look-ups each."""
    positions = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return torch.from_numpy(np.random.default_rng(5).permutation(positions))


def check_sums(operations: CudaRowOperations, on: On, lengths: list[int], width: int, offset: int) -> None:
    """Sums of segments of given lengths, with the order known before and not."""
    positions, count = look_up_positions(lengths), len(lengths)
    gradients = numbers(6, positions.numel(), width)
    expected = TWIN.sum_by_position(gradients, positions, count)
    order = operations.order_look_ups(on(positions), count)
    for known in (None, order):
        found = operations.sum_by_position(placed(on, gradients, offset), on(positions), count, known)
        assert_same_bits(found, expected)


def check_pooling(operations: CudaRowOperations, on: On, lengths: list[int], width: int, offset: int) -> None:
    """Outputs of so many look-ups, of rows that repeat, and back: with scales and without, the order known or not."""
    look_ups, rows = sum(lengths), 40
    positions = torch.from_numpy(np.random.default_rng(7).integers(0, rows, look_ups, dtype=np.int32))
    table, slots = numbers(8, 2 * rows + 1, width), distinct_slots(9, rows)
    starts = torch.from_numpy(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    outputs = torch.from_numpy(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths))
    gradients = numbers(10, len(lengths), width)
    order = operations.order_look_ups(on(positions), rows)
    for scales in (None, numbers(11, look_ups, 1)[:, 0].contiguous()):
        layout = PoolLayout(starts, outputs, scales)
        there = PoolLayout(on(starts), on(outputs), None if scales is None else on(scales))
        found = operations.pool(placed(on, table, offset), on(slots), on(positions), there)
        assert_same_bits(found, TWIN.pool(table, slots, positions, layout))
        expected = TWIN.sum_pooled(gradients, positions, rows, None, layout)
        for known in (None, order):
            found = operations.sum_pooled(placed(on, gradients, offset), on(positions), rows, known, there)
            assert_same_bits(found, expected)


def segment_lengths(rows: int, most: int) -> list[int]:
    """As of features with few and with many values: long segments between short and empty ones."""
    rng = np.random.default_rng(rows)
    lengths = np.minimum(rng.zipf(1.6, rows), most) - (rng.random(rows) < 0.1)
    critical = (63, 64, 65, 128, 129, 200)  # around a tile, around four
    return [critical[i // 8 % len(critical)] if i % 8 == 3 else int(length) for i, length in enumerate(lengths)]


def check_update(operations: CudaRowOperations, on: On, optimizer: str, rows: int, width: int, offset: int) -> None:
    """Two steps on some of the rows; the others stay."""
    name = "momentum" if optimizer == "nesterov" else optimizer
    rule = row_optimizer(name, lr=LR, **SETTINGS.get(optimizer, {}))
    assert operations.update_kernel(rule.kernel(STEP).name, width) is not None
    state = [part.width(width) for part in rule.state]
    tables = [numbers(10 + part, 2 * rows + 1, columns) for part, columns in enumerate((width, *state))]
    if state:
        tables[1 if optimizer == "ftrl" else -1].abs_()  # where the sums or means of squares are
    placed_tables = [placed(on, table, offset) for table in tables]
    for step in range(2):
        slots, gradients = distinct_slots(step, rows), numbers(20 + step, rows, width)
        weights, *parts = placed_tables
        update_rows(operations, rule, weights, parts, on(slots), placed(on, gradients, offset), STEP)
        weights, *parts = tables
        update_rows(TWIN, rule, weights, parts, slots, gradients, STEP)
    for found, expected in zip(placed_tables, tables, strict=True):
        assert_same_bits(found, expected)


BAD = [torch.nan, -torch.nan, torch.inf, -torch.inf]
LARGEST = torch.finfo(torch.float32).max


def check_noted_rows(make: Callable[[int], FiniteNotes], on: On, rows: int, width: int, offset: int) -> None:
    """Steps without and with several rows that are not finite, in each of a record's tables."""
    for state in ((), (1,), (width,), (width, width, 1), (width, 1, 1, width, 1)):
        found, twin = make(2), ReferenceNotes(torch.device("cpu"), 2)
        tables = [torch.full((2 * rows + 1, columns), LARGEST) for columns in (width, *state)]
        slots, numbers = distinct_slots(1, rows), torch.arange(2 * rows + 1) * 1_000_003
        for table in tables:
            kept = table[slots]
            table.fill_(torch.nan)  # rows that nobody asks for
            table[slots] = kept
        steps = [[], [rows - 1, rows // 3, rows // 2], [0], []]
        for step, places in enumerate(steps, start=7):
            for number, place in enumerate(places):
                tables[-number % len(tables)][int(slots[place]), -1] = BAD[(step + number) % 4]
            there = [placed(on, table, offset) for table in tables]
            for kind, named in enumerate((numbers, None)):
                found.see_rows(kind, step, there, on(slots), None if named is None else on(named))
                twin.see_rows(kind, step, tables, slots, named)
        assert found.read() == twin.read()
        first = int(slots[rows // 3])
        assert twin.read() == [(8, 1_000_003 * first), (8, first)]


def check_noted_tensors(make: Callable[[int], FiniteNotes], on: On, count: int, offset: int) -> None:
    """Of many tensors of all sizes the first one is noted, in the first step that has one."""
    found, twin = make(3), ReferenceNotes(torch.device("cpu"), 3)
    tensors = [torch.full((1 + number % 7, 300 * ((number + 3) % 5)), LARGEST) for number in range(count)]
    tensors[-1] = torch.tensor(1.0)
    tensors[0] = torch.full((3, 2), 1e300, dtype=torch.float64).t()  # no kernel reads it
    half = [place for place in range(count // 2, count) if tensors[place].numel()]
    for step, places in enumerate(([], half, [1], [1]), start=1):
        for place in places:
            tensors[place].view(-1)[-1] = BAD[step % 4]
        for kind in (0, 2) if step < 4 else (0, 1):
            found.see_tensors(
                kind,
                step,
                [on(tensor) if tensor.dtype == torch.float64 else placed(on, tensor, offset) for tensor in tensors],
            )
            twin.see_tensors(kind, step, tensors)
    assert found.read() == twin.read()
    assert twin.read() == [(2, count // 2), (4, 1), (2, count // 2)]
