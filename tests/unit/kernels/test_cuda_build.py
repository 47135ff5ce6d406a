"""The CUDA library that setup.py builds: for which GPUs, with which functions. Needs nvcc, but no GPU."""

import ctypes
import re
import shutil
import struct
from pathlib import Path

import pytest
import torch

from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.rows.cuda import CudaRowOperations

KERNELS = Path(shared_library.__file__).parent
FATBIN_MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, MACHINE_CODE = 1, 2


@pytest.fixture
def library() -> ctypes.CDLL:
    if not shared_library.is_built("cuda"):
        assert shutil.which("nvcc") is None, "nvcc is on PATH, but setup.py has not built _cuda.so: run make setup"
        pytest.skip("needs nvcc when setup.py runs")
    return shared_library.load("cuda")


def embedded_code(content: bytes) -> list[set[tuple[int, int]]]:
    """What each .cu file brought: pairs of kind and compute capability, read from the library's fat binaries."""
    found: list[set[tuple[int, int]]] = []
    start = content.find(FATBIN_MAGIC)
    while start >= 0:
        header_bytes, bytes_left = struct.unpack_from("<HQ", content, start + 6)
        place, end, entries = start + header_bytes, start + header_bytes + bytes_left, set()
        while place < end:
            kind, _, entry_header_bytes, entry_bytes = struct.unpack_from("<HHIQ", content, place)
            entries.add((kind, struct.unpack_from("<I", content, place + 28)[0]))
            place += entry_header_bytes + entry_bytes
        found.append(entries)
        start = content.find(FATBIN_MAGIC, end)
    return found


@pytest.mark.usefixtures("library")
def test_every_kernel_is_there_for_both_gpus_and_as_ptx() -> None:
    content = (KERNELS / "_cuda.so").read_bytes()
    wanted = {(MACHINE_CODE, 80), (MACHINE_CODE, 90), (PTX, 90)}
    complete = [entries for entries in embedded_code(content) if entries >= wanted]
    assert len(complete) == len(list(KERNELS.glob("csrc/cuda_*.cu")))


def test_every_declared_function_is_exported(library: ctypes.CDLL) -> None:
    header = (KERNELS / "csrc/cuda_row_operations.h").read_text()
    declared = re.findall(r"^BAGPIPE_EXPORT.* \*?(bagpipe_\w+)\(", header, re.MULTILINE)
    assert len(declared) == 17
    assert all(hasattr(library, name) for name in declared)


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what happens without a GPU")
def test_without_a_gpu_the_library_loads_and_says_what_is_missing(library: ctypes.CDLL) -> None:
    operations = CudaRowOperations(library, torch.device("cpu"), lambda: 0)
    with pytest.raises(RuntimeError, match=r"CUDA could not start gather_records on cpu: .*(driver|device)"):
        operations.gather(torch.zeros(2, 4), torch.zeros(1, dtype=torch.int32))
