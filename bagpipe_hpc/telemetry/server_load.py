"""What trainers have moved at each server: rows and bytes, of training and evaluations."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

ServerLoad = dict[str, int]
"""What was moved at one server: `rows_got`, `rows_put`, `rows_added`, and the `bytes` of all of them."""


def server_loads(moved: Sequence[Mapping[str, NDArray[np.int64]]], record_bytes: Sequence[int]) -> list[ServerLoad]:
    """What one trainer has moved at each server.

    Args:
        moved: rows of each group of tables by what was done with them, `RowWindow.moved`, int64 `[S]` each.
        record_bytes: of a row of each group.
    """
    kinds = moved[0]
    rows = {what: np.sum([group[what] for group in moved], axis=0) for what in kinds}
    sizes = zip(moved, record_bytes, strict=True)
    total = np.sum([size * np.sum(list(group.values()), axis=0) for group, size in sizes], axis=0)
    return [
        {f"rows_{what}": int(rows[what][server]) for what in kinds} | {"bytes": int(total[server])}
        for server in range(total.size)
    ]


def added_up(trainers: Sequence[Sequence[ServerLoad]]) -> list[ServerLoad]:
    """What all trainers have moved at each server."""
    return [
        {name: sum(own[name] for own in of_server) for name in of_server[0]}
        for of_server in zip(*trainers, strict=True)
    ]
