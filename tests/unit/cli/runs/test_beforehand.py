"""`bagpipe place` makes the plan that a configuration asks for, and refuses before it searches."""

import re
from pathlib import Path

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.rows.access_statistics import read_statistics
from bagpipe_hpc.rows.placements.table_plan import read_plan
from tests.ragged_shards import write_ragged


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    """Arguments that name a configuration whose statistics are those of its data."""
    (tmp_path / "shards").mkdir()
    write_ragged(tmp_path / "shards", samples=150, test_samples=10)
    assert main(["inspect", str(tmp_path / "shards"), "--statistics", str(tmp_path / "accesses.npz")]) == 0
    (tmp_path / "a.toml").write_text(
        f"""
        data.path = "{tmp_path}/shards"
        model.embedding_dim = 8
        [tables]
        placement = "recshard"
        statistics = "{tmp_path}/accesses.npz"
        plan = "{tmp_path}/plan.npz"
        fast_gb = 1e-6
        """
    )
    return [str(tmp_path / "a.toml"), "--servers", "2"]


def test_a_plan_is_made_of_the_runs_tables(
    config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["place", *config]) == 0
    plan, found = read_plan(tmp_path / "plan.npz"), read_statistics(tmp_path / "accesses.npz")
    assert (plan.method, plan.servers, plan.data) == ("recshard", 2, found.data)
    assert {name: table.rows for name, table in plan.tables.items()} == {
        name: table.rows for name, table in found.tables.items()
    }
    pinned = [rows.tolist() for rows, _ in plan.kept_rows(plan.tables)]
    hottest = [rows.tolist() for rows, _ in found.hottest(plan.tables)]
    assert all(own == rows[: len(own)] for own, rows in zip(pinned, hottest, strict=True))
    row_bytes = 4 * (8 + 1)
    assert 0 < sum(map(len, pinned)) * row_bytes <= 1000
    said = capsys.readouterr().out
    assert "recshard: no split is better by 0.01 %; found by" in said
    assert f"{len(plan.tables)} tables on 2 servers" in said


def test_statistics_of_other_rows_are_told(
    config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    write_ragged(tmp_path / "other", samples=90, test_samples=10)
    assert main(["place", *config, f"data.path={tmp_path}/other"]) == 0
    assert re.search(r"accesses\.npz: counts other training rows than those of .*other", capsys.readouterr().err)


def test_what_cannot_be_is_refused(config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for overrides, problem in (
        (["tables.server_gb=1e-6", "tables.time_limit_s=0"], "the quick search finds no room for all tables"),
        (["tables.server_gb=1e-6"], "no split keeps all limits"),
        (["tables.statistics="], r"tables\.statistics = ''"),
        (["tables.plan="], r"tables\.plan = ''"),
        ([f"tables.plan={tmp_path}/absent/plan.npz"], r"tables\.plan = .*absent is no folder; make it"),
        (["tables.plan=/proc/plan.npz"], r"tables\.plan = '/proc/plan\.npz' cannot be written"),
    ):
        assert main(["place", *config, *overrides]) == 2
        assert re.search(problem, capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main(["place", *config, "--servers", "100001"])
    assert "--servers: 100001: use 100,000 or less" in capsys.readouterr().err
    (tmp_path / "plan.npz").touch()
    assert main(["place", *config]) == 2
    assert "is there already; remove it, or use another name" in capsys.readouterr().err
    (tmp_path / "b.toml").write_text(f'data.path = "{tmp_path}/shards"\n')
    assert main(["place", str(tmp_path / "b.toml"), "--servers", "2"]) == 2
    assert "tables.placement = 'round_robin': has no plan to be made" in capsys.readouterr().err
