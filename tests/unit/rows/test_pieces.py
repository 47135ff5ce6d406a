"""How a call of rows is cut into messages, alike on both ends."""

import pytest

from bagpipe_hpc.mpi.rows.client import pieces

MIB = 1 << 20


@pytest.mark.parametrize(
    ("rows", "width", "count"),
    [
        (0, 16, 0),
        (1, 16, 1),
        (MIB // 64 // 4, 16, 1),  # a quarter of 1 MiB, the shortest piece
        (MIB // 64, 16, 4),
        (MIB // 64 + 3, 16, 4),
        (MIB // 64 - 1, 16, 4),
        (16 * MIB // 512, 128, 16),  # none is longer than 1 MiB
        (3, MIB, 3),  # but for a row that is
    ],
)
def test_a_call_has_four_pieces_unless_they_are_too_short_or_too_long(rows, width, count):
    found = list(pieces(rows, width))
    assert [row for piece in found for row in range(rows)[piece]] == list(range(rows))
    assert len(found) == count
