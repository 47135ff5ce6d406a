"""What a GPU trainer relies on: the order of work on two streams, and the lives of arrays and tensors on the way."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from bagpipe_hpc.kernels.device import Device, open_device

pytestmark = pytest.mark.gpu

SLEEP_CYCLES = 100_000_000
"""Some 50 ms in which a stream does nothing: whoever does not wait for it comes too early."""


@pytest.fixture
def gpu() -> Iterator[Device]:
    yield open_device(torch.device("cuda"))
    torch.cuda.synchronize()


def test_numbers_come_back(gpu: Device) -> None:
    for array in (np.arange(12, dtype=np.int32), np.zeros((0, 3), np.float32), np.ones((2, 3), np.float32)):
        tensor = gpu.to_device(array)
        assert tensor.device == gpu.torch_device
        np.testing.assert_array_equal(gpu.to_host(tensor), array)
    np.testing.assert_array_equal(gpu.to_host(gpu.to_device(np.eye(3, 4)).t()), np.eye(4, 3))


def test_new_arrays_are_pinned(gpu: Device) -> None:
    assert torch.from_numpy(gpu.new_array((300, 7))).is_pinned()


def test_an_array_under_way_is_not_given_out_again(gpu: Device) -> None:
    """The copy starts late; meanwhile the array is given up and others of its size are filled with other numbers."""
    torch.cuda._sleep(SLEEP_CYCLES)
    array = gpu.new_array((1000, 100))
    array[:] = 1.0
    tensor = gpu.to_device(array)
    del array
    others = [gpu.new_array((1000, 100)) for _ in range(4)]
    for other in others:
        other[:] = 2.0
    assert (gpu.to_host(tensor) == 1.0).all()


def test_a_follower_sees_what_another_stream_does_late(gpu: Device) -> None:
    values = torch.zeros(1000, device=gpu.torch_device)
    torch.cuda.synchronize()
    marks = []

    def write_late() -> None:
        with gpu.own_stream():
            assert torch.cuda.current_stream() != torch.cuda.default_stream()
            torch.cuda._sleep(SLEEP_CYCLES)
            values.fill_(1.0)
            marks.append(gpu.mark())

    thread = threading.Thread(target=write_late)
    thread.start()
    thread.join()
    assert not marks[0].query(), "the stream was to be late"
    gpu.follow(marks[0])
    assert (gpu.to_host(values) == 1.0).all()


def test_a_followed_tensor_outlives_its_maker(gpu: Device) -> None:
    """The follower's work on a tensor starts late; its maker has given it up and asks for as much memory again."""
    with gpu.own_stream():
        values = torch.ones(250_000, device=gpu.torch_device)
        mark = gpu.mark()
        maker = torch.cuda.current_stream()
    gpu.follow(mark, values)
    torch.cuda._sleep(SLEEP_CYCLES)
    doubled = values * 2
    del values
    with torch.cuda.stream(maker):
        for _ in range(4):
            torch.zeros(250_000, device=gpu.torch_device)
    assert (gpu.to_host(doubled) == 2.0).all()


def test_waiting_for_a_mark_waits(gpu: Device) -> None:
    torch.cuda._sleep(SLEEP_CYCLES)
    mark = gpu.mark()
    gpu.wait(mark)
    assert mark is not None
    assert mark.query()
