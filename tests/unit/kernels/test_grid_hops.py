"""Rows over a grid reach those whom they are for, in the order of their senders, with NumPy and natively."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.kernels.grid_hops import NativeGridHops, grid_hops
from bagpipe_hpc.plan.exchange import Flow
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.plan.grid_hops import GridHops, Layout, NumpyGridHops

grids = st.builds(Grid, st.integers(1, 5), st.integers(1, 5))
kinds = st.sampled_from([(np.float32, 1), (np.float32, 16), (np.int16, 3)])


@pytest.fixture(params=[NumpyGridHops, NativeGridHops], scope="module")
def hops(request: pytest.FixtureRequest) -> GridHops:
    made: GridHops = request.param()
    return made


def rows_between(grid: Grid, seed: int) -> NDArray[np.int32]:
    """By sender and receiver, many of them none; what is of a trainer itself stays there."""
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 4, (grid.trainers,) * 2) * rng.integers(0, 2, (grid.trainers,) * 2)).astype(np.int32)


def flow_of(grid: Grid, own: int, rows: NDArray[np.int32]) -> Flow:
    row, column = grid.place(own)
    sent = rows * (1 - np.eye(grid.trainers, dtype=np.int32))
    through = sent[row * grid.columns : (row + 1) * grid.columns, column :: grid.columns]
    return Flow(grid, sent[own], rows[:, own], np.ascontiguousarray(through))


def carry(
    sent: Sequence[NDArray[Any]], to: Sequence[Layout], taken: Sequence[NDArray[Any]], of: Sequence[Layout]
) -> None:
    """What `MPI_Alltoallv` does."""
    for sender, receiver in np.ndindex(len(sent), len(sent)):
        at, count = to[sender].starts[receiver], to[sender].counts[receiver]
        begin = of[receiver].starts[sender]
        assert count == of[receiver].counts[sender]
        taken[receiver].reshape(-1)[begin : begin + count] = sent[sender].reshape(-1)[at : at + count]


@given(grids, kinds, st.integers(0, 2**32))
def test_rows_arrive_in_the_order_of_their_senders(
    hops: GridHops, grid: Grid, kind: tuple[type, int], seed: int
) -> None:
    """Each row says whose it is, and for whom; the place of what stays is left as it is."""
    dtype, width = kind
    rows, trainers = rows_between(grid, seed), range(grid.trainers)
    flows = [flow_of(grid, own, rows) for own in trainers]
    layouts = [hops.lay_out(flow, grid.place(own), width) for own, flow in enumerate(flows)]
    into = [np.full((rows[:, own].sum(), width), -1, dtype) for own in trainers]
    taken = [np.empty((flow.relayed.sum(), width), dtype) for flow in flows]
    passed = [np.empty((found.to_rows.numbers // width, width), dtype) for found in layouts]
    sent = []
    for own, flow in enumerate(flows):
        of_each = [np.full((flow.to[other], width), 100 * own + other, dtype) for other in trainers]
        sent.append(np.concatenate([of_each[other] for other in np.argsort(grid.sending_places)]))

    for group in np.arange(grid.trainers).reshape(grid):
        of_group = [[part[own] for own in group] for part in (sent, taken, layouts)]
        laid = of_group.pop()
        carry(of_group[0], [own.to_columns for own in laid], of_group[1], [own.of_senders for own in laid])
    for own, flow in enumerate(flows):
        hops.pass_on(flow, grid.place(own), taken[own], passed[own], into[own])
    for group in np.arange(grid.trainers).reshape(grid).T:
        laid = [layouts[own] for own in group]
        carry(
            [passed[own] for own in group],
            [own.to_rows for own in laid],
            [into[own] for own in group],
            [own.of_rows for own in laid],
        )
    for own in trainers:
        values = [-1 if sender == own else 100 * sender + own for sender in trainers]
        np.testing.assert_array_equal(into[own][:, 0], np.repeat(values, rows[:, own]).astype(dtype))
        assert (into[own] == into[own][:, :1]).all()


@given(grids, kinds, st.integers(0, 2**32), st.data())
def test_native_code_does_what_numpy_does(grid: Grid, kind: tuple[type, int], seed: int, data: st.DataObject) -> None:
    own = data.draw(st.integers(0, grid.trainers - 1))
    (dtype, width), flow, place = kind, flow_of(grid, own, rows_between(grid, seed)), grid.place(own)
    taken = np.random.default_rng(seed).integers(-99, 99, (flow.relayed.sum(), width)).astype(dtype)
    found = []
    for hops in (NumpyGridHops(), NativeGridHops()):
        layouts = hops.lay_out(flow, place, width)
        passed = np.zeros((layouts.to_rows.numbers // width, width), dtype)
        into = np.zeros((flow.source.sum(), width), dtype)
        hops.pass_on(flow, place, taken, passed, into)
        found.append((layouts, passed.tolist(), into.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("broken", ["relayed", "source", "own", "negative"])
def test_numbers_that_contradict_each_other_are_refused(hops: GridHops, broken: str) -> None:
    grid = Grid(2, 3)
    flow = flow_of(grid, 4, np.full((6, 6), 2, np.int32))
    hops.lay_out(flow, (1, 1), 8)
    changed = {
        "relayed": flow._replace(relayed=flow.relayed + np.eye(3, 2, -1, dtype=np.int32)),
        "source": flow._replace(source=flow.source + (np.arange(6, dtype=np.int32) == 5)),
        "own": flow._replace(relayed=np.full((3, 2), 2, np.int32)),
        "negative": flow._replace(to=-flow.to),
    }[broken]
    with pytest.raises(ValueError, match=r"trainer at \(1, 1\) of a grid of .*or a number is negative"):
        hops.lay_out(changed, (1, 1), 8)


def test_arrays_that_do_not_hold_the_rows_are_refused_before_anything_is_copied() -> None:
    hops, flow = NativeGridHops(), flow_of(Grid(2, 2), 0, np.full((4, 4), 2, np.int32))
    sizes = {"taken": 6, "passed": 4, "into": 8}
    arrays = {name: np.zeros((rows, 3), np.float32) for name, rows in sizes.items()}
    hops.pass_on(flow, (0, 0), **arrays)
    arrays["taken"][:] = 1
    for name, rows in sizes.items():
        for wrong in (rows - 1, rows + 1):
            with pytest.raises(ValueError, match=r"rows do not hold what flows"):
                hops.pass_on(flow, (0, 0), **arrays | {name: np.zeros((wrong, 3), np.float32)})
        for other in (np.zeros((rows, 3)), np.zeros((rows, 4), np.float32), np.zeros((3, rows), np.float32).T):
            with pytest.raises(ValueError, match="contiguous rows of one kind"):
                hops.pass_on(flow, (0, 0), **arrays | {name: other})
    assert not arrays["passed"].any()
    assert not arrays["into"].any()


def test_counts_of_another_integer_type_and_those_that_cannot_be_written() -> None:
    flow = flow_of(Grid(2, 2), 3, np.full((4, 4), 2, np.int32))
    wide = flow._replace(to=flow.to.astype(np.int64), source=flow.source.astype(np.int64))
    flow.relayed.setflags(write=False)
    assert NativeGridHops().lay_out(wide, (1, 1), 2) == NumpyGridHops().lay_out(flow, (1, 1), 2)


def test_the_backend_decides() -> None:
    assert isinstance(grid_hops("native"), NativeGridHops)
    assert isinstance(grid_hops("reference"), NumpyGridHops)
