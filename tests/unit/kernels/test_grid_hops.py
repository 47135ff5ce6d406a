"""Rows over a grid reach those whom they are for, in the order of their senders, with NumPy and natively."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bagpipe_hpc.kernels.grid_hops import NativeGridHops, grid_hops
from bagpipe_hpc.plan.exchange import Flow
from bagpipe_hpc.plan.exchange_grid import Grid
from bagpipe_hpc.plan.grid_hops import GridHops, Layout, MessagesByAddress, NumpyGridHops, passed_rows

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


class FakeColumn:
    """Keeps what a trainer of a column sends and where it takes rows in, begun from Python or natively.

    Args:
        rows: of the grid.
        handle_bytes: of a handle, 4 or 8, for native code; 0 where that is not to begin messages.
        refused: number of the message that MPI refuses natively; -1 for none.
    """

    def __init__(self, rows: int, handle_bytes: int = 0, refused: int = -1) -> None:
        self.sent: dict[int, bytes] = {}
        self.taken: dict[int, tuple[int, int]] = {}
        self.order: list[int] = []
        self.begun: list[int] = []
        self.failure = 0
        self.by_address: MessagesByAddress | None = None
        if not handle_bytes:
            return
        unsigned = ctypes.c_uint32 if handle_bytes == 4 else ctypes.c_uint64
        high = 0xAC00_0000 if handle_bytes == 4 else 0x7FFF_0000_0000
        kinds = ctypes.c_void_p, ctypes.c_int, unsigned, ctypes.c_int, ctypes.c_int, unsigned

        def function(note: Callable[[int, int, int], None]) -> Any:
            def begin(
                memory: int, count: int, byte: int, rank: int, tag: int, comm: int, request: "ctypes._Pointer[Any]"
            ) -> int:
                assert (byte, tag, comm) == (high + 1, 7, high + 2)
                if len(self.sent) + len(self.taken) == refused:
                    return 13
                request[0] = high + 100 + len(self.sent) + len(self.taken)
                note(memory, count, rank - 50)
                return 0

            return ctypes.CFUNCTYPE(ctypes.c_int, *kinds, ctypes.POINTER(unsigned))(begin)

        self.functions = function(self._send), function(self._take)
        isend, irecv = (ctypes.cast(found, ctypes.c_void_p).value or 0 for found in self.functions)
        ranks = np.arange(50, 50 + rows, dtype=np.int32)
        self.by_address = MessagesByAddress(isend, irecv, handle_bytes, high + 2, high + 1, 7, ranks)

    def _send(self, memory: int, count: int, row: int) -> None:
        self.sent[row] = ctypes.string_at(memory, count)  # as they are when the message leaves
        self.order.append(row)

    def _take(self, memory: int, count: int, row: int) -> None:
        self.taken[row] = memory, count

    def send(self, row: int, rows: NDArray[Any]) -> None:
        self._send(rows.ctypes.data, rows.nbytes, row)

    def take(self, row: int, rows: NDArray[Any]) -> None:
        self._take(rows.ctypes.data, rows.nbytes, row)

    def began(self, handles: NDArray[np.int64], failure: int) -> None:
        self.begun, self.failure = handles.tolist(), failure


def carry(
    sent: Sequence[NDArray[Any]], to: Sequence[Layout], taken: Sequence[NDArray[Any]], of: Sequence[Layout]
) -> None:
    """What `MPI_Alltoallv` does."""
    for sender, receiver in np.ndindex(len(sent), len(sent)):
        at, count = to[sender].starts[receiver], to[sender].counts[receiver]
        begin = of[receiver].starts[sender]
        assert count == of[receiver].counts[sender]
        taken[receiver].reshape(-1)[begin : begin + count] = sent[sender].reshape(-1)[at : at + count]


def deliver(columns: Sequence[FakeColumn]) -> None:
    """Let the messages of a column arrive."""
    for row, column in enumerate(columns):
        assert row not in column.sent
        assert {other for other, sender in enumerate(columns) if row in sender.sent} == column.taken.keys()
        for other, (memory, count) in column.taken.items():
            assert len(columns[other].sent[row]) == count > 0
            ctypes.memmove(memory, columns[other].sent[row], count)


def test_rows_that_stay_have_a_place_and_do_not_travel() -> None:
    assert Layout.of(np.array([2, 3, 1], np.int32), 4) == Layout([8, 12, 4], [0, 8, 20])
    assert Layout.of(np.array([2, 3, 1], np.int32), 4, stays=1) == Layout([8, 0, 4], [0, 8, 20])


@given(grids, kinds, st.sampled_from([0, 4, 8]), st.integers(0, 2**32))
def test_rows_arrive_in_the_order_of_their_senders(
    hops: GridHops, grid: Grid, kind: tuple[type, int], handle_bytes: int, seed: int
) -> None:
    """Each row says whose it is, and for whom; the place of what stays is left as it is."""
    dtype, width = kind
    rows, trainers = rows_between(grid, seed), range(grid.trainers)
    flows = [flow_of(grid, own, rows) for own in trainers]
    places = [grid.place(own) for own in trainers]
    layouts = [hops.lay_out(flow, place, width) for flow, place in zip(flows, places, strict=True)]
    into = [np.full((rows[:, own].sum(), width), -1, dtype) for own in trainers]
    taken = [np.empty((flow.relayed.sum(), width), dtype) for flow in flows]
    passed = [np.empty((passed_rows(flow, place), width), dtype) for flow, place in zip(flows, places, strict=True)]
    sent = []
    for own, flow in enumerate(flows):
        of_each = [np.full((flow.to[other], width), 100 * own + other, dtype) for other in trainers]
        sent.append(np.concatenate([of_each[other] for other in np.argsort(grid.sending_places)]))

    for group in np.arange(grid.trainers).reshape(grid):
        of_group = [[part[own] for own in group] for part in (sent, taken, layouts)]
        laid = of_group.pop()
        carry(of_group[0], [own.to_columns for own in laid], of_group[1], [own.of_senders for own in laid])
    columns = [FakeColumn(grid.rows, handle_bytes) for _ in trainers]
    for own, flow in enumerate(flows):
        hops.pass_on(flow, places[own], taken[own], passed[own], into[own], columns[own])
    for group in np.arange(grid.trainers).reshape(grid).T:
        deliver([columns[own] for own in group])
    for own in trainers:
        values = [-1 if sender == own else 100 * sender + own for sender in trainers]
        np.testing.assert_array_equal(into[own][:, 0], np.repeat(values, rows[:, own]).astype(dtype))
        assert (into[own] == into[own][:, :1]).all()


@given(grids, kinds, st.sampled_from([4, 8]), st.integers(0, 2**32), st.data())
def test_native_code_does_what_numpy_does(
    grid: Grid, kind: tuple[type, int], handle_bytes: int, seed: int, data: st.DataObject
) -> None:
    own = data.draw(st.integers(0, grid.trainers - 1))
    (dtype, width), flow, place = kind, flow_of(grid, own, rows_between(grid, seed)), grid.place(own)
    taken = np.random.default_rng(seed).integers(-99, 99, (flow.relayed.sum(), width)).astype(dtype)
    found = []
    for hops, bytes_of_handles in ((NumpyGridHops(), 0), (NativeGridHops(), handle_bytes)):
        passed = np.zeros((passed_rows(flow, place), width), dtype)
        into = np.zeros((flow.source.sum(), width), dtype)
        column = FakeColumn(grid.rows, bytes_of_handles)
        hops.pass_on(flow, place, taken, passed, into, column)
        taken_to = {row: (memory - into.ctypes.data, count) for row, (memory, count) in column.taken.items()}
        found.append((hops.lay_out(flow, place, width), passed.tolist(), into.tolist(), column.sent, taken_to))
        assert column.order == sorted(column.order, key=lambda row: (row - place[0]) % grid.rows)
    assert found[0] == found[1]
    assert len(column.begun) == len(column.sent) + len(column.taken)
    assert len(set(column.begun)) == len(column.begun)
    assert all(handle >> (31 if handle_bytes == 4 else 32) for handle in column.begun)  # no sign, no half


@pytest.mark.parametrize("refused", range(4))
def test_no_message_follows_one_that_mpi_refuses(refused: int) -> None:
    hops, flow = NativeGridHops(), flow_of(Grid(3, 1), 0, np.full((3, 3), 2, np.int32))
    column = FakeColumn(3, 4, refused)
    hops.pass_on(flow, (0, 0), *(np.zeros((rows, 3), np.float32) for rows in (4, 4, 6)), column)
    assert (len(column.begun), len(column.sent) + len(column.taken), column.failure) == (refused, refused, 13)


def test_a_message_that_no_int_counts_is_refused_before_anything_is_copied() -> None:
    """Memory of 2 GiB that nobody touches."""
    flow = Flow(Grid(2, 1), np.asarray([0, 1]), np.zeros(2, int), np.asarray([[0, 1]]))
    long, nothing, column = (1, 1 << 29), np.empty((0, 1 << 29), np.float32), FakeColumn(2, 8)
    with pytest.raises(ValueError, match=r"hold too many bytes for a message of what flows"):
        NativeGridHops().pass_on(flow, (0, 0), np.empty(long, np.float32), np.empty(long, np.float32), nothing, column)
    assert not column.sent


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
    column = FakeColumn(2, 4)
    hops.pass_on(flow, (0, 0), **arrays, column=column)
    arrays["taken"][:], column = 1, FakeColumn(2, 4)
    for name, rows in sizes.items():
        for wrong in (rows - 1, rows + 1):
            with pytest.raises(ValueError, match=r"rows of 12 bytes do not hold what flows"):
                hops.pass_on(flow, (0, 0), **arrays | {name: np.zeros((wrong, 3), np.float32)}, column=column)
        for other in (np.zeros((rows, 3)), np.zeros((rows, 4), np.float32), np.zeros((3, rows), np.float32).T):
            with pytest.raises(ValueError, match="contiguous rows of one kind"):
                hops.pass_on(flow, (0, 0), **arrays | {name: other}, column=column)
    for name in ("passed", "into"):
        fixed = np.zeros((sizes[name], 3), np.float32)
        fixed.setflags(write=False)
        with pytest.raises(ValueError, match="read-only"):
            hops.pass_on(flow, (0, 0), **arrays | {name: fixed}, column=column)
    assert not column.sent
    assert not column.taken
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
