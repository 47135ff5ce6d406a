"""What servers and trainers tell each other at a checkpoint."""

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.mpi.checkpoint_channel import receive_updated, send_updated
from bagpipe_hpc.rows.partition import RoundRobinPartition
from bagpipe_hpc.rows.updated import UpdatedRows, flag_bytes, flagged

TIMEOUT_S = 30.0
ROWS = (64, 8)
"""Of two groups of tables, all of them at one server."""


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["a list before bits", "bits before a list"])
def test_each_group_has_its_own_updated_rows(comm: MPI.Comm, order: tuple[int, int]) -> None:
    """Where trainers list those of one group and send bits for the other; both have come before any is read."""
    groups = [RoundRobinPartition(ROWS[number], 1) for number in order]
    trainers = range(1, comm.Get_size())
    wrote = [{trainer: _written(rows, trainer) for trainer in trainers} for rows in (ROWS[number] for number in order)]
    if rank := comm.Get_rank():
        kinds = []
        for group, (partition, rows) in enumerate(zip(groups, wrote, strict=True)):
            updated = UpdatedRows(partition)
            updated.add(rows[rank])
            kinds.append((told := updated.by_server()[0]).dtype)
            send_updated(comm, group, [told], TIMEOUT_S)
        assert len(set(kinds)) == len(kinds)
    comm.Barrier()
    if not rank:
        for group, rows in enumerate(wrote):
            held = ROWS[order[group]]
            came = flagged(receive_updated(comm, group, trainers, flag_bytes(held), TIMEOUT_S), held)
            np.testing.assert_array_equal(came, np.unique(np.concatenate([*rows.values()])))


def _written(rows: int, trainer: int) -> np.ndarray:
    """One of many rows, which takes fewer bytes as a list, or all but one of few."""
    return np.asarray([7 * trainer]) if rows == max(ROWS) else np.delete(np.arange(rows), trainer)
