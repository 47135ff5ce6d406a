"""Memory for what is counted of each row of all tables, on the one host that counts."""

from pathlib import Path

from bagpipe_hpc.cluster.host_memory import free_bytes
from bagpipe_hpc.errors import CapacityError
from bagpipe_hpc.storage.shards.manifest import ShardManifest


def require_counting_memory(directory: Path, manifest: ShardManifest, row_bytes: int) -> None:
    """Check that this host has memory for `row_bytes` bytes for each row of all tables.

    Raises:
        CapacityError: it has less.
    """
    rows = sum(manifest.table_rows)
    needed, free = row_bytes * rows, free_bytes()
    if needed > free:
        raise CapacityError(
            f"{directory}: to count the look-ups of {rows} rows takes {needed / 1e9:.1f} GB, {row_bytes} bytes a row, "
            f"and {free / 1e9:.1f} GB are free; use a host with more memory, or prepare the data with fewer rows"
        )
