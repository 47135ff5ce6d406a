"""The CUDA kernels, compiled by g++ and run thread by thread on the CPU, equal the torch twin to the last bit.

`cuda_emulation` stands in for CUDA's headers. What it cannot show: whether the GPU's own compiler, memory and timing do
the same; tests/gpu runs the same cases there.
"""

import ctypes
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bagpipe_hpc.kernels.dense.finite_notes import CudaNotes, FiniteNotes, ReferenceNotes
from bagpipe_hpc.kernels.rows.cuda import CudaRowOperations
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.update_kernels import UPDATE_KERNELS
from tests import cuda_row_cases as cases

CSRC = Path(__file__).resolve().parents[3] / "bagpipe_hpc" / "kernels" / "csrc"
EMULATION = Path(__file__).parent / "cuda_emulation"
FLAGS = ["-x", "c++", "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
FLAGS += ["-U_FORTIFY_SOURCE"]  # Ubuntu's g++ sets it, by which a jump to another stack ends the process


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    library = tmp_path_factory.mktemp("emulated") / "cuda.so"
    sources = sorted(CSRC.glob("cuda_*.cu"))
    command = ["g++", *FLAGS, "-Wno-unknown-pragmas", f"-I{EMULATION}", f"-I{CSRC}", "-o", library, *sources]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return ctypes.CDLL(str(library))


@pytest.fixture
def operations(emulated: ctypes.CDLL) -> CudaRowOperations:
    return CudaRowOperations(emulated, torch.device("cpu"), lambda: 0)


def test_formulas_without_a_kernel_are_taken_from_torch(operations: CudaRowOperations) -> None:
    assert all(operations.update_kernel(name, 8192) for name in UPDATE_KERNELS)
    assert operations.update_kernel("an optimizer of a user's", 1) is None
    assert [name for name in UPDATE_KERNELS if operations.update_kernel(name, 8193) is None] == [
        *("rowwise_adagrad", "rowwise_adam")
    ]


def here(tensor: Tensor) -> Tensor:
    return tensor.clone()


widths = pytest.mark.parametrize("width", [1, 6, 16, 48, 65, 130, 260])
"""In units of 4 and of 16 bytes; one thread's, more than a tile's columns, more than a warp takes at once."""


@widths
@cases.alignments
@pytest.mark.parametrize("rows", [0, 1, 150])
def test_copies(operations: CudaRowOperations, rows: int, width: int, offset: int) -> None:
    cases.check_copies(operations, here, rows, width, offset)


@cases.optimizers
@widths
@cases.alignments
@pytest.mark.parametrize("rows", [0, 1, 150])
def test_updates(operations: CudaRowOperations, optimizer: str, rows: int, width: int, offset: int) -> None:
    cases.check_update(operations, here, optimizer, rows, width, offset)


@cases.optimizers
def test_wide_rows(operations: CudaRowOperations, optimizer: str) -> None:
    """More units than a block has threads; rows that leave room for few others in shared memory."""
    for width in (1028, 4100):
        cases.check_copies(operations, here, 3, width, offset=0)
        cases.check_update(operations, here, optimizer, 3, width, offset=0)


@widths
@cases.alignments
@pytest.mark.parametrize("rows", [1, 300])
def test_sums(operations: CudaRowOperations, rows: int, width: int, offset: int) -> None:
    cases.check_sums(operations, here, cases.segment_lengths(rows, most=700), width, offset)


@pytest.mark.parametrize("width", [6, 16, 48])
@cases.alignments
def test_pooling(operations: CudaRowOperations, width: int, offset: int) -> None:
    cases.check_pooling(operations, here, cases.segment_lengths(60, most=300), width, offset)
    cases.check_pooling(operations, here, [0, 0], width, offset)


def test_sums_of_many_rows(operations: CudaRowOperations) -> None:
    """More than the blocks that look for long segments see in one round."""
    cases.check_sums(operations, here, cases.segment_lengths(1500, most=70), 6, offset=0)


def test_sums_of_wide_rows(operations: CudaRowOperations) -> None:
    cases.check_sums(operations, here, [1, 70, 0, 5], 1028, offset=0)


def test_sums_without_look_ups_are_zero(operations: CudaRowOperations) -> None:
    nothing = operations.sum_by_position(torch.empty(0, 4), torch.empty(0, dtype=torch.int32), 3)
    assert torch.equal(nothing, torch.zeros(3, 4))


def test_what_does_not_fit_is_refused(operations: CudaRowOperations) -> None:
    table, slots, gradients = torch.zeros(9, 8), torch.arange(3, dtype=torch.int32), torch.zeros(3, 8)
    with pytest.raises(ValueError, match=r"needs a contiguous torch\.int32 tensor there, but got torch\.int64 \[3\]"):
        operations.gather(table, slots.long())
    with pytest.raises(ValueError, match=r"contiguous torch\.float32 tensor there, but got torch\.float64"):
        update(operations, "sgd", [table.double()], slots, gradients)
    with pytest.raises(ValueError, match=r"\[3, 8\] with strides \(16, 2\) on cpu"):
        update(operations, "sgd", [table], slots, torch.zeros(3, 16)[:, ::2])
    with pytest.raises(ValueError, match=r"gradients: shape \[2, 8\] does not fit"):
        update(operations, "sgd", [table], slots, gradients[:2])
    with pytest.raises(ValueError, match=r"state\[0\]: shape \[9, 2\] does not fit"):
        update(operations, "rowwise_adagrad", [table, torch.zeros(9, 2)], slots, gradients)
    with pytest.raises(ValueError, match=r"records: shape \[3, 7\] does not fit"):
        operations.scatter_records([table], slots, torch.zeros(3, 7))


def test_pooling_of_what_does_not_fit_is_refused(operations: CudaRowOperations) -> None:
    """Before anything is read."""
    table, slots, of_two = torch.zeros(9, 8), torch.arange(3, dtype=torch.int32), torch.zeros(2, 8)
    starts, outputs = (torch.tensor(values, dtype=torch.int32) for values in ([0, 1, 4], [0, 1, 1, 1]))
    positions = torch.zeros(4, dtype=torch.int32)
    for scales in (torch.ones(1), torch.ones(3), torch.ones(4, 1)):
        layout = PoolLayout(starts, outputs, scales)
        with pytest.raises(ValueError, match=r"layout\.scales: shape \[.*\] does not fit"):
            operations.pool(table, slots, positions, layout)
        with pytest.raises(ValueError, match=r"layout\.scales: shape \[.*\] does not fit"):
            operations.sum_pooled(of_two, positions, 3, None, layout)
    layout = PoolLayout(starts, outputs, None)
    with pytest.raises(ValueError, match=r"layout\.outputs: shape \[4\] does not fit"):
        operations.pool(table, slots, positions[:3], layout)
    with pytest.raises(ValueError, match=r"layout\.outputs: shape \[4\] does not fit"):
        operations.sum_pooled(of_two, positions[:3], 3, None, layout)
    with pytest.raises(ValueError, match=r"gradients: shape \[1, 8\] does not fit"):
        operations.sum_pooled(of_two[:1], positions, 3, None, layout)
    with pytest.raises(ValueError, match=r"contiguous torch\.int32 tensor there, but got torch\.int64 \[3\]"):
        operations.pool(table, slots, positions, layout._replace(starts=starts.long()))


def update(operations: CudaRowOperations, name: str, tables: list[Tensor], slots: Tensor, gradients: Tensor) -> None:
    """Call a kernel with numbers of no importance."""
    weights, *state = tables
    kernel = operations.update_kernel(name, weights.shape[1])
    assert kernel is not None
    kernel(weights, state, slots, gradients, [0.5] * UPDATE_KERNELS[name].numbers)


def test_what_cuda_says_of_a_failure_is_told(operations: CudaRowOperations) -> None:
    """A table too many: `gather_records` itself gives each kernel the tables that it takes."""
    tables = operations._cuda.tables([torch.zeros(2, 1)] * 5)
    with pytest.raises(RuntimeError, match="CUDA could not start gather_records on cpu: invalid argument"):
        operations._cuda.call("gather_records", *tables, 0, 1, 0)


@widths
@cases.alignments
@pytest.mark.parametrize("rows", [1, 150])
def test_noted_rows(emulated: ctypes.CDLL, rows: int, width: int, offset: int) -> None:
    cases.check_noted_rows(partial(notes, emulated), here, rows, width, offset)


@cases.alignments
@pytest.mark.parametrize("count", [2, 70, 200])
def test_noted_tensors(emulated: ctypes.CDLL, count: int, offset: int) -> None:
    """More than a launch takes."""
    cases.check_noted_tensors(partial(notes, emulated), here, count, offset)


@pytest.mark.parametrize("backend", ["kernels", "torch"])
def test_each_stream_has_notes_of_its_own(emulated: ctypes.CDLL, backend: str) -> None:
    """Whichever thread comes first, the earliest step is told."""
    stream, cpu = [1], torch.device("cpu")
    if backend == "kernels":
        made: FiniteNotes = CudaNotes(emulated, cpu, 2, lambda: stream[0])
    else:
        made = ReferenceNotes(cpu, 2, lambda: stream[0])
    good, bad = torch.zeros(3), torch.full((3,), torch.inf)
    made.see_tensors(0, 5, [good, bad])
    stream[0] = 2
    made.see_tensors(0, 4, [good, good, bad])
    made.see_tensors(1, 6, [good])
    stream[0] = 1
    made.see_tensors(0, 3, [bad])
    assert made.read() == [(4, 2), (0, 0)], "a stream keeps its first note"


def notes(emulated: ctypes.CDLL, kinds: int) -> CudaNotes:
    return CudaNotes(emulated, torch.device("cpu"), kinds, lambda: 0)
