"""The CUDA row operations on a GPU equal the torch twin on the CPU to the last bit."""

import pytest
import torch
from torch import Tensor

from bagpipe_hpc.kernels.dense.finite_notes import CudaNotes, FiniteNotes, finite_notes
from bagpipe_hpc.kernels.rows.cuda import CudaRowOperations
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from tests import cuda_row_cases as cases

pytestmark = pytest.mark.gpu

widths = pytest.mark.parametrize("width", [1, 3, 4, 6, 16, 20, 48, 64, 65, 128, 130, 256, 1030, 1032, 4100])
"""In units of 4 and of 16 bytes; rows of more units than a block has threads."""

ROWS = (0, 1, 7, 700, 20_000)


@pytest.fixture(scope="module")
def operations() -> CudaRowOperations:
    chosen = row_operations("native", torch.device("cuda", 0))
    assert isinstance(chosen, CudaRowOperations)
    return chosen


def on_gpu(tensor: Tensor) -> Tensor:
    return tensor.to("cuda:0")


@widths
@cases.alignments
def test_copies(operations: CudaRowOperations, width: int, offset: int) -> None:
    for rows in ROWS:
        cases.check_copies(operations, on_gpu, min(rows, 4_000_000 // width), width, offset)


@cases.optimizers
@widths
@cases.alignments
def test_updates(operations: CudaRowOperations, optimizer: str, width: int, offset: int) -> None:
    for rows in ROWS:
        cases.check_update(operations, on_gpu, optimizer, min(rows, 4_000_000 // width), width, offset)


@widths
@cases.alignments
def test_sums(operations: CudaRowOperations, width: int, offset: int) -> None:
    for rows in (1, 60, 3000):
        lengths = cases.segment_lengths(rows, most=16_384)
        while sum(lengths) * width > 20_000_000:
            lengths = lengths[: len(lengths) // 2]
        cases.check_sums(operations, on_gpu, lengths, width, offset)


@pytest.mark.parametrize("width", [6, 16, 48, 130])
@cases.alignments
def test_pooling(operations: CudaRowOperations, width: int, offset: int) -> None:
    cases.check_pooling(operations, on_gpu, cases.segment_lengths(2000, most=500), width, offset)
    cases.check_pooling(operations, on_gpu, [0, 0], width, offset)


def test_sums_of_many_rows_have_the_same_bits_in_every_run(operations: CudaRowOperations) -> None:
    """300,000 look-ups as of a large batch, many blocks at once."""
    positions = cases.look_up_positions(cases.segment_lengths(60_000, most=10_000))
    gradients = on_gpu(cases.numbers(7, positions.numel(), 64))
    first, *others = (operations.sum_by_position(gradients, on_gpu(positions), 60_000) for _ in range(5))
    for other in others:
        cases.assert_same_bits(other, first.cpu())


def test_work_goes_on_the_current_stream(operations: CudaRowOperations) -> None:
    """A gather on a side stream sees what that stream wrote just before, though the default stream never waited."""
    table, slots = torch.zeros(200_000, 64, device="cuda:0"), torch.arange(200_000, dtype=torch.int32, device="cuda:0")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # some 30 ms: work on another stream would come before the next line
        table.fill_(1.0)
        copied = operations.gather(table, slots)
    side.synchronize()
    assert bool((copied == 1.0).all())


@widths
@cases.alignments
def test_noted_rows(width: int, offset: int) -> None:
    for rows in (1, 700, 20_000):
        cases.check_noted_rows(notes, on_gpu, min(rows, 4_000_000 // width), width, offset)


@cases.alignments
@pytest.mark.parametrize("count", [2, 70, 200])
def test_noted_tensors(count: int, offset: int) -> None:
    cases.check_noted_tensors(notes, on_gpu, count, offset)


def notes(kinds: int) -> FiniteNotes:
    made = finite_notes("native", torch.device("cuda", 0), kinds)
    assert isinstance(made, CudaNotes)
    return made


def test_notes_of_two_streams_are_kept_apart() -> None:
    """The earlier step is told, though its stream is late."""
    made, device = notes(1), "cuda:0"
    bad, good = torch.full((3,), torch.nan, device=device), torch.ones(3, device=device)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        made.see_tensors(0, 4, [good, good, bad])
    made.see_tensors(0, 5, [good, bad])
    assert made.read() == [(4, 2)]
