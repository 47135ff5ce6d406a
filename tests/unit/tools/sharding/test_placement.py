"""`bagpipe place` learns a plan by AutoShard or DreamShard; runs read it without torch."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.config.doors import SettingError
from bagpipe_hpc.config.schema import TablesConfig
from bagpipe_hpc.rows.access_statistics import read_statistics
from bagpipe_hpc.rows.partition import Tables
from bagpipe_hpc.rows.placement import check_partition, place_groups
from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.planned import Request
from bagpipe_hpc.rows.placements.settings import LearnedSettings
from bagpipe_hpc.rows.placements.table_plan import read_plan
from bagpipe_hpc.tools.sharding import measured_costs, search
from bagpipe_hpc.tools.sharding.learned import Learned
from bagpipe_hpc.tools.sharding.task import FEATURES, GroupCost, Task
from tests.ragged_shards import write_ragged
from tests.statistics_files import write_accesses, zipf_counts

COUNTS = {f"C{number}": zipf_counts(50 * (number + 1), 400) for number in range(6)}
SIZES = {name: len(counts) for name, counts in COUNTS.items()}
TABLES = tuple(WholeTable(name, rows, 8, 36) for name, rows in SIZES.items())
NOTHING = SimpleNamespace(best=lambda *_: None)
"""What has learned that there is no room."""
BYTES = [table.bytes for table in TABLES]


@pytest.fixture(autouse=True)
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_costs, "_FLUSHED_BYTES", 1 << 12)


def request(folder: Path, servers: int = 2) -> Request:
    return Request(TABLES, read_statistics(write_accesses(folder / "accesses.npz", COUNTS)), servers, 32)


def settings(folder: Path, server_gb: float = 0.0) -> LearnedSettings:
    return LearnedSettings(server_gb=server_gb, statistics=str(folder / "accesses.npz"), rounds=1, measured_gb=0.01)


@pytest.mark.parametrize("method", ["autoshard", "dreamshard"])
def test_a_plan_is_learned_and_read_by_runs(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shards").mkdir()
    write_ragged(tmp_path / "shards", samples=150, test_samples=10)
    assert main(["inspect", str(tmp_path / "shards"), "--statistics", str(tmp_path / "accesses.npz")]) == 0
    (tmp_path / "a.toml").write_text(
        f"""
        data.path = "{tmp_path}/shards"
        model.embedding_dim = 8
        train.batch_size = 16
        [tables]
        placement = "{method}"
        statistics = "{tmp_path}/accesses.npz"
        plan = "{tmp_path}/plan.npz"
        rounds = 1
        measured_gb = 0.01
        """
    )
    assert main(["place", str(tmp_path / "a.toml"), "--servers", "2"]) == 0
    said = capsys.readouterr().out
    assert method in said
    assert "greedy_size_lookup" in said
    assert "(Spearman)" in said
    plan = read_plan(tmp_path / "plan.npz")
    assert (plan.method, plan.servers) == (method, 2)
    assert sum(table.pinned for table in plan.tables.values()) == 0
    assert len(plan.expected_ms) == 2
    config = TablesConfig(placement=method)
    config = replace(config, settings=replace(config.settings, plan=str(tmp_path / "plan.npz")))
    tables = Tables(tuple(table.rows for table in plan.tables.values()), tuple(plan.tables), width=8)
    (partition,) = place_groups(config, [(tables, 36)], 2)
    check_partition(partition, config, tables, 2)
    assert partition.owner(tables.offsets[:-1]).tolist() == [table.holder for table in plan.tables.values()]


def test_runs_read_a_plan_without_torch() -> None:
    program = """
        import sys
        from bagpipe_hpc.config.doors import PLACEMENTS
        PLACEMENTS.implementation("autoshard"), PLACEMENTS.implementation("dreamshard")
        sys.exit("torch" in sys.modules)
    """
    lines = "\n".join(line.strip() for line in program.splitlines())
    assert subprocess.run([sys.executable, "-c", lines], check=False, timeout=60).returncode == 0


def test_limits_are_kept_and_lack_of_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(tmp_path)
    limit = 0.6 * sum(BYTES)
    found = search.search_assignment("dreamshard", asked, settings(tmp_path, limit / 1e9))
    for server in (0, 1):
        assert sum(size for size, holder in zip(BYTES, found.holders, strict=True) if holder == server) <= limit
    with pytest.raises(SettingError, match=r"tables\.server_gb = .*: no server has room for table C5 of"):
        search.search_assignment("dreamshard", asked, settings(tmp_path, (max(BYTES) - 1) / 1e9))
    monkeypatch.setattr(search, "_learn", lambda *_: NOTHING)
    with pytest.raises(SettingError, match=r"tables\.server_gb = .*: no assignment was found with room"):
        search.search_assignment("dreamshard", asked, settings(tmp_path, 1.01 * max(BYTES) / 1e9))


def test_a_greedy_assignment_that_is_better_is_taken_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learned, "best", lambda *_: (0,) * len(TABLES))  # all on one server
    found = search.search_assignment("autoshard", request(tmp_path), settings(tmp_path))
    assert len(set(found.holders)) == 2
    assert found.report[-1].startswith("nothing that autoshard found was better than greedy_")


def test_settings_that_cannot_be_are_refused() -> None:
    for key, value in (("rounds", -1), ("measured_gb", 0.0), ("placement_seed", -1)):
        with pytest.raises(SettingError, match=f"{key} = {value}: use"):
            LearnedSettings(**{key: value})  # type: ignore[arg-type]


def test_assignments_are_compared_in_turn() -> None:
    """A machine that is busy for a while, here in the first round, makes none look slower than another."""

    class Busy:
        rounds, measured = 0, 0

        def forget(self) -> None:
            self.rounds += 1

        def cost(self, group: Sequence[int]) -> GroupCost:
            self.measured += 1
            busy = 3.0 if self.rounds == 1 and 0 in group else 0.0
            return GroupCost(len(group) + busy, 0.0)

    task = Task(TABLES, np.zeros((len(TABLES), FEATURES), dtype=np.float32), 2)
    ways = {"even": (0, 1, 0, 1, 0, 1), "uneven": (0, 1, 1, 1, 1, 1)}
    assert search.measured_in_turn(ways, task, busy := Busy()) == {"even": 3.0, "uneven": 5.0}
    assert busy.rounds == 5
