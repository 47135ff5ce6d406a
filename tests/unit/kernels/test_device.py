"""On the CPU a device copies nothing and waits for nothing; the GPU's side is tested in tests/gpu."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from bagpipe_hpc.kernels.device import Cpu, open_device


def test_arrays_and_tensors_share_their_memory() -> None:
    cpu = open_device(torch.device("cpu"))
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    tensor = cpu.to_device(array)
    tensor[1, 2] = 50
    assert array[1, 2] == 50
    assert np.shares_memory(cpu.to_host(tensor), array)
    np.testing.assert_array_equal(cpu.to_host(tensor.t()), array.T)


def test_new_arrays_are_plain_memory() -> None:
    array = Cpu().new_array((3, 4))
    assert (array.shape, array.dtype, array.flags.c_contiguous) == ((3, 4), np.float32, True)


def test_nothing_has_to_be_waited_for() -> None:
    cpu = Cpu()
    with cpu.own_stream():
        mark = cpu.mark()
    cpu.follow(mark, torch.ones(2))
    cpu.wait(mark)
    assert mark is None


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Torch computes with two threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def of_another_thread(call: Callable[[], int]) -> int:
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def started_by_a_large_operation() -> int:
    before = set(Path("/proc/self/task").iterdir())  # some of another's team may be ending
    torch.ones(10**6).add_(1)
    return len(set(Path("/proc/self/task").iterdir()) - before)


@pytest.mark.usefixtures("two_threads")
def test_a_second_thread_has_no_team_beside_that_of_the_first() -> None:
    def in_own_stream() -> int:
        with Cpu().own_stream():
            return started_by_a_large_operation()

    assert of_another_thread(started_by_a_large_operation) == 1  # what it would start
    assert of_another_thread(in_own_stream) == 0


@pytest.mark.usefixtures("two_threads")
def test_threads_keep_their_number_beside_and_behind_an_own_stream() -> None:
    def count() -> int:
        with Cpu().own_stream():
            assert torch.get_num_threads() == 1
        return torch.get_num_threads()

    assert of_another_thread(count) == 2
    assert torch.get_num_threads() == 2
