"""What crosses hosts: counted in plans of a few look-ups whose users are known."""

import argparse
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.bags import Bags
from bagpipe_hpc.planning.lookahead.home_rules import HomePlanner
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.planning.window import Window
from benchmarks import host_sharing
from benchmarks.host_sharing import LocalHomes, crossings, drawn_look_ups, shared_cells

WINDOW = Window(3, 1)
COPIES, GRADIENTS = ("next_copies", "rest_copies"), ("now_home", "later_home")


def counted(planner: HomePlanner, batches: list[list[int]], of_host: int) -> dict[str, tuple[int, ...]]:
    """Copies and gradients between hosts of all batches: single and shared ones."""
    plans = plan_segment(planner, [Bags.one_hot(np.array(rows, dtype=np.int64)[:, None]) for rows in batches])
    found = [crossings(plan, of_host) for plan in plans]
    return {
        name: tuple(
            sum(int(of_plan[kind].between_hosts(are_shared=shared).sum()) for of_plan in found for kind in kinds)
            for shared in (False, True)
        )
        for name, kinds in (("copies", COPIES), ("gradients", GRADIENTS))
    }


def test_a_host_gets_one_copy_and_sends_one_gradient() -> None:
    """Row 0 lives at trainer 0, and trainers 2 and 3 of the other host use it, too."""
    found = counted(HomePlanner(8, 4, WINDOW), [[0, 1, 0, 0]], 2)
    assert found == {"copies": (2, 1), "gradients": (2, 1)}


def test_hosts_of_one_trainer_share_nothing_and_one_host_has_nothing_to_send() -> None:
    rng = np.random.default_rng(0)
    batches = rng.integers(0, 12, (6, 16)).tolist()
    alone, together = (counted(HomePlanner(12, 4, WINDOW), batches, of_host) for of_host in (1, 4))
    pairs = sum(len(set(rows[first:end])) for rows in batches for first, end in pairwise(range(0, 17, 4))) - sum(
        len(set(rows)) for rows in batches
    )
    assert pairs > 0
    assert alone["copies"][0] == alone["copies"][1] == alone["gradients"][0] == alone["gradients"][1]
    assert alone["copies"][0] >= pairs  # a home that does not use its row has one user more to send it to
    assert together == {"copies": (0, 0), "gradients": (0, 0)}


def test_local_homes_are_at_the_host_with_most_uses_of_the_window() -> None:
    """Trainer 0 uses row 0 first; later in the window both trainers of the other host do."""
    batches = [[0, 1, 2, 3], [4, 5, 0, 0]]
    assert counted(HomePlanner(8, 4, WINDOW), batches, 2)["copies"] == (2, 1)
    assert counted(LocalHomes(2, 8, 4, WINDOW), batches, 2)["copies"] == (1, 1)


def arguments(**changes: Any) -> argparse.Namespace:
    values = {"rows": 3000, "batch_size": 64, "lookahead": 3, "batches": 4, "local_homes": False, "quick": False}
    return argparse.Namespace(**{**values, **changes})


def test_trainers_without_whole_hosts_are_said() -> None:
    report = host_sharing.run(arguments(trainers=[4, 6], trainers_per_host=[2, 4]))
    measured = [(cell["trainers"], cell["trainers_per_host"]) for cell in report.figures["cells"]]
    assert list(dict.fromkeys(measured)) == [(4, 2), (4, 4), (6, 2)]
    assert report.figures["not_run"] == [{"trainers": 6, "trainers_per_host": [4]}]
    assert report.lines[0] == "not run: 6 trainers in hosts of 4: these are no whole hosts"


def test_without_any_whole_hosts_nothing_is_measured() -> None:
    with pytest.raises(ConfigError, match="--trainers 6: these are no whole hosts of 4 or 8; use multiples of one"):
        host_sharing.run(arguments(trainers=[6], trainers_per_host=None))


def test_what_hosts_share_saves_rows_and_no_prediction_gets_slower() -> None:
    single, copies, both = shared_cells(drawn_look_ups(arguments(rows=5000, batch_size=256), 4), [2])
    assert single["copies"] == pytest.approx(single["gradients"], rel=0.2)
    assert copies["copies"] < single["copies"]
    assert (copies["gradients"], both["copies"]) == (single["gradients"], copies["copies"])
    assert both["gradients"] < single["gradients"]
    assert both["step_ms_without_dense_sums_25gbit"] <= single["step_ms_without_dense_sums_25gbit"]
