"""What a trainer's end of the messages with servers does by itself: each rank alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows.client import TAG_AHEAD_GET, TAG_AHEAD_PUT, RowClient, pieces
from bagpipe_hpc.rows.store import Use


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize(
    ("rows", "width", "sizes"),
    [
        (0, 16, []),
        (1, 16, [1]),
        (4096, 16, [4096]),
        (4097, 16, [4096, 1]),
        (20_000, 16, [5000] * 4),
        (100_000, 16, [16_384] * 6 + [1696]),
        (3, 1 << 19, [1, 1, 1]),
    ],
    ids=["none", "one", "one short piece", "two", "four", "long ones", "rows longer than a piece"],
)
def test_a_call_has_pieces_of_a_quarter_to_a_whole_mebibyte(rows, width, sizes):
    """Four of them, if that can be; and one behind the other."""
    found = list(pieces(rows, width))
    assert [piece.stop - piece.start for piece in found] == sizes
    assert [row for piece in found for row in range(piece.start, piece.stop)] == list(range(rows))


@pytest.mark.mpi(min_size=3)
def test_announcements_are_kept_until_they_have_left():
    """MPI reads their numbers until then; and those behind one that has not left."""
    sent: list[Any] = []

    def send(offsets: np.ndarray, rank: int, tag: int) -> Any:
        sent.append(SimpleNamespace(offsets=offsets, to=(rank, tag), has_left=False))
        return SimpleNamespace(Test=lambda own=sent[-1]: own.has_left)

    comm: Any = SimpleNamespace(Isend=send)
    client = RowClient(comm, [5, 6])
    uses = [(1, Use.GET), (0, Use.PUT), (1, Use.GET)]
    for number, (server, use) in enumerate(uses):
        client.announce(server, use, np.full(2, number, np.int32))
    assert [own.to for own in sent] == [(6, TAG_AHEAD_GET), (5, TAG_AHEAD_PUT), (6, TAG_AHEAD_GET)]

    def kept() -> list[int]:
        return [int(offsets[0]) for _, offsets in client._announced]

    sent[1].has_left = True
    client.announce(0, Use.GET, np.full(2, 3, np.int32))
    assert kept() == [0, 1, 2, 3]
    sent[0].has_left = True
    client.announce(0, Use.GET, np.full(2, 4, np.int32))
    assert kept() == [2, 3, 4]


@pytest.mark.mpi(min_size=3)
def test_whoever_closes_waits_for_what_it_has_announced():
    comm, offsets, into = MPI.COMM_SELF.Dup(), np.arange(2, dtype=np.int32), np.empty(2, np.int32)
    client = RowClient(comm, [0])
    arriving = comm.Irecv(into, 0, TAG_AHEAD_GET)
    client.announce(0, Use.GET, offsets)
    arriving.Wait()
    ((request, kept),) = client._announced
    assert request
    assert kept is offsets
    client.close()
    assert not request
    assert comm == MPI.COMM_NULL
    np.testing.assert_array_equal(into, offsets)
