"""Which blocks of rows are in memory, and how many are read for it."""

import numpy as np

from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.disk.block_file import OpenBlockFile
from bagpipe_hpc.rows.disk.layout import BlockLayout
from bagpipe_hpc.rows.disk.residency import Residency
from bagpipe_hpc.rows.disk.store import DiskStore, wait_for
from bagpipe_hpc.rows.store import Use
from tests.unit.rows.disk.small_stores import FILES, ROWS, WIDTH, fill, new_store, records


def test_announced_blocks_are_read_before_they_are_asked_for_and_once(folder: str) -> None:
    store = new_store(folder)
    table = fill(store)
    rows = np.asarray([0, 1, 26, 52, 7])
    wait_for(store.gather(np.arange(100, 160), np.empty((60, WIDTH), np.float32)))  # the others have to go
    store.announce(4, Use.GET, rows)
    before = store.blocks_read
    store.work()
    assert store.blocks_ahead == 4 == store.blocks_read - before
    store.work()
    np.testing.assert_array_equal(store.read(rows), table[rows])
    assert store.blocks_read - before == 4
    store.close()


def test_what_is_announced_stays_until_it_is_used(folder: str) -> None:
    """However much else is used meanwhile; afterwards it goes like the rest."""
    store = new_store(folder)
    fill(store)
    rows, others = np.asarray([0, 26]), np.arange(60, ROWS)
    store.announce(0, Use.GET, rows)
    store.work()
    store.read(others)
    before = store.blocks_read
    store.begin(0, Use.GET, rows.size)
    store.read(rows)
    assert store.blocks_read == before
    store.read(others)
    before = store.blocks_read
    store.read(rows)
    assert store.blocks_read == before + 2
    store.close()


def test_a_block_stays_however_often_it_is_promised() -> None:
    """Each of thousands of announcements counts: those of hundreds of trainers, for batches ahead."""
    residency, promises = Residency(blocks=4, frames=2), 1 << 15

    def use(block: int) -> int:
        claim = residency.claim(np.asarray([block]), done=0)
        assert claim is not None
        residency.release(claim)
        return int(claim.frames[0])

    promised = np.asarray([0])
    frame = use(0)
    for _ in range(promises):
        residency.promise(promised)
    assert frame not in {use(1), use(2)}
    assert use(0) == frame
    for _ in range(promises):
        residency.redeem(promised)
    use(2)
    assert use(3) == frame


def test_a_request_that_overtakes_its_announcement_is_not_read_ahead(store: DiskStore) -> None:
    fill(store)
    store.begin(0, Use.PUT, 3)
    store.announce(0, Use.PUT, np.asarray([0, 26, 52]))
    store.work()
    assert store.blocks_ahead == 0


def test_blocks_that_were_read_ahead_leave_room_for_others(store: DiskStore) -> None:
    """Half of the memory at most, however much is announced; and those give way where a call needs more."""
    fill(store)
    store.announce(0, Use.GET, np.arange(0, 100))
    for _ in range(10):
        store.work()
        store.read(np.asarray([232]))
    assert store.blocks_ahead == store.frames // 2
    store.read(np.arange(ROWS))


@FILES
def test_what_is_flushed_is_in_the_file_and_in_memory(folder: str, open_file: OpenBlockFile) -> None:
    store = new_store(folder, open_file)
    table = fill(store)
    wait_for(store.flush())
    written, read = store.blocks_written, store.blocks_read
    assert written == store.layout.blocks
    rows = np.arange(ROWS - 5 * store.frames + 5, ROWS)
    np.testing.assert_array_equal(store.read(rows), table[rows])
    assert store.blocks_read == read
    np.testing.assert_array_equal(store.read(np.arange(ROWS)), table)
    assert store.blocks_written == written
    store.close()


def test_rows_that_fill_their_blocks_are_not_read_to_be_put(folder: str) -> None:
    """Announced or not; parts of blocks are."""
    store = new_store(folder)
    table = fill(store)
    before = store.blocks_read
    for rows in (np.arange(10, 20), np.arange(230, 233)):  # the last block holds three rows
        store.announce(0, Use.PUT, rows)
        store.work()
        store.begin(0, Use.PUT, rows.size)
        wait_for(store.scatter(rows, -table[rows]))
        table[rows] *= -1
    assert store.blocks_read == before
    wait_for(store.scatter(np.arange(30, 34), -table[30:34]))
    table[30:34] *= -1
    assert store.blocks_read == before + 1
    np.testing.assert_array_equal(store.read(np.arange(ROWS)), table)
    store.close()


def test_rows_that_come_back_whole_make_room_first(folder: str) -> None:
    """A row that has a block of its own is of no use once a trainer has got it, until that puts it back."""
    layout = BlockLayout.of(ROWS, 100, 512)
    store = new_store(folder, memory_bytes=layout.bytes_with(40), width=100)
    table = records(ROWS, 1, 100)
    DiskRows(store)[:] = table
    wait_for(store.flush())
    put = np.arange(10)
    wait_for(store.scatter(put, -table[put]))
    store.read(np.arange(50, 80))
    wait_for(store.scatter(np.arange(100, 125), table[100:125]))
    before = store.blocks_read
    np.testing.assert_array_equal(store.read(put), -table[put])
    assert store.blocks_read == before
    store.close()
