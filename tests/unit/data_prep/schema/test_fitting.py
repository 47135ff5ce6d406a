"""What is taken from training rows is exact, whatever the blocks and the order in which they come."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.evaluation.exact_sum import ExactSum
from data_prep.schema.statistics import add_squares, quantiles

SQUARED = st.floats(-1e30, 1e30).filter(lambda number: abs(number) > 1e-100) | st.just(0.0)
NUMBERS = st.lists(st.floats(-1e300, 1e300) | st.integers(-3, 3).map(float), max_size=60)


@given(NUMBERS, st.integers(2, 12), st.integers(1, 20))
def test_quantiles_are_numbers_at_their_places(numbers: list[float], intervals: int, block: int) -> None:
    blocks = [np.array(numbers[at : at + block]) for at in range(0, len(numbers), block)]
    ordered = sorted(numbers)
    expected = [ordered[k * len(numbers) // intervals] for k in range(1, intervals)] if numbers else []
    assert quantiles(lambda: blocks, intervals) == list(dict.fromkeys(expected))
    assert quantiles(lambda: blocks[::-1], intervals) == list(dict.fromkeys(expected))


@given(
    st.lists(st.floats(-1e30, 1e30).filter(lambda x: abs(x) > 1e-100) | st.just(0.0), min_size=1, max_size=40),
    st.integers(1, 7),
)
def test_a_variance_does_not_depend_on_the_order(numbers: list[float], block: int) -> None:
    found = set()
    for values in (numbers, numbers[::-1], sorted(numbers)):
        total, squares = ExactSum(), ExactSum()
        for at in range(0, len(values), block):
            part = np.array(values[at : at + block])
            total.add(part)
            add_squares(squares, part)
        found.add(total.variance(squares, len(values)))
    (variance,) = found
    exact = [Fraction(number) for number in numbers]
    mean = sum(exact) / len(exact)
    assert variance == float(sum((number - mean) ** 2 for number in exact) / len(exact))
