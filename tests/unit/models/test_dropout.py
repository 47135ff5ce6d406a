"""A mask is a function of seed, module, call, step, sample and unit, and of nothing else."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bagpipe_hpc.models.dropout import Dropout, DropoutMasks, kept_units, mixed

WORD = 1 << 64


def by_hand(state: int) -> int:
    """SplitMix64 as it was published, in whole numbers of Python."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % WORD
    return state ^ (state >> 31)


def signed(word: int) -> int:
    return word - WORD if word >= WORD // 2 else word


def test_numbers_are_those_of_splitmix64() -> None:
    """The first five for the seed 1234567, as other implementations give them."""
    golden = 0x9E3779B97F4A7C15
    states = torch.tensor([signed((1234567 + turn * golden) % WORD) for turn in range(1, 6)])
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [int(word) % WORD for word in mixed(states)] == [*published, 16408922859458223821]


@pytest.mark.parametrize("units", [1, 2, 7])
def test_a_mask_is_the_formula(units: int) -> None:
    golden, key, p = 0x9E3779B97F4A7C15, 2**63 + 12345, 0.3
    samples = [0, 5, 70000]
    expected = []
    for sample in samples:
        start = by_hand((sample * golden + key) % WORD)
        words = [by_hand((start + (place + 1) * golden) % WORD) for place in range((units + 1) // 2)]
        drawn = [half for word in words for half in (word % 2**32, word >> 32)][:units]
        uniform = [(number - 2**32 if number >= 2**31 else number) + 2**31 for number in drawn]
        expected.append([float(number >= round(p * 2**32)) for number in uniform])
    assert kept_units(key, torch.tensor(samples), units, p).tolist() == expected


def test_the_share_of_zeros_is_p_for_every_sample_and_unit() -> None:
    samples, units, p = 4000, 501, 0.2
    kept = kept_units(7, torch.arange(samples), units, p)
    assert float(kept.mean()) == pytest.approx(1 - p, abs=4 * (p * (1 - p) / kept.numel()) ** 0.5)
    for dim, number in ((0, samples), (1, units)):
        spread = (p * (1 - p) / number) ** 0.5
        means = kept.mean(dim)
        assert float((means - (1 - p)).abs().max()) < 5 * spread
        assert float(means.std()) == pytest.approx(spread, rel=0.15)
    for neighbours in (kept[1:] * kept[:-1], kept[:, 1:] * kept[:, :-1], kept[:, 2:] * kept[:, :-2]):
        assert float(neighbours.mean()) == pytest.approx((1 - p) ** 2, abs=2e-3)


class Layers(nn.Module):
    """Two modules, of which the second one is called twice."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.first, self.second = Dropout(p), Dropout(p)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack((self.first(inputs), self.second(inputs), self.second(inputs)))


def masks(step: int = 1, seed: int = 3, samples: Tensor | None = None, model: nn.Module | None = None) -> Tensor:
    """Of a pass over ones, `[calls, n, 33]`."""
    model = model or Layers()
    samples = torch.arange(40) if samples is None else samples
    DropoutMasks(model, seed).begin(step, samples)
    found: Tensor = model(torch.ones(len(samples), 33))
    return found


def test_a_samples_mask_does_not_depend_on_its_slice() -> None:
    whole, order = masks(), torch.randperm(40, generator=torch.Generator().manual_seed(1))
    for part in (slice(0, 1), slice(3, 3), slice(5, 40)):
        assert torch.equal(masks(samples=order[part]), whole[:, order[part]])


def test_steps_seeds_modules_calls_and_samples_have_masks_of_their_own() -> None:
    one, other = masks(), masks()
    assert torch.equal(one, other)
    different = [*one, *masks(step=2), *masks(seed=4), *masks(samples=torch.arange(40, 80))]
    for number, mask in enumerate(different):
        for another in different[number + 1 :]:
            assert 0.4 < float((mask == another).float().mean()) < 0.6


def test_what_stays_is_scaled_and_gradients_likewise() -> None:
    model = Dropout(0.25)
    DropoutMasks(model, 1).begin(1, torch.arange(6))
    inputs = torch.rand(6, 3, 4, generator=torch.Generator().manual_seed(2)).requires_grad_()
    outputs = model(inputs)
    kept = outputs != 0
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(outputs, torch.where(kept, inputs / 0.75, 0.0))
    outputs.sum().backward()
    assert inputs.grad is not None
    torch.testing.assert_close(inputs.grad, kept.float() / 0.75)
    assert model(inputs.detach().bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_backward_pass_computes_once_more_has_the_same_mask(*, reentrant: bool) -> None:
    gradients = []
    for is_computed_twice in (False, True):
        model = nn.Sequential(nn.Linear(4, 8), Dropout(), nn.ReLU(), nn.Linear(8, 1))
        for weight in model.parameters():
            nn.init.constant_(weight, 0.5)
        DropoutMasks(model, 1).begin(1, torch.arange(20))
        inputs = torch.linspace(0, 1, 80).reshape(20, 4).requires_grad_()
        outputs = checkpoint(model, inputs, use_reentrant=reentrant) if is_computed_twice else model(inputs)
        outputs.square().sum().backward()
        gradients.append([tensor.grad for tensor in (inputs, *model.parameters())])
    for plain, again in zip(*gradients, strict=True):
        assert torch.equal(plain, again)


def test_a_module_of_several_calls_is_not_computed_once_more() -> None:
    """Nothing says which of its masks that call had."""
    model = Layers()
    DropoutMasks(model, 1).begin(1, torch.arange(3))
    outputs = checkpoint(model, torch.ones(3, 4, requires_grad=True), use_reentrant=False)
    with pytest.raises(
        RuntimeError, match="one of the module's 2 calls once more, and nothing says which: use a module"
    ):
        outputs.sum().backward()


def test_it_does_nothing_in_an_evaluation_or_with_p_0() -> None:
    inputs = torch.rand(4, 5)
    assert Dropout(0.5).eval()(inputs) is inputs
    assert Dropout(0.0)(inputs) is inputs
    assert not DropoutMasks(nn.Linear(2, 3), 1)
    assert DropoutMasks(nn.Sequential(nn.Linear(2, 3), Dropout()), 1)


def test_an_empty_slice_has_no_mask() -> None:
    assert masks(samples=torch.arange(0)).shape == (3, 0, 33)


def test_misuse_is_named() -> None:
    for p in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"use a number from 0 to 0\.999"):
            Dropout(p)
    with pytest.raises(RuntimeError, match="nobody has said which step and samples"):
        Dropout()(torch.ones(2, 3))
    model = Dropout()
    DropoutMasks(model, 1).begin(1, torch.arange(5))
    with pytest.raises(RuntimeError, match=r"shape \[10, 3\] in a pass of 5 samples"):
        model(torch.ones(10, 3))


def test_masks_are_no_part_of_a_models_state() -> None:
    assert not Layers().state_dict()
