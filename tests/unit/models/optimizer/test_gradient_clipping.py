"""The dense gradient is clipped as torch clips it, with bits that do not depend on where it lies in memory."""

import math

import pytest
import torch
from torch import Tensor, nn

from bagpipe_hpc.models.optimizer.gradient_clipping import clip_dense

SHAPES = [(300, 7), (300,), (1,), (2, 3, 4)]


def weights(scale: float, *, offset: int = 0) -> list[nn.Parameter]:
    """Parameters with gradients; with an offset these are views of one buffer, as those that are summed."""
    generator = torch.Generator().manual_seed(5)
    made = []
    for shape in SHAPES:
        weight = nn.Parameter(torch.zeros(shape))
        gradient = torch.randn(shape, generator=generator) * scale
        if offset:
            buffer = torch.empty(gradient.numel() + offset)
            buffer[offset:] = gradient.reshape(-1)
            gradient = buffer[offset:].view(shape)
        weight.grad = gradient
        made.append(weight)
    frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    return [*made, frozen]


def gradients(of: list[nn.Parameter]) -> list[Tensor]:
    return [weight.grad for weight in of if weight.grad is not None]


@pytest.mark.parametrize("most", [1e-3, 1.0, 40.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_it_clips_as_torch_does(scale: float, most: float) -> None:
    ours, theirs = weights(scale), weights(scale)
    clip_dense(ours, most)
    nn.utils.clip_grad_norm_(theirs, most)
    for found, expected in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_a_short_gradient_keeps_its_bits() -> None:
    ours, before = weights(1e-3), weights(1e-3)
    clip_dense(ours, 1.0)
    assert all(torch.equal(*pair) for pair in zip(gradients(ours), gradients(before), strict=True))


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_bits_do_not_depend_on_the_memory(offset: int) -> None:
    """Sums over trainers are views of a buffer, those of a single trainer lie by themselves."""
    alone, in_buffer = weights(1.0), weights(1.0, offset=offset)
    for of in (alone, in_buffer):
        clip_dense(of, 1.0)
    assert all(torch.equal(*pair) for pair in zip(gradients(alone), gradients(in_buffer), strict=True))


def test_numbers_whose_squares_overflow_are_clipped() -> None:
    ours = weights(1e30)
    clip_dense(ours, 1.0)
    norm = torch.cat([gradient.reshape(-1) for gradient in gradients(ours)]).norm()
    assert float(norm) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_what_is_not_finite_is_left_to_be_named(wrong: float) -> None:
    ours, before = weights(1.0), weights(1.0)
    for of in (ours, before):
        assert of[1].grad is not None
        of[1].grad[7] = wrong
    clip_dense(ours, 1.0)
    for found, expected in zip(gradients(ours), gradients(before), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
