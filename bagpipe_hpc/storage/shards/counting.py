"""What must hold before one host counts the look-ups of each row of all tables by reading the shards once."""

from pathlib import Path

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.errors import CapacityError, DataError
from bagpipe_hpc.storage.shards.manifest import ShardManifest


def require_countable(directory: Path, manifest: ShardManifest, row_bytes: int) -> None:
    """Check that shards hold all look-ups, and that this host has memory for `row_bytes` bytes for each row.

    Raises:
        DataError: there is a graph, whose nodes' neighbours are drawn anew in each epoch.
        CapacityError: the host has less memory.
    """
    if manifest.graph is not None:
        raise DataError(
            f"{directory}: holds a graph: shards have the nodes of samples alone, and a run draws their neighbours "
            "anew in each epoch, so that look-ups cannot be counted ahead; `bagpipe compare-policies` counts a run's"
        )
    rows = sum(manifest.table_rows)
    needed, free = row_bytes * rows, free_bytes()
    if needed > free:
        raise CapacityError(
            f"{directory}: to count the look-ups of {rows} rows takes {needed / 1e9:.1f} GB, {row_bytes} bytes a row, "
            f"and {free / 1e9:.1f} GB are free; use a host with more memory, or prepare the data with fewer rows"
        )
