"""Gradients of weights that come last: their bits, their order, and what layers say before they read."""

import weakref
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.layers.layer_weights import LayerWeights
from bagpipe_hpc.models.layers.linear import LinearLayer, blas_linear, linear_kernels, onednn_linear

KERNELS = linear_kernels("auto")
WIDTHS = [(13, 32), (32, 16), (16, 32), (32, 32), (32, 1)]
"""Inputs and outputs of layers: two below the rows, three above them, of which the middle one is used twice."""
SAMPLES = 64
Make = Callable[..., LinearLayer]
makes = pytest.mark.parametrize("make", [blas_linear, onednn_linear])


class Net:
    """Layers below and above embeddings; notes in which order its leaves get their gradients."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        draw = partial(torch.randn, generator=generator)
        self.weights = [draw(outputs, inputs).requires_grad_() for inputs, outputs in WIDTHS]
        self.biases = [draw(outputs).requires_grad_() for _, outputs in WIDTHS]
        self.rows = draw(SAMPLES, 16).requires_grad_()
        self.dense = draw(SAMPLES, 13)
        self.order: list[str] = []
        for number, weight in enumerate(self.weights):
            weight.register_post_accumulate_grad_hook(lambda _, number=number: self.order.append(f"weight {number}"))
        self.rows.register_post_accumulate_grad_hook(lambda _: self.order.append("rows"))

    def forward(self, linear: LinearLayer, *, recompute: bool = False) -> Tensor:
        pairs = zip(self.weights, self.biases, strict=True)
        layers = [partial(linear, weight=weight, bias=bias) for weight, bias in pairs]
        below = layers[1](layers[0](self.dense, relu=True), relu=True)
        top = layers[2](below * self.rows, relu=True)
        for _ in range(2):
            top = checkpoint(layers[3], top, relu=True, use_reentrant=False) if recompute else layers[3](top, relu=True)
        return layers[4](top, relu=False).square().mean()

    def gradients(self, linear: LinearLayer, *, recompute: bool = False) -> list[Tensor]:
        """Of a pass; those of every leaf."""
        leaves = [*self.weights, *self.biases, self.rows]
        for leaf in leaves:
            leaf.grad = None
        self.order.clear()
        self.forward(linear, recompute=recompute).backward()
        return [leaf.grad.clone() for leaf in leaves if leaf.grad is not None]


def heard_net() -> tuple[Net, LayerWeights]:
    net, layer_weights = Net(), LayerWeights()
    layer_weights.expect([*net.weights, *net.biases])
    return net, layer_weights


def equal(found: list[Tensor], expected: list[Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


@makes
@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
def test_bits_are_the_same_and_rows_come_first(make: Make, recompute: bool) -> None:
    net, late = heard_net()
    expected = net.gradients(make(KERNELS))
    assert net.order[:2] == ["weight 4", "weight 3"]
    linear, between = make(KERNELS, late), []
    for step in range(3):
        late.begin_pass(lambda: between.append(len(net.order)))
        assert equal(net.gradients(linear, recompute=recompute), expected)
        if step:  # the first pass finds the weights
            assert net.order == ["rows", *(f"weight {number}" for number in range(5))]
            assert between == [1, 2, 3, 4, 5]
        between.clear()


@makes
def test_a_pass_for_other_gradients_leaves_nothing(make: Make) -> None:
    """A loop may ask for the gradient of the embeddings alone, before it calls `backward`."""
    net, late = heard_net()
    expected, linear = net.gradients(make(KERNELS)), make(KERNELS, late)
    late.begin_pass()
    net.forward(linear)
    late.begin_pass()
    torch.autograd.grad(net.forward(linear), net.rows)
    assert equal(net.gradients(linear), expected)


def test_gradients_are_added_up_over_passes() -> None:
    """Micro-batches: each has a pass of its own."""
    net, late = heard_net()
    linear = blas_linear(KERNELS, late)
    twice = [2 * gradient for gradient in net.gradients(blas_linear(KERNELS))]
    late.begin_pass()
    net.gradients(linear)
    late.begin_pass()
    net.forward(linear).backward()
    assert equal([leaf.grad for leaf in (*net.weights, *net.biases, net.rows) if leaf.grad is not None], twice)


def test_a_frozen_weight_has_no_gradient() -> None:
    net, late = heard_net()
    net.weights[3].requires_grad_(False)
    late.expect({*net.weights, *net.biases} - {net.weights[3]})
    linear = blas_linear(KERNELS, late)
    for _ in range(2):
        late.begin_pass()
        net.gradients(linear)
        assert "weight 3" not in net.order
        assert net.weights[3].grad is None


def test_a_loss_of_the_weights_themselves_is_added() -> None:
    """A weight may have other users than its layer."""
    net, late = heard_net()

    def gradient(linear: LinearLayer) -> Tensor:
        net.weights[2].grad = None
        (net.forward(linear) + net.weights[2].square().sum()).backward()
        assert net.weights[2].grad is not None
        return net.weights[2].grad

    expected, linear = gradient(blas_linear(KERNELS)), blas_linear(KERNELS, late)
    for _ in range(2):
        late.begin_pass()
        torch.testing.assert_close(gradient(linear), expected, rtol=1e-6, atol=1e-6)


def test_layers_say_what_they_read() -> None:
    net, late = heard_net()
    linear, read = blas_linear(KERNELS, late), []
    assert not late.knows(net.weights[0])
    late.begin_pass(before_use=read.append)
    with torch.no_grad():
        net.forward(linear)
    assert [parameter is net.weights[0] for parameter in read[:2]] == [True, False]
    assert read[1] is net.biases[0]
    assert len(read) == 12  # the middle layer twice
    assert all(map(late.knows, (*net.weights, *net.biases)))
    assert not late.knows(net.rows)


def test_a_pass_leaves_no_memory() -> None:
    """A node that kept its own result would never be freed."""
    net, late = heard_net()
    linear = blas_linear(KERNELS, late)
    late.begin_pass()
    net.gradients(linear)
    late.begin_pass()
    own = late.use(net.weights[0], net.biases[0])
    assert own is not None
    token = weakref.ref(own.token)
    del own
    net.gradients(linear)
    assert token() is not None
    late.begin_pass()
    assert token() is None


def test_what_is_not_trained_is_let_go() -> None:
    """A layer may read another tensor in each pass: zeros in the place of a bias, a weight that is computed."""
    net, layer_weights = heard_net()
    read: list[Tensor] = []
    layer_weights.begin_pass(before_use=read.append)
    computed, zeros = net.weights[0] * 2, torch.zeros(32)
    assert layer_weights.use(computed, zeros) is None
    assert read == []
    assert not layer_weights.knows(computed)
    other = weakref.ref(zeros)
    del zeros
    assert other() is None


def test_some_gradients_are_not_put_off() -> None:
    net, layer_weights = heard_net()
    layer_weights.expect(net.weights, at_once=net.weights[:1])
    for _ in range(2):
        layer_weights.begin_pass()
        are_late = [layer_weights.use(weight, net.biases[0]) is not None for weight in net.weights[:2]]
    assert are_late == [False, True]
    assert layer_weights.knows(net.weights[0])


@makes
def test_late_gradients_have_no_derivatives(make: Make) -> None:
    """Of those that come at once there are some (`test_second_derivatives.py`)."""
    net, late = heard_net()
    linear = make(KERNELS, late)
    late.begin_pass(lambda: None)
    net.forward(linear).backward()  # finds the weights
    late.begin_pass(lambda: None)
    loss = net.forward(linear)
    with pytest.raises(ConfigError, match=r"create_graph=True: .* set train\.weight_gradients=at_once"):
        torch.autograd.grad(loss, net.rows, create_graph=True)
