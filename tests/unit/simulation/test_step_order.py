"""What leaves before compute ends, as shares of it."""

from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.facts import ModelFacts
from bagpipe_hpc.models.sums.gradient_order import GradientOrder
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.step_order import DenseSum, StepOrder, StepOrders


def test_a_backward_pass_is_two_thirds_of_the_time_of_weights() -> None:
    order = StepOrder.of(
        GradientOrder(weights=100, behind_rows=30, groups=(60, 40), behind_groups=(45, 0), before_rows=3)
    )
    assert order.before_rows == pytest.approx(0.01)
    assert order.behind_rows == pytest.approx(0.2)
    assert order.sums == (DenseSum(60, pytest.approx(0.3)), DenseSum(40, 0.0))
    assert order.dense_weights == 100
    assert [which for _, which in order.moments()] == [0, None, 1]
    assert [which for _, which in StepOrder(0.3, order.sums).moments()] == [0, None, 1]


def test_late_gradients_come_in_the_order_of_the_next_forward_pass() -> None:
    """A third of the time of a weight is its late product. Rows leave before all of these and a bottom MLP's pass."""
    order = StepOrder.of(
        GradientOrder(weights=100, behind_rows=30, groups=(60, 40), behind_groups=(45, 0), before_rows=3)
    )
    late = order.late(can_wait=True)
    assert late.behind_rows == pytest.approx(0.1 + 1 / 3)
    assert late.sums == (DenseSum(40, pytest.approx(0.2)), DenseSum(60, 0.0))
    assert late.waits == (0.0, pytest.approx(0.4 / 3))
    assert late.before_rows == order.before_rows
    assert late.is_late
    assert not order.late(can_wait=False).waits


def test_the_first_layers_gradients_alone_may_be_late() -> None:
    """Those of others come as they did, and all sums are waited for where a layer reads its weights."""
    order = StepOrder.of(
        GradientOrder(weights=100, behind_rows=30, groups=(50, 20, 30), behind_groups=(50, 30, 0), before_rows=3)
    )
    late = order.late(can_wait=True, late_share=0.5)
    assert late.behind_rows == pytest.approx(0.1 + 0.5 / 3)  # one product of what is behind rows, and all late ones
    assert late.sums == (order.sums[0], DenseSum(30, pytest.approx(0.2 / 3)), DenseSum(20, pytest.approx(0.0)))
    assert late.waits == pytest.approx((0.5 / 3, 0.0, 0.1))
    none = order.late(can_wait=True, late_share=0.29)
    assert (none.behind_rows, none.sums, none.is_late) == (pytest.approx(order.behind_rows), order.sums, False)
    assert none.waits == pytest.approx((0.5 / 3, 0.1, 0.0))


@pytest.mark.parametrize(
    ("overrides", "is_late", "waits"),
    [
        ([], False, True),
        (["train.late_share=0.5"], False, True),
        (["optimizer.dense_clip_norm=1.0"], False, False),
        (["model.precision=bfloat16", "train.weight_gradients=late"], False, False),
        (["train.device=cuda", "train.weight_gradients=late"], False, False),
        (["train.weight_gradients=late"], True, True),
        (["train.weight_gradients=late", "train.late_share=0.0"], False, True),
        (["train.weight_gradients=late", "optimizer.dense_clip_norm=1.0"], True, False),
    ],
)
def test_the_configuration_says_which_gradients_are_late_and_what_waits_by_layer(
    overrides: list[str], is_late: bool, waits: bool, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.toml"
    empty.touch()
    facts = ModelFacts.one_hot(13, 4, 8, 1)
    orders = StepOrders.of(load_config(empty, ["model.embedding_dim=8", *overrides]), facts)
    assert (orders.by_messages.is_late, bool(orders.by_messages.waits)) == (is_late, waits)
    horovod = orders.by_horovod  # whose last sum is what the first layer waits for, unless gradients are late
    assert (horovod.is_late, bool(horovod.waits)) == (is_late, waits and is_late)


def test_a_model_without_weights_has_nothing_behind_rows() -> None:
    assert StepOrder.of(GradientOrder(0, 0, (), ())) == StepOrder()


def test_measured_moments_take_the_place_of_those_by_weights() -> None:
    order = StepOrder(0.2, (DenseSum(60, 0.3), DenseSum(40, 0.0)), 0.1)
    assert order.measured([0.25, 0.5, 0.01]) == StepOrder(0.25, (DenseSum(60, 0.5), DenseSum(40, 0.01)), 0.1)


@pytest.mark.parametrize("moments", [[0.2, 0.3], [0.2, 0.3, 0.1, 0.0], [0.2, 0.3, 1.0]])
def test_moments_that_are_not_those_of_the_sums_are_refused(moments: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"--moments .*: needs 3 shares"):
        StepOrder(0.2, (DenseSum(60, 0.3), DenseSum(40, 0.0))).measured(moments)


def test_messages_sum_in_smaller_groups_than_horovod() -> None:
    orders = StepOrders(StepOrder(0.1), StepOrder(0.2))
    for name, trainers, share in (
        ("horovod", 64, 0.1),
        ("mpi", 2, 0.2),
        ("mpi", 1, 0.1),
        ("grid", 4, 0.2),
        ("auto", 63, 0.1),
        ("auto", 64, 0.2),
    ):
        assert orders.on(Cluster(trainers, 1e-6, dense_sums=name)).behind_rows == share
