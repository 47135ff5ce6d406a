"""What trainers have moved at each server is added up over groups of tables and trainers."""

import numpy as np

from bagpipe_hpc.telemetry.server_load import added_up, server_loads

WIDE = {"got": np.asarray([3, 0]), "put": np.asarray([1, 0]), "added": np.asarray([0, 2])}
NARROW = {"got": np.asarray([10, 20]), "put": np.asarray([0, 5]), "added": np.asarray([0, 0])}


def test_groups_are_added_up_with_their_sizes() -> None:
    assert server_loads([WIDE, NARROW], [100, 4]) == [
        {"rows_got": 13, "rows_put": 1, "rows_added": 0, "bytes": 440},
        {"rows_got": 20, "rows_put": 5, "rows_added": 2, "bytes": 300},
    ]


def test_trainers_are_added_up_server_by_server() -> None:
    one, two = server_loads([WIDE], [1]), server_loads([NARROW], [1])
    assert added_up([one, two]) == server_loads([WIDE, NARROW], [1, 1])
