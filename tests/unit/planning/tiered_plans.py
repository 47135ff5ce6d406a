"""Plans that keep rows of two tables everywhere or once a host, and the pinned policy that goes by them."""

from pathlib import Path
from typing import Any

import numpy as np

from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.planning.policies.pinned.settings import PinnedSettings
from bagpipe_hpc.planning.policy import Policy, RunFacts
from bagpipe_hpc.planning.policy_choice import build_policy
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.table_plan import write_plan

TABLES = (40, 60)
NAMES = ("C1", "C2")
EVERYWHERE, HOSTED = [0, 3, 40], [1, 2, 39, 41, 60]
"""Rows of both tables, as they are numbered through."""


def plan_file(path: Path, hosts: int, everywhere: list[int], hosted: list[int]) -> Path:
    tables = [WholeTable(name, rows, 4, 20) for name, rows in zip(NAMES, TABLES, strict=True)]

    def by_table(rows: list[int]) -> dict[str, np.ndarray]:
        first = [row for row in rows if row < 40], [row - 40 for row in rows if row >= 40]
        return {name: np.array(found, dtype=np.int64) for name, found in zip(NAMES, first, strict=True)}

    with path.open("wb") as file:
        pinned, at_hosts = by_table(everywhere), by_table(hosted)
        write_plan(file, "flexshard", "ab" * 32, 1, tables, [0, 0], pinned, hosted=at_hosts, trainer_hosts=hosts)
    return path


def made(path: Path, trainers: int, sharing: str = "tiered", **facts: Any) -> Policy:
    known = RunFacts(np.asarray([0, 40, 100]), trainers, 9, sharing=sharing, table_names=NAMES, **facts)
    return build_policy(PolicyConfig("pinned", PinnedSettings(plan=str(path))), known)
