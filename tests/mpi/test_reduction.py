"""Row gradients are summed over the trainers, in rank order, any number of sums under way."""

import threading
import time

import numpy as np
import pytest
import torch
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.kernels.rows.short_floats import ShortFloats, short_floats
from bagpipe_hpc.mpi import reduction
from bagpipe_hpc.mpi.reduction import GradientReducer, SumComms, add_in_order
from bagpipe_hpc.mpi.waiting import wait_until
from bagpipe_hpc.plan import sum_levels


def nothing_to_watch() -> None:
    pass


def reducer(comm: MPI.Comm, timeout_s: float = 30.0, packing: ShortFloats | None = None) -> GradientReducer:
    """Collective over: `comm`."""
    return GradientReducer(comm, comm.Dup(), timeout_s, nothing_to_watch, packing=packing)


def over_links(monkeypatch: pytest.MonkeyPatch, two_pieces_from_bytes: int) -> None:
    """Reducers take ranks for those of several hosts."""
    monkeypatch.setattr(reduction, "spans_hosts", lambda _: True)
    monkeypatch.setattr(sum_levels, "TWO_PIECES_FROM_BYTES", two_pieces_from_bytes)


def pieces_sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In how many pieces shares travel from now on: of each level of each sum."""
    found = []
    shares_of = reduction.sum_shares

    def noted(rows: int, width: int, trainers: int, rank: int, pieces: int) -> object:
        found.append(pieces)
        return shares_of(rows, width, trainers, rank, pieces)

    monkeypatch.setattr(reduction, "sum_shares", noted)
    return found


def gradients(number: int, trainer: int, rows: int) -> np.ndarray:
    """A trainer's gradients of the `number`th sum, over twelve orders of magnitude: any other order of a sum shows."""
    rng = np.random.default_rng([number, trainer])
    return (rng.standard_normal((rows, 5)) * 10.0 ** rng.uniform(-6, 6, (rows, 5))).astype(np.float32)


def left_to_right(parts: list[np.ndarray]) -> np.ndarray:
    total = parts[0]
    for part in parts[1:]:
        total = (total + part).astype(np.float32)
    return total


@pytest.mark.mpi(min_size=3)
def test_sums_under_way_do_not_meet(comm):
    """Several at once, waited for in another order, some without rows."""
    sums = reducer(comm)
    sizes = [700, 0, 1, 3000, 2]
    own = [gradients(number, comm.Get_rank(), rows) for number, rows in enumerate(sizes)]
    pending = [sums.start(part) for part in own]
    for number in (4, 0, 1, 3, 2):
        parts = [gradients(number, trainer, sizes[number]) for trainer in range(3)]
        found = pending[number].wait(f"sum {number}")
        assert found.dtype == np.float32
        tolerance = 1e-6 * np.abs(parts).sum(0)
        assert (np.abs(found - np.sum(parts, axis=0, dtype=np.float64)) <= tolerance).all()
        np.testing.assert_array_equal(own[number], parts[comm.Get_rank()])  # left as it was
        np.testing.assert_array_equal(found, left_to_right(parts))


@pytest.mark.mpi(min_size=2)
def test_two_trainers_swap_gradients(comm):
    """Which stay as they are, or become their sum."""
    made = []

    def new_array(shape):
        made.append(np.full(shape, np.nan, dtype=np.float32))
        return made[-1]

    sums = GradientReducer(comm, comm.Dup(), 30.0, new_array=new_array)
    parts = [gradients(0, trainer, 900) for trainer in range(2)]
    own = parts[comm.Get_rank()].copy()
    found = sums.start(own).wait("a sum")
    np.testing.assert_array_equal(found, left_to_right(parts))
    np.testing.assert_array_equal(own, parts[comm.Get_rank()])
    assert found is made[-1]
    assert sums.start(own, into=own).wait("a sum in place") is own
    np.testing.assert_array_equal(own, left_to_right(parts))


@pytest.mark.mpi(min_size=2)
def test_an_older_sum_is_moved_on_though_the_newest_is_complete(comm):
    """It is named and asked until it is over, and its request is freed then."""
    sums = reducer(comm)
    assert (sums.advance(), sums.awaited()) == (False, [])
    if comm.Get_rank() == 1:
        comm.Barrier()  # until then the other trainer has begun alone
    older, newest = sums.start(gradients(0, comm.Get_rank(), 900)), sums.start(gradients(1, comm.Get_rank(), 0))
    assert newest.is_complete
    if comm.Get_rank() == 0:
        assert sums.advance()
        assert [len(group) for group in sums.awaited()] == [1]
        comm.Barrier()
    wait_until(lambda: not sums.advance(), "the older sum", 30.0)
    assert older.is_complete
    assert (sums.awaited(), list(sums._spent._spent)) == ([], [])


@pytest.mark.mpi(min_size=5)
def test_five_trainers_sums_are_in_rank_order(comm):
    """Three trainers have a single third part; with five, any other order of those from the third on shows as well."""
    parts = [gradients(0, trainer, 900) for trainer in range(5)]
    found = reducer(comm).start(parts[comm.Get_rank()]).wait("a sum")
    np.testing.assert_array_equal(found, left_to_right(parts))
    for order in ([0, 1, 4, 3, 2], [0, 1, 3, 2, 4], [1, 2, 0, 3, 4]):
        assert (found != left_to_right([parts[trainer] for trainer in order])).any()


@pytest.mark.mpi(min_size=6)
@pytest.mark.parametrize("two_pieces_from_bytes", [1 << 20, 1])
@pytest.mark.parametrize("levels", [(3, 2), (2, 3)])
def test_groups_of_each_level_add_in_their_order(comm, monkeypatch, levels, two_pieces_from_bytes):
    """Those who follow one another first, and of their sums the first group's comes first; in one piece or two."""
    over_links(monkeypatch, two_pieces_from_bytes)
    pieces = pieces_sent(monkeypatch)
    parts = [gradients(0, trainer, 500) for trainer in range(6)]
    (first, *above), (apart, *_) = SumComms.split(comm, levels), levels
    found = GradientReducer(*first, above=above).start(parts[comm.Get_rank()]).wait("a sum on two levels")
    assert pieces == [2 if two_pieces_from_bytes == 1 else 1, 1]
    groups = [left_to_right(parts[start : start + apart]) for start in range(0, 6, apart)]
    np.testing.assert_array_equal(found, left_to_right(groups))
    assert (found != left_to_right(parts)).any()


@pytest.mark.mpi(min_size=2)
def test_ranks_of_one_host_are_known(comm):
    assert not reduction.spans_hosts(comm)


@pytest.mark.mpi(min_size=6)
def test_sums_in_two_pieces_pass_beside_others(comm, monkeypatch):
    """Long, short, of a single row, and in place; each trainer moves them on at moments of its own."""
    over_links(monkeypatch, two_pieces_from_bytes=20_000)
    first, *above = SumComms.split(comm, (3, 2))
    sums, pauses = GradientReducer(*first, above=above), np.random.default_rng(comm.Get_rank())
    sizes = [3000, 500, 1, 1500, 5, 1001]
    for _ in range(10):
        own = [gradients(number, comm.Get_rank(), rows) for number, rows in enumerate(sizes)]
        pending = []
        for number, part in enumerate(own):
            pending.append(sums.start(part, into=part if number % 2 else None))
            time.sleep(pauses.uniform(0, 1e-3))
            sums.advance()
        for number, rows in enumerate(sizes):
            parts = [gradients(number, trainer, rows) for trainer in range(6)]
            found = pending[number].wait("a sum on two levels")
            np.testing.assert_array_equal(found, left_to_right(parts[:3]) + left_to_right(parts[3:]))


@pytest.mark.slow
@pytest.mark.mpi(min_size=8)
@pytest.mark.parametrize("spans_hosts", [False, True])
def test_sums_on_three_levels(comm, monkeypatch, spans_hosts):
    """Of several sums at once, within a host and over links; each trainer is in a group of two on each level."""
    over_links(monkeypatch, two_pieces_from_bytes=1)
    monkeypatch.setattr(reduction, "spans_hosts", lambda _: spans_hosts)
    pieces = pieces_sent(monkeypatch)
    parts = [[gradients(number, trainer, 300 + number) for trainer in range(8)] for number in range(3)]
    first, *above = SumComms.split(comm, (2, 2, 2))
    sums = GradientReducer(*first, above=above)
    pending = [sums.start(own[comm.Get_rank()]) for own in parts]
    for found, (a, b, c, d, e, f, g, h) in zip(pending, parts, strict=True):
        total = found.wait("a sum on three levels")
        np.testing.assert_array_equal(total, ((a + b) + (c + d)) + ((e + f) + (g + h)))
    assert sorted(pieces) == sorted(3 * ([2, 2, 1] if spans_hosts else [1, 1, 1]))


@pytest.mark.mpi(min_size=3)
def test_another_thread_moves_sums_on(comm):
    """So they are complete though the thread that started them does not look; newer ones may be started meanwhile."""
    sums = reducer(comm)
    is_over = threading.Event()

    def move_on() -> None:
        while not is_over.is_set():
            time.sleep(0 if sums.advance() else 1e-4)

    mover = threading.Thread(target=move_on)
    mover.start()
    try:
        for number in range(20):
            parts = [[gradients(2 * number + which, trainer, 4000) for trainer in range(3)] for which in range(2)]
            later = sums.start(parts[0][comm.Get_rank()])
            if number % 2:
                wait_until(lambda pending=later: pending.is_complete, "the other thread", 30.0)
            now = sums.start(parts[1][comm.Get_rank()])
            np.testing.assert_array_equal(now.wait("the newer sum"), left_to_right(parts[1]))
            np.testing.assert_array_equal(later.wait("the older sum"), left_to_right(parts[0]))
    finally:
        is_over.set()
        mover.join()
    assert not sums.advance()


@pytest.mark.mpi(min_size=2)
def test_two_trainers_sums_have_one_result(comm):
    pending = reducer(comm).start(gradients(0, comm.Get_rank(), 2000))
    np.testing.assert_array_equal(pending.wait("a sum"), gradients(0, 0, 2000) + gradients(0, 1, 2000))


def rounded(short: ShortFloats, values: np.ndarray) -> np.ndarray:
    return short.rounded(torch.from_numpy(values)).numpy()


def check_short_sums(comm: MPI.Comm, name: str) -> None:
    """Several at once, one without rows, and fewer rows than trainers; all end with the same bits."""
    short = short_floats(name, 64)
    assert short is not None
    sums = reducer(comm, packing=short)
    sizes = [500, 0, 1]
    scale = np.float32(1e-6)
    own = [gradients(number, comm.Get_rank(), rows) * scale for number, rows in enumerate(sizes)]
    pending = [sums.start(short.pack_array(part)) for part in own]
    for number, rows in enumerate(sizes):
        parts = [rounded(short, gradients(number, trainer, rows) * scale) for trainer in range(comm.Get_size())]
        expected = left_to_right(parts)
        if comm.Get_size() > 2:
            expected = rounded(short, expected)
        found = pending[number].wait(f"sum {number}")
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
        assert len({part.tobytes() for part in comm.allgather(found)}) == 1
        if rows > 1:
            exact = left_to_right([gradients(number, trainer, rows) * scale for trainer in range(comm.Get_size())])
            assert (found != exact).any()  # or nothing was rounded


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_two_trainers_sums_of_short_numbers(comm, name):
    check_short_sums(comm, name)


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_three_trainers_sums_of_short_numbers(comm, name):
    check_short_sums(comm, name)


@pytest.mark.mpi(min_size=2)
def test_a_single_trainer_has_nothing_to_add():
    own = gradients(0, 0, 10)
    np.testing.assert_array_equal(reducer(MPI.COMM_SELF).start(own).wait("a sum"), own)


@pytest.mark.mpi(min_size=3)
def test_a_missing_trainer_is_noticed(comm):
    sums = reducer(comm, timeout_s=0.05)
    if comm.Get_rank() > 0:
        pending = sums.start(np.ones((4, 5), np.float32))
        with pytest.raises(WaitTimeoutError, match="the rows that batch 3 needs"):
            pending.wait("the rows that batch 3 needs")
    comm.Barrier()
    if comm.Get_rank() == 0:
        pending = sums.start(np.ones((4, 5), np.float32))
    wait_until(pending.advance, "the late sum", 30.0)
    np.testing.assert_array_equal(pending.wait("the late sum"), np.full((4, 5), 3, np.float32))


@pytest.mark.mpi(min_size=2)
def test_order_is_from_left_to_right():
    """1 + 1e8 - 1e8 loses the 1 in float32; any other order keeps it."""
    parts = np.asarray([[1.0], [1e8], [-1e8]], dtype=np.float32)
    assert add_in_order(parts).tolist() == [0.0]
    assert add_in_order(parts[[1, 2, 0]]).tolist() == [1.0]
    assert parts[0, 0] == 1.0
