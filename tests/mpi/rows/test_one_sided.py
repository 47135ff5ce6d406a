"""Rows of any width travel as their bits, whatever number they are described by: each rank alone."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.rows import host_tables, one_sided, row_places
from bagpipe_hpc.mpi.rows.host_tables import HostTables
from bagpipe_hpc.mpi.rows.one_sided import OneSidedRows
from bagpipe_hpc.mpi.rows.row_places import copied_number
from bagpipe_hpc.mpi.rows.transfer import RowTransfer


class Noted:
    """A window that notes what is asked of it."""

    def __init__(self, window: MPI.Win) -> None:
        self._window = window
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._window, name)

    def told(self) -> list[str]:
        """What it was asked since this was called last."""
        calls, self.calls = self.calls, []
        return calls


def noted_types(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[MPI.Datatype]:
    """Datatypes of rows that a module makes from now on."""
    made: list[MPI.Datatype] = []

    def rows_at(*arguments: Any) -> MPI.Datatype:
        made.append(row_places.rows_at(*arguments))
        return made[-1]

    monkeypatch.setattr(module, "rows_at", rows_at)
    return made


ROWS = 61
WIDTHS = {1: 4, 6: 8, 17: 4, 20: 16}
"""Numbers of a record, and bytes of the number that MPI copies it by."""


def end(transfer: RowTransfer) -> None:
    MPI.Request.Waitall(list(transfer.requests))
    transfer.finish()


@pytest.mark.mpi(min_size=3)
def test_rows_keep_their_bits():
    """Any bits, so those that no sum gives are among them, such as signalling NaN."""
    signalling = 0x7F800001
    for width, number_bytes in WIDTHS.items():
        assert copied_number(4 * width).Get_size() == number_bytes
        rng = np.random.default_rng(width)
        table, records = rng.integers(0, 1 << 32, (2, ROWS, width), dtype=np.uint32)
        table[3, 0] = records[5, -1] = signalling
        own = table.copy()
        rows = OneSidedRows(MPI.COMM_SELF, own.view(np.float32), [0])
        wanted = rng.permutation(ROWS).astype(np.int32)[:40]
        got = np.zeros((wanted.size, width), dtype=np.uint32)
        end(rows.start_get(0, wanted, got.view(np.float32)))
        np.testing.assert_array_equal(got, table[wanted])
        end(rows.start_put(0, wanted, records[:40].view(np.float32)))
        table[wanted] = records[:40]
        rows.close()
        np.testing.assert_array_equal(own, table)


@pytest.mark.mpi(min_size=3)
def test_additions_are_of_each_float32():
    """Of each number of a record, whatever number copies go by; a row that comes again gets each of its records."""
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        own, added = rng.standard_normal((2, ROWS, width)).astype(np.float32)
        wanted = np.concatenate((rng.permutation(ROWS)[:-2], [7, 7])).astype(np.int32)
        expected = own.copy()
        np.add.at(expected, wanted, added)
        rows = OneSidedRows(MPI.COMM_SELF, own, [0])
        end(rows.start_add(0, wanted, added))
        rows.close()
        np.testing.assert_array_equal(own, expected)


@pytest.mark.mpi(min_size=3)
def test_what_is_written_is_flushed_when_all_of_it_has_left(monkeypatch):
    """A server of another host has it only then. What was made for a call is freed with it."""
    made = noted_types(one_sided, monkeypatch)
    rows = OneSidedRows(MPI.COMM_SELF, np.zeros((ROWS, 6), dtype=np.float32), [0])
    noted = Noted(rows._window)
    rows._window = noted  # type: ignore[assignment]
    offsets, records = np.asarray([7, 7, 5], dtype=np.int32), np.ones((3, 6), dtype=np.float32)
    calls = [
        (lambda: rows.start_get(0, offsets, records), {"Rget"}, [], 1),
        (lambda: rows.start_put(0, offsets[1:], records[1:]), {"Rput"}, ["Flush"], 1),
        (lambda: rows.start_add(0, offsets, records), {"Raccumulate"}, ["Flush"], 2),
    ]
    for start, begun, finished, types in calls:
        made.clear()
        transfer = start()
        assert set(noted.told()) == begun
        assert len(made) == types, "a row that comes again is added by a call of its own"
        MPI.Request.Waitall(list(transfer.requests))
        assert all(made)
        transfer.finish()
        assert noted.told() == finished
        assert not any(made)
    rows.close()
    assert noted.told() == ["Unlock_all", "Free"]


@pytest.mark.mpi(min_size=3)
def test_what_a_trainer_adds_in_memory_of_its_host_is_there_when_it_goes_on(monkeypatch):
    made = noted_types(host_tables, monkeypatch)
    tables = HostTables(MPI.COMM_SELF, ROWS, 0, ROWS, 6)
    tables.rows[:] = 0
    noted = Noted(tables._window)
    tables._window = noted  # type: ignore[assignment]
    offsets = np.asarray([7, 7, 5], dtype=np.int32)
    tables.add(0, offsets, np.ones((3, 6), dtype=np.float32))
    assert noted.told() == ["Accumulate", "Flush"] * 2
    assert len(made) == 2
    assert not any(made)
    assert tables.rows[[7, 5, 0], 0].tolist() == [2.0, 1.0, 0.0]
    tables.synchronise()
    tables.close()
    assert noted.told() == ["Sync", "Unlock_all", "Free"]
    assert tables.rows.size == tables.own.size == 0
