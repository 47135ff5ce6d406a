"""Look-ups sorted by row keep their order within a row."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagpipe_hpc.kernels.rows.sum_order import SumOrder


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(6, 9))
def test_each_rows_look_ups_are_a_segment_in_their_order(positions: list[int], rows: int) -> None:
    order = SumOrder.of(torch.tensor(positions, dtype=torch.int32), rows)
    assert (order.look_ups.dtype, order.starts.dtype, order.starts.numel()) == (torch.int64, torch.int32, rows + 1)
    for row in range(rows):
        segment = order.look_ups[order.starts[row] : order.starts[row + 1]]
        np.testing.assert_array_equal(segment, np.flatnonzero(np.asarray(positions) == row))
