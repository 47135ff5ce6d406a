"""Which device a trainer takes, and what is refused before anything starts."""

import pytest
import torch

from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.step.compute_setup import check_gpu_memory, choose_device


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_cpu_is_always_there() -> None:
    assert choose_device("cpu", 5) == torch.device("cpu")


@pytest.mark.usefixtures("two_gpus")
def test_every_trainer_of_a_host_takes_a_gpu_of_its_own() -> None:
    assert [choose_device("auto", rank) for rank in range(3)] == [
        torch.device("cuda", 0),
        torch.device("cuda", 1),
        torch.device("cpu"),
    ]
    assert choose_device("cuda", 1) == torch.device("cuda", 1)


@pytest.mark.usefixtures("two_gpus")
def test_a_trainer_without_a_gpu_is_refused_where_one_is_asked_for() -> None:
    with pytest.raises(
        ConfigError, match=r"train\.device = 'cuda': torch sees 2 GPUs here, and this is trainer 2 of those"
    ):
        choose_device("cuda", 2)


def test_a_cache_that_does_not_fit_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1_000_000, 9_000_000))
    gpu = torch.device("cuda", 1)
    check_gpu_memory(gpu, cache_rows=9_000, row_bytes=100, dense_bytes=100_000)
    with pytest.raises(CapacityError, match=r"9000 rows takes 1 MB and the .* 0 MB, but cuda:1 has 1 MB free: set a"):
        check_gpu_memory(gpu, cache_rows=9_000, row_bytes=100, dense_bytes=100_001)
