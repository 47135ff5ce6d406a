"""On the CPU a device copies nothing and waits for nothing; the GPU's side is tested in tests/gpu."""

import numpy as np
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
