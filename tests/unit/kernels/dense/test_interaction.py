"""The interaction's kernel against its torch twin, bit for bit, and the twin against the formula in float64."""

import numpy as np
import pytest
import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.dense.interaction import (
    InteractionKernel,
    NativeInteraction,
    ReferenceInteraction,
    interaction_kernel,
)
from bagpipe_hpc.models.layers import interaction as models_interaction
from bagpipe_hpc.models.layers.interaction import interaction_on, kernel_interaction, torch_interaction
from tests.instruction_sets import each_instruction_set

SHAPES = [(9, 26, 16), (3, 26, 48), (5, 1, 1), (2, 3, 17), (4, 40, 5), (7, 15, 16), (2, 16, 33), (0, 26, 16)]
SHAPES += [(33, 26, 16), (17, 5, 64), (16, 4, 112), (18, 2, 80), (20, 0, 16)]
"""(B, F, D): Criteo's; one pair; widths and counts below, at and above whole registers and row blocks; no samples;
groups of 16 samples and the rest of one; one to four registers of columns at once; no pair."""

needs_native = pytest.mark.skipif(not shared_library.is_built("interaction"), reason="_interaction.so is not built")


def inputs(samples: int, features: int, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients `[B, D + P]`, bottom `[B, D]` and embeddings `[B, F, D]`, over many orders of magnitude."""
    generator = torch.Generator().manual_seed(features * width)
    shapes = ((samples, width + features * (features + 1) // 2), (samples, width), (samples, features, width))
    return tuple(  # type: ignore[return-value]
        torch.randn(shape, generator=generator) * 10 ** torch.empty(shape).uniform_(-3, 3, generator=generator)
        for shape in shapes
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_the_twin_computes_the_formula(shape: tuple[int, int, int]) -> None:
    gradients, bottom, embeddings = inputs(*shape)
    twin = ReferenceInteraction()
    exact = [part.double().requires_grad_() for part in (bottom, embeddings)]
    expected = torch_interaction(*exact)
    expected.backward(gradients.double())
    found = [twin.forward(bottom, embeddings), *twin.backward(gradients, bottom, embeddings)]
    for part, value in zip(found, [expected.detach(), *(leaf.grad for leaf in exact)], strict=True):
        assert part.shape == value.shape
        scale = max(1.0, value.abs().max().item()) if value.numel() else 1.0
        np.testing.assert_allclose(part.numpy() / scale, value.numpy() / scale, atol=1e-6)


@needs_native
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_instruction_set_gives_the_twins_bits(shape: tuple[int, int, int], threads: int) -> None:
    gradients, bottom, embeddings = inputs(*shape)

    def results(kernel: InteractionKernel) -> tuple[torch.Tensor, ...]:
        return kernel.forward(bottom, embeddings), *kernel.backward(gradients, bottom, embeddings)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = results(ReferenceInteraction())
        for number in each_instruction_set("interaction"):
            for twin, native in zip(expected, results(NativeInteraction()), strict=True):
                assert native.is_contiguous()
                np.testing.assert_array_equal(twin.numpy().view(np.int32), native.numpy().view(np.int32), str(number))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kernel", [ReferenceInteraction, pytest.param(NativeInteraction, marks=needs_native)])
def test_nan_reaches_every_pair_of_its_vector(kernel: type) -> None:
    """And no other: a model that has diverged must not look healthy, nor another sample ill."""
    gradients, bottom, embeddings = inputs(3, 5, 17)
    embeddings[1, 2, 4] = torch.nan
    first, second = torch.tril_indices(6, 6, offset=-1)
    pairs = kernel().forward(bottom, embeddings)[:, 17:].isnan()
    assert torch.equal(pairs, torch.arange(3).eq(1)[:, None] & (first.eq(3) | second.eq(3)))
    for_bottom, for_embeddings = kernel().backward(gradients, bottom, embeddings)
    assert torch.equal(for_bottom.isnan(), (torch.arange(3).eq(1)[:, None] & torch.arange(17).eq(4)))
    hit = torch.arange(3).eq(1)[:, None, None] & torch.arange(5).ne(2)[:, None] & torch.arange(17).eq(4)
    assert torch.equal(for_embeddings.isnan(), hit)


@pytest.mark.parametrize("default", [torch.float16, torch.float64])
@pytest.mark.parametrize("kernel", [ReferenceInteraction, pytest.param(NativeInteraction, marks=needs_native)])
def test_torchs_default_type_changes_nothing(kernel: type, default: torch.dtype) -> None:
    """A model may set it: native code would write float32 beyond memory of 16-bit numbers."""
    gradients, bottom, embeddings = inputs(7, 5, 17)
    expected = [kernel().forward(bottom, embeddings), *kernel().backward(gradients, bottom, embeddings)]
    torch.set_default_dtype(default)
    try:
        found = [kernel().forward(bottom, embeddings), *kernel().backward(gradients, bottom, embeddings)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert [part.dtype for part in found] == [torch.float32] * 3
    assert all(torch.equal(part, value) for part, value in zip(found, expected, strict=True))


@needs_native
def test_native_code_refuses_what_it_would_misread() -> None:
    gradients, bottom, embeddings = inputs(4, 3, 8)
    kernel = NativeInteraction()
    with pytest.raises(ValueError, match=r"bottom is torch.float64 .*: native code needs contiguous float32 \(4, 8\)"):
        kernel.forward(bottom.double(), embeddings)
    with pytest.raises(ValueError, match=r"embeddings is .* needs contiguous float32 \(4, 3, 8\)"):
        kernel.forward(bottom, embeddings.transpose(0, 1).contiguous().transpose(0, 1))
    every_second = torch.cat((gradients, gradients), dim=1)[:, ::2]
    for wrong in (gradients[:, :13], every_second, gradients[:1].expand(4, -1), gradients.double()):
        with pytest.raises(ValueError, match=r"gradients is .*needs contiguous rows of float32 \(4, 14\)"):
            kernel.backward(wrong, bottom, embeddings)


@pytest.mark.parametrize("kernel", [ReferenceInteraction, pytest.param(NativeInteraction, marks=needs_native)])
@pytest.mark.parametrize("samples", [1, 5, 70])
def test_rows_of_gradients_may_have_gaps(kernel: type[InteractionKernel], samples: int) -> None:
    """As those that a product has written to aligned rows; what lies in the gaps is nothing."""
    gradients, bottom, embeddings = inputs(samples, 3, 8)
    spread = torch.full((samples, 19), float("nan"))
    spread[:, :14] = gradients
    found = kernel().backward(spread[:, :14], bottom, embeddings)
    expected = kernel().backward(gradients, bottom, embeddings)
    assert all(torch.equal(part, value) for part, value in zip(found, expected, strict=True))


@pytest.mark.parametrize("backend", ["reference", pytest.param("native", marks=needs_native)])
def test_autograd_goes_through_the_kernel(backend: str) -> None:
    """Also where the vectors, or the gradients, are views that are not contiguous."""
    gradients, bottom, embeddings = inputs(6, 4, 8)
    interaction = kernel_interaction(interaction_kernel(backend))
    expected = ReferenceInteraction().backward(gradients, bottom, embeddings)
    for given in (gradients, gradients.t().contiguous().t(), torch.cat((gradients, gradients), dim=1)[:, :18]):
        leaves = [part.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_() for part in (bottom, embeddings)]
        interaction(*leaves).backward(given)
        for leaf, value in zip(leaves, expected, strict=True):
            assert leaf.grad is not None
            assert torch.equal(leaf.grad, value)


@pytest.mark.usefixtures("nothing_built")
def test_native_code_that_is_not_built_is_refused() -> None:
    assert isinstance(interaction_kernel("auto"), ReferenceInteraction)
    with pytest.raises(ConfigError, match=r"_interaction\.so was not built"):
        interaction_kernel("native")


def test_a_device_keeps_the_pairs_of_each_number_of_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    interaction, made = interaction_on(torch.device("cpu")), []
    pairs_of = models_interaction._pairs
    inputs = [(torch.randn(5, 4), torch.randn(5, features, 4)) for features in (3, 26, 3)]
    expected = [torch_interaction(*both) for both in inputs]

    def make(count: int, device: torch.device) -> torch.Tensor:
        made.append(count)
        return pairs_of(count, device)

    monkeypatch.setattr(models_interaction, "_pairs", make)
    assert all(torch.equal(interaction(*both), own) for both, own in zip(inputs, expected, strict=True))
    assert made == [4, 27]
