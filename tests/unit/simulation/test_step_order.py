"""What leaves before compute ends, as shares of it."""

import pytest

from bagpipe_hpc.models.gradient_order import GradientOrder
from bagpipe_hpc.simulation.step_order import DenseSum, StepOrder


def test_a_backward_pass_is_two_thirds_of_the_time_of_weights() -> None:
    order = StepOrder.of(GradientOrder(weights=100, behind_rows=30, groups=(60, 40), behind_groups=(45, 0)))
    assert order.behind_rows == pytest.approx(0.2)
    assert order.sums == (DenseSum(60, pytest.approx(0.3)), DenseSum(40, 0.0))
    assert order.dense_weights == 100
    assert [which for _, which in order.moments()] == [0, None, 1]
    assert [which for _, which in StepOrder(0.3, order.sums).moments()] == [0, None, 1]


def test_a_model_without_weights_has_nothing_behind_rows() -> None:
    assert StepOrder.of(GradientOrder(0, 0, (), ())) == StepOrder()
