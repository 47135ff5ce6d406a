"""First records of a partition of the tables, as servers and the reference write them: new ones, or a checkpoint's."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagpipe_hpc.progress import LongWork
from bagpipe_hpc.rows.disk.array_face import DiskRows
from bagpipe_hpc.rows.initial_values import initial_weights
from bagpipe_hpc.rows.partition import RowPartition
from bagpipe_hpc.run.row_group import RowGroup
from bagpipe_hpc.run.run import Run

_FILL_WEIGHTS = 1 << 18
"""Weights that are initialised at a time: their temporaries stay in the processor's cache, whatever the width."""


def fill_partition(
    records: NDArray[np.float32] | DiskRows, run: Run, group: RowGroup, partition: RowPartition, server: int
) -> None:
    """Write the first values of a partition: the checkpoint's where the run begins with one, else new ones.

    New weights depend on (seed, table, id); new optimizer state is what the optimizer says, and every version is 0.

    Args:
        records: float32 `[rows on the server, W]`, written in place, piece by piece.
        run: the checkpoint or the seed that the first records come from.
        group: whose rows they are.
        partition: where each row lies.
        server: whose rows these are.

    Raises:
        CheckpointError: a file of the checkpoint is damaged.
        DataError: a vocabulary is missing or damaged.
    """
    saved = group.record.saved_width
    if run.start is not None and run.origins is None:
        with run.start.open_rows(run.groups.index(group), weights_only=not run.trains) as files:
            files.read_server(partition, server, records[:, :saved])
        records[:, saved:] = 0.0
        return
    _fill_anew(records, run, group, partition, server)
    if run.origins is not None:
        shards = Path(run.config.data.path), run.manifest
        run.origins.lay_over(group.tables, partition, server, records[:, :saved], shards)


def _fill_anew(
    records: NDArray[np.float32] | DiskRows, run: Run, group: RowGroup, partition: RowPartition, server: int
) -> None:
    """Write new values; arguments as for `fill_partition`."""
    saved = group.record.saved_width
    embedding_dim, tables = group.width, group.tables
    new_state = np.asarray(group.record.first_state, dtype=np.float32)
    fill_rows = max(1, _FILL_WEIGHTS // embedding_dim)
    for first, last in _pieces(len(records), fill_rows, is_told=server == 0):
        rows = partition.rows_of(server, first, last)
        records[first:last, :embedding_dim] = initial_weights(
            rows,
            tables.tables.offsets,
            embedding_dim,
            run.config.train.seed,
            run.config.initial_bound,
            tables.numbers,
        )
        records[first:last, embedding_dim:saved] = new_state
        records[first:last, saved:] = 0.0


def _pieces(rows: int, most: int, *, is_told: bool) -> Iterator[tuple[int, int]]:
    """The first row of each piece and that behind its last one; a terminal shows how far it is."""
    with LongWork("filling the tables", rows, "rows of server 0", is_told=is_told) as work:
        for first in range(0, rows, most):
            last = min(first + most, rows)
            yield first, last
            work.advance(last - first)
