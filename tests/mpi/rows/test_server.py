"""A server's part of what goes between it and the trainers: each rank alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.mpi.rows.server import RowServer, SharedRows
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
    asked: Any = SimpleNamespace(Wait=lambda: offsets.__setitem__(slice(None), [4, 2, 7]))
    nobody: Any = None
    assert list(RowServer(nobody, store)._note(Use.PUT, 3, offsets, asked)) == []
    assert noted == [(3, Use.PUT, [4, 2, 7])]
