"""A server's part of what goes between it and the trainers: each rank alone."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.client import TAG_DONE, TAG_GET, TAG_ROWS
from bagpipe_hpc.mpi.rows.server import RowServer, SharedRows
from bagpipe_hpc.mpi.waiting import Answered
from bagpipe_hpc.rows.store import Use


@pytest.mark.mpi(min_size=3)
def test_memory_of_the_host_is_synchronised_before_it_is_read_and_after_it_is_written():
    """Processors that order loads and stores as they like would else give a trainer of the host other rows."""
    noted: list[str] = []
    tables: Any = SimpleNamespace(own=None, record_width=5, synchronise=lambda: noted.append("synchronise"))
    copies: Any = SimpleNamespace(gather=lambda *_: noted.append("gather"), scatter=lambda *_: noted.append("scatter"))
    rows = SharedRows(tables, copies, lambda *_: noted.append("add"))
    nothing: Any = None
    for move in (rows.gather, rows.scatter, rows.add):
        assert list(move(nothing, nothing)) == []
    assert noted == ["synchronise", "gather", "scatter", "synchronise", "add", "synchronise"]
    assert rows.width == 5


@pytest.mark.mpi(min_size=3)
def test_rows_that_are_announced_are_noted_when_all_numbers_have_come():
    """Long messages are not there as soon as they are seen."""
    noted: list[Any] = []
    offsets = np.zeros(3, np.int32)
    store: Any = SimpleNamespace(announce=lambda trainer, use, places: noted.append((trainer, use, places.tolist())))
    nobody: Any = None
    server, late = RowServer(nobody, store), np.zeros(1, np.int32)
    first = server._note(Use.PUT, 3, offsets, request(Late(offsets, [4, 2, 7])))
    second = server._note(Use.PUT, 3, late, request(Late(late, [5], tests=1)))
    other = server._note(Use.GET, 3, late, request(Late(tests=1)))
    for _ in range(2):  # the long one is under way, and nobody waits for it
        assert (next(first, "over"), next(second, "over"), next(other, "over")) == (None, None, "over")
    assert noted == [(3, Use.GET, [0])]
    assert [next(first, "over"), next(second, "over")] == ["over", "over"]
    assert noted[1:] == [(3, Use.PUT, [4, 2, 7]), (3, Use.PUT, [5])]


def request(late: "Late") -> Any:
    return late


class Late:
    """A request that is complete when it has been tested so often, as that of a long message; its numbers come then.

    Attributes:
        is_complete: whether it is.
    """

    def __init__(self, into: np.ndarray | None = None, numbers: Any = None, tests: int = 3) -> None:
        self._into, self._numbers, self._left = into, numbers, tests

    @property
    def is_complete(self) -> bool:
        return self._left <= 0

    def Test(self) -> bool:  # noqa: N802
        self._left -= 1
        if self.is_complete and self._into is not None:
            self._into[:] = self._numbers
        return self.is_complete


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize(
    ("kind", "moved"),
    [
        ("get", [(3, Use.GET, 3), ("gather", [4, 2, 7]), (TAG_ROWS, 3)]),
        ("put", [(3, Use.PUT, 3), ("scatter", [4, 2, 7], [1.0, 2.0, 3.0]), (TAG_DONE, 3)]),
        ("add", [("add", [4, 2, 7], [1.0, 2.0, 3.0]), (TAG_DONE, 3)]),
    ],
)
def test_a_call_uses_what_has_come_and_is_answered_then(kind, moved):
    noted: list[Any] = []
    sent: list[Late] = []

    def write(how: str, places: np.ndarray, records: np.ndarray) -> Iterator[None]:
        noted.append((how, places.tolist(), records[:, 0].tolist()))
        return iter(())

    def gather(places: np.ndarray, _: np.ndarray) -> Iterator[None]:
        noted.append(("gather", places.tolist()))
        return iter(())

    def send(_: Any, trainer: int, tag: int) -> Any:
        noted.append((tag, trainer))
        sent.append(Late())
        return sent[-1]

    store: Any = SimpleNamespace(width=2, gather=gather, scatter=partial(write, "scatter"), add=partial(write, "add"))
    store.begin = lambda *begun: noted.append(begun)
    comm: Any = SimpleNamespace(Isend=send, Irecv=lambda into, *_: Late(into, [[1, 1], [2, 2], [3, 3]]))
    server = RowServer(comm, store)
    offsets = np.zeros(3, np.int32)
    answers = {"get": server._send_rows, "put": server._put_rows, "add": server._add_rows}
    asked: Any = Late(offsets, [4, 2, 7])
    for _ in answers[kind](3, offsets, asked):
        assert noted == moved[: len(noted)]
    assert noted == moved
    assert [request.is_complete for request in sent] == [True], "MPI reads what is sent until then"


@pytest.mark.mpi(min_size=3)
def test_a_server_says_whether_anything_has_moved():
    """So that it looks again at once, after a while, or as seldom as it may."""
    asked: Any = SimpleNamespace(is_complete=False)
    asked.Test = lambda: asked.is_complete
    coming = [SimpleNamespace(Irecv=lambda _: asked)]

    def probe(_: int, tag: int, status: MPI.Status) -> Any:
        if tag != TAG_GET or not coming:
            return None
        status.Set_source(3)
        status.Set_elements(MPI.INT32_T, 0)
        return coming.pop()

    comm: Any = SimpleNamespace(Iprobe=lambda *_: bool(coming), Improbe=probe)
    server = RowServer(comm, SimpleNamespace(width=2, begin=lambda *_: None, work=lambda: None))
    found = [server.answer(), server.answer()]
    asked.is_complete = True
    found += [server.answer(), server.answer()]
    assert found == [Answered.MOVED, Answered.WAITING, Answered.MOVED, Answered.NOTHING]
