"""A plan of tables says in every run what was found once; one that does not fit is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import TablesConfig
from bagpipe_hpc.errors import DataError
from bagpipe_hpc.rows.partition import Tables
from bagpipe_hpc.rows.placement import check_partition, place_groups
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.settings import RecShardSettings
from bagpipe_hpc.rows.placements.table_plan import read_plan, write_plan

GROUPS = [(Tables((30, 7), ("C1", "C3"), width=8), 36), (Tables((50,), ("C2",), width=2), 12)]
TABLES = [WholeTable("C1", 30, 8, 36), WholeTable("C3", 7, 8, 36), WholeTable("C2", 50, 2, 12)]
PINNED = {"C1": np.array([3, 29, 0]), "C2": np.array([49])}


def written(path: Path) -> Path:
    with path.open("wb") as file:
        write_plan(file, "recshard", "ab" * 32, 3, TABLES, [2, 0, 2], PINNED, [0.5, 0.0, 2.25])
    return path


def config_of(path: Path, **settings: Any) -> TablesConfig:
    return TablesConfig(placement="recshard", settings=RecShardSettings(plan=str(path), **settings))


def test_a_run_places_tables_as_the_plan_says(tmp_path: Path) -> None:
    config = config_of(written(tmp_path / "plan.npz"))
    wide, narrow = place_groups(config, GROUPS, 3)
    assert wide.owner(np.array([0, 29, 30, 36])).tolist() == [2, 2, 0, 0]
    assert narrow.owner(np.array([0, 49])).tolist() == [2, 2]
    for (tables, _), partition in zip(GROUPS, (wide, narrow), strict=True):
        check_partition(partition, config, tables, 3)


def test_a_plan_keeps_what_was_written(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path / "plan.npz"))
    assert (plan.method, plan.data, plan.servers) == ("recshard", "ab" * 32, 3)
    assert plan.expected_ms == (0.5, 0.0, 2.25)
    assert [(name, found.rows, found.holder, found.pinned) for name, found in plan.tables.items()] == [
        ("C1", 30, 2, 3),
        ("C3", 7, 0, 0),
        ("C2", 50, 2, 1),
    ]
    kept = zip(plan.tables, plan.kept_rows(plan.tables), strict=True)
    assert {name: pinned.tolist() for name, (pinned, _) in kept} == {"C1": [3, 29, 0], "C3": [], "C2": [49]}


def test_a_plan_of_other_tables_or_servers_is_refused(tmp_path: Path) -> None:
    config = config_of(written(tmp_path / "plan.npz"))
    with pytest.raises(DataError, match=r"is a plan for 3 servers, and the run has 2; .*`bagpipe place CONFIG --serv"):
        place_groups(config, GROUPS, 2)
    with pytest.raises(DataError, match="table 'C9' has 30 rows, and the plan knows no such table"):
        place_groups(config, [(Tables((30,), ("C9",)), 4)], 3)
    with pytest.raises(DataError, match="table 'C1' has 31 rows, and the plan has 30 rows for it; write it again"):
        place_groups(config, [(Tables((31,), ("C1",)), 4)], 3)
    with pytest.raises(SettingError, match=r"server 2 would hold 1\.68e-06 GB"):
        place_groups(config_of(tmp_path / "plan.npz", server_gb=1e-6), GROUPS, 3)
    with pytest.raises(SettingError, match=r"tables\.plan = '': none is named; name a file that `bagpipe place CONFIG"):
        place_groups(TablesConfig(placement="recshard"), GROUPS, 3)
    with pytest.raises(SettingError, match=r"tables\.plan = '.*absent\.npz': is not there; name a file"):
        place_groups(config_of(tmp_path / "absent.npz"), GROUPS, 3)


@pytest.mark.parametrize(
    ("member", "value", "problem"),
    [
        ("format", np.array(9), "has format 9 instead of 1"),
        ("holders", np.array([2, 0, 3]), "gives a table to server 3 of 3"),
        ("holders", np.array([2, 0]), r"holders must be int64 \[3\]"),
        ("names", np.array(["C1", "C1", "C2"]), "names must be different names"),
        ("pinned/0", np.array([3, 29, 30]), "pins rows of table 'C1' that it does not have, or twice"),
        ("pinned/0", np.array([3, 3, 0]), "pins rows of table 'C1' that it does not have, or twice"),
        ("pinned/0", np.array([3]), r"pinned/0 must be int64 \[3\]"),
        ("expected_ns", np.array([3]), r"expected_ns must be int64 \[3\]"),
    ],
)
def test_a_damaged_plan_is_refused(tmp_path: Path, member: str, value: Any, problem: str) -> None:
    members: dict[str, Any] = dict(np.load(written(tmp_path / "whole.npz")))
    np.savez(tmp_path / "plan.npz", **members | {member: value})
    with pytest.raises(DataError, match=problem):
        next(read_plan(tmp_path / "plan.npz").kept_rows(["C1"]))
