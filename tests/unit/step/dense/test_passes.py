"""Gradients of a slice: all of them come, also those on which the loss does not depend."""

import torch
from torch import Tensor, nn

from bagpipe_hpc.models.dropout import Dropout, DropoutMasks
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.facts import FeatureFacts
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.step.dense.passes import forward_backward, predict

FEATURES = (FeatureFacts("C1", 4), FeatureFacts("C2", 4))


class Picky(nn.Module):
    """Reads the first look-up alone, if any; one of its parameters is not used, one is frozen."""

    def __init__(self, *, uses_rows: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.unused = nn.Parameter(torch.ones(2))
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.uses_rows = uses_rows

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        logits: Tensor = self.layer(dense).squeeze(1)
        return logits + self.frozen * embeddings["C1"].sum(1) if self.uses_rows else logits


def inputs(samples: int) -> tuple[Tensor, Tensor, Embeddings]:
    return torch.rand(samples, 3), torch.ones(samples), Embeddings.of_stacked(FEATURES, torch.rand(samples, 2, 4))


def test_look_ups_that_are_not_read_get_zeros() -> None:
    dense, labels, embeddings = inputs(5)
    loss, by_width = forward_backward(Picky(), dense, labels, embeddings, 10)
    gradients = by_width[4]
    assert not loss.requires_grad
    assert gradients.shape == (10, 4)
    assert gradients[::2].all()
    assert not gradients[1::2].any()


def test_a_model_that_reads_no_row_gives_them_zeros() -> None:
    for samples in (5, 0):
        dense, labels, embeddings = inputs(samples)
        _, by_width = forward_backward(Picky(uses_rows=False), dense, labels, embeddings, 10)
        gradients = by_width[4]
        assert gradients.shape == (2 * samples, 4)
        assert not gradients.any()


def test_every_trainable_weight_says_that_its_gradient_is_there() -> None:
    """What sums gradients over the trainers waits for all of them."""
    model, there = Picky(), []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            weight.register_post_accumulate_grad_hook(lambda _, name=name: there.append(name))
    forward_backward(model, *inputs(5), 10)
    assert sorted(there) == ["layer.bias", "layer.weight", "unused"]
    assert model.unused.grad is not None
    assert not model.unused.grad.any()
    assert model.frozen.grad is None


def test_gradients_of_slices_add_up() -> None:
    whole, parts = Picky(), Picky()
    parts.load_state_dict(whole.state_dict())
    dense, labels, embeddings = inputs(6)
    forward_backward(whole, dense, labels, embeddings.detached(), 6)
    for part in (slice(0, 2), slice(2, 2), slice(2, 6)):
        forward_backward(
            parts, dense[part], labels[part], Embeddings.of_stacked(FEATURES, embeddings.stacked().detach()[part]), 6
        )
    for name, weight in whole.named_parameters():
        torch.testing.assert_close(parts.get_parameter(name).grad, weight.grad)


def test_predictions_are_the_logits_of_the_loss() -> None:
    dense, labels, embeddings = inputs(4)
    model = Picky()
    logits = predict(model, dense, embeddings)
    assert not logits.requires_grad
    loss, _ = forward_backward(model, dense, labels, embeddings, 4)
    torch.testing.assert_close(click_loss(logits, labels, 4), loss)


class ViewOfAWeight(Picky):
    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:  # noqa: ARG002
        return self.layer.bias[0].expand(len(dense))


def test_predictions_ask_for_no_gradients() -> None:
    """A view of a weight would, even where nothing else does."""
    dense, _, embeddings = inputs(4)
    assert predict(ViewOfAWeight(), dense, embeddings).numpy().shape == (4,)


class Dropping(Picky):
    """With dropout of all that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = Dropout(0.5)

    def forward(self, dense: Tensor, embeddings: Embeddings) -> Tensor:
        return super().forward(self.dropout(dense), embeddings)


def test_a_sample_has_the_same_mask_in_any_slice() -> None:
    """So slices' gradients add up with dropout, too; and in an evaluation there is none."""
    whole, parts = Dropping(), Dropping()
    parts.load_state_dict(whole.state_dict())
    dense, labels, embeddings = inputs(6)
    everything = torch.arange(6)
    DropoutMasks(whole, 1).begin(3, everything)
    forward_backward(whole, dense, labels, Embeddings.of_stacked(FEATURES, embeddings.stacked().clone()), 6)
    for part in (slice(4, 6), slice(0, 4)):
        DropoutMasks(parts, 1).begin(3, everything[part])
        rows = Embeddings.of_stacked(FEATURES, embeddings.stacked()[part].clone())
        forward_backward(parts, dense[part], labels[part], rows, 6)
    gradients = [dict(model.named_parameters()) for model in (whole, parts)]
    for name in ("layer.weight", "layer.bias"):
        torch.testing.assert_close(gradients[0][name].grad, gradients[1][name].grad)
    first = predict(whole, dense, embeddings)
    assert torch.equal(first, predict(whole, dense, embeddings))
    torch.testing.assert_close(first, Picky.forward(whole, dense, embeddings).detach())
    assert not whole.training
