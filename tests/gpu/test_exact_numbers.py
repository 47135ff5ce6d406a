"""What is rounded, clipped or drawn on a GPU has the bits that a CPU gives."""

import pytest
import torch

from bagpipe_hpc.cache.row_clipping import clip_rows
from bagpipe_hpc.kernels.rows.short_floats import short_floats
from bagpipe_hpc.models.dropout import kept_units

pytestmark = pytest.mark.gpu


def gradients() -> torch.Tensor:
    """Rows of norms over eight orders of magnitude."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(500, 13, generator=generator) * 10.0 ** torch.linspace(-6, 2, 500).unsqueeze(1)


def test_masks_of_dropout() -> None:
    samples = torch.arange(300) * 1_000_003
    on_gpu = kept_units(2**63 + 5, samples.cuda(), 77, 0.3)
    assert torch.equal(on_gpu.cpu(), kept_units(2**63 + 5, samples, 77, 0.3))


def test_clipped_rows() -> None:
    assert torch.equal(clip_rows(gradients().cuda(), 0.5).cpu(), clip_rows(gradients(), 0.5))


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_short_numbers(name: str) -> None:
    short = short_floats(name, 2048)
    assert short is not None
    assert torch.equal(short.rounded(gradients().cuda()).cpu(), short.rounded(gradients()))
    assert torch.equal(short.pack(gradients().cuda()).cpu(), short.pack(gradients()))
