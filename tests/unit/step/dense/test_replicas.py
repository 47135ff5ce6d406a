"""Copies of the dense half that differ in a bit are told apart, and whoever drifted is named."""

import pytest
import torch

from bagpipe_hpc.errors import ConsistencyError
from bagpipe_hpc.step.dense.replicas import Digests, dense_digests, require_equal_replicas


def trained(seed: int = 0) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def drifted(what: str) -> Digests:
    """The digests after one bit has changed in a weight, or in the optimizer's state of it."""
    model, optimizer = trained()
    tensor = model[1].weight if what == "weight" else optimizer.state[model[1].weight]["exp_avg_sq"]
    with torch.no_grad():
        tensor[0, 2] = torch.nextafter(tensor[0, 2], torch.tensor(9.0))
    return dense_digests(model, optimizer)


def complaint(replicas: list[Digests]) -> str:
    with pytest.raises(ConsistencyError) as error:
        require_equal_replicas(40, [f"trainer {number}" for number in range(len(replicas))], replicas)
    return str(error.value)


def test_equal_replicas_pass() -> None:
    require_equal_replicas(40, ["trainer 0", "trainer 1"], [dense_digests(*trained()), dense_digests(*trained())])


@pytest.mark.parametrize(("what", "name"), [("weight", "1.weight."), ("state", "1.weight, 'exp_avg_sq' of the optimi")])
def test_the_one_that_drifted_is_named(what: str, name: str) -> None:
    sound, other = dense_digests(*trained()), drifted(what)
    for number in range(3):
        replicas = [other if number == trainer else sound for trainer in range(3)]
        found = complaint(replicas)
        assert (
            f"after step 40: trainer {number} drifted from the 2 others: 1 of 16 tensors, the first is {name}" in found
        )


def test_saved_buffers_are_among_them() -> None:
    """No step changes them; one that differs makes other gradients."""

    def digests(shift: float) -> Digests:
        model, optimizer = trained()
        model.register_buffer("shift", torch.tensor(shift))
        model.register_buffer("scratch", torch.rand(3), persistent=False)
        return dense_digests(model, optimizer)

    require_equal_replicas(40, ["trainer 0", "trainer 1"], [digests(0.5), digests(0.5)])
    assert "1 of 17 tensors, the first is shift" in complaint([digests(0.5), digests(0.25)])


def test_what_has_not_been_trained_has_another_cure() -> None:
    with pytest.raises(ConsistencyError, match=r"step 0: trainer 1 drifted .* not been trained yet: let all hosts"):
        require_equal_replicas(0, ["a", "trainer 1"], [dense_digests(*trained()), drifted("weight")], are_new=True)


def test_of_two_the_first_is_taken_as_right() -> None:
    sound, other = dense_digests(*trained()), drifted("weight")
    assert "trainer 1 drifted from the 1 others" in complaint([sound, other])
    assert "trainer 1, trainer 3 drifted from the 2 others" in complaint([sound, other, sound, drifted("state")])
    assert "trainer 1, trainer 2 drifted" in complaint([sound, other, other, sound])
