"""Which device a trainer takes, and what is refused before anything starts."""

import pytest
import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.roles.model_setup import choose_device


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_cpu_is_always_there() -> None:
    assert choose_device("cpu", 5, reduces_on_gpu=False) == torch.device("cpu")


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
    with pytest.raises(ConfigError, match=r"train\.device = 'cuda': torch sees 2 GPUs here, and this is trainer 2 "):
        choose_device("cuda", 2)


@pytest.mark.usefixtures("two_gpus")
def test_gpus_are_of_no_use_where_gradients_cannot_be_summed() -> None:
    assert choose_device("auto", 0, reduces_on_gpu=False) == torch.device("cpu")
    with pytest.raises(ConfigError, match="built without NCCL"):
        choose_device("cuda", 0, reduces_on_gpu=False)
