"""A model that sleeps computes what a DLRM does, and sleeps for as long as it is told."""

import pytest
import torch

from bagpipe_hpc.config.models import DLRMSettings
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.published.dlrm import DLRM
from benchmarks.jobs.paced_dlrm import PacedDLRM

FACTS = ModelFacts.one_hot(13, 5, 8, seed=3)
WIDTHS = {"bottom_mlp": (16,), "top_mlp": (20,)}
SAMPLES = 6


def passed(model: DLRM) -> list[torch.Tensor]:
    """Logits, and the gradients of rows and weights."""
    generator = torch.Generator().manual_seed(1)
    dense = torch.randn(SAMPLES, 13, generator=generator)
    rows = torch.randn(SAMPLES, 5, 8, generator=generator).requires_grad_()
    logits = model(dense, Embeddings.of_stacked(FACTS.features, rows))
    logits.square().sum().backward()
    gradients = [weight.grad for weight in (rows, *model.parameters())]
    return [logits, *(gradient for gradient in gradients if gradient is not None)]


def test_the_same_numbers_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("benchmarks.jobs.paced_dlrm.time.sleep", slept.append)
    plain, paced = DLRM(FACTS, DLRMSettings(**WIDTHS)), PacedDLRM(FACTS, PacedDLRM.Settings(**WIDTHS, us_per_sample=90))
    wanted, found = passed(plain), passed(paced)
    assert len(found) == len(wanted) == 2 + len(list(plain.parameters()))
    assert all(map(torch.equal, found, wanted))
    # Bottom and top, forward; then top and bottom, backward, which takes twice as long.
    assert slept[2:] == pytest.approx([2 * slept[1], 2 * slept[0]])
    assert sum(slept) == pytest.approx(SAMPLES * 90e-6)
    bottom, top = (sum(weight.numel() for weight in mlp.parameters()) for mlp in (plain.bottom, plain.top))
    assert slept[0] / slept[1] == pytest.approx(bottom / top)


def test_it_does_not_sleep_unless_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("benchmarks.jobs.paced_dlrm.time.sleep", slept.append)
    passed(PacedDLRM(FACTS, PacedDLRM.Settings(**WIDTHS)))
    assert not any(slept)
