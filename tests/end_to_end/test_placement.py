"""Where rows lie changes no result: a run may go on with another placement, and ends with the reference's bits."""

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.rows.placements.table_plan import read_plan
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.inspection.access_counts import save_statistics
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import DRIVER, RunRanks, overrides
from tests.extending import Example
from tests.fork_server import forked_rank


@pytest.mark.slow
def test_the_example_of_the_page_places_rows(
    example: Callable[[str], Example], shards: Path, config_path: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Two servers save scattered rows, all of them and then an increment; three go on, each placement in turn.

    Of two the hottest rows stay with the trainers, at one home each or replicated.
    """
    scattered = example("Placement")
    statistics = tmp_path / "accesses.npz"
    save_statistics(shards, load_manifest(shards), statistics)

    def train(ranks: int, runs: list[list[str]]) -> None:
        path = tmp_path / f"runs-{ranks}.json"
        path.write_text(json.dumps(runs))
        environment = scattered.environment
        finished = run_ranks(ranks, *forked_rank(DRIVER), config_path, path, timeout_s=400, env=environment)
        assert finished.returncode == 0, finished.stdout + finished.stderr

    def run(output: str, *more: str) -> list[str]:
        return overrides("adam", tmp_path / output, "train.max_steps=24", "train.deterministic=true", *more)

    saved = ("train.checkpoint_every_steps=6", "train.full_checkpoint_every=2")
    train(5, [run("scattered", "roles.servers=2", *saved, *scattered.overrides)])
    start = tmp_path / "scattered" / "checkpoints" / "step-00000012"
    assert load_checkpoint(start).manifest.placement == "scattered_rows:ScatteredRows"
    with h5py.File(start.with_name("step-00000006") / "rows-00001-of-00002.h5") as file:
        assert "rows" in file
        assert "runs" not in file
    planned = {}
    tiers = ["tables.trainer_hosts=2", "tables.once_a_host=true", "tables.within_gb_s=1000"]
    for method, more in {"recshard": [], "flexshard": [], "tiers": tiers}.items():
        plan = tmp_path / f"{method}.npz"
        placement = method if method != "tiers" else "flexshard"
        of_plan = [f"tables.placement={placement}", f"tables.statistics={statistics}", f"tables.plan={plan}", *more]
        assert main(["place", str(config_path), "--servers", "3", *of_plan, "tables.fast_gb=2e-5"]) == 0
        tables = read_plan(plan).tables.values()
        assert 0 < sum(table.pinned + table.hosted for table in tables) < 2e4 / 32
        planned[method] = [*of_plan, "policy.name=pinned", f"policy.plan={plan}"]
    plan = tmp_path / "dreamshard.npz"
    learned = ["tables.placement=dreamshard", f"tables.statistics={statistics}", f"tables.plan={plan}"]
    assert main(["place", str(config_path), "--servers", "3", *learned, "tables.rounds=1"]) == 0
    ways = {
        "dealt": ["tables.placement=round_robin"],
        "whole-tables": ["tables.placement=by_table"],
        "random": ["tables.placement=random", "tables.placement_seed=3"],
        "by-look-ups": ["tables.placement=greedy_size_lookup", f"tables.statistics={statistics}"],
        "recshard": [*planned["recshard"], "cache.sharing=home", "lookahead.batches=5"],
        "flexshard": [*planned["flexshard"], "cache.sharing=replicated", "debug.verify_rows=true"],
        "tiers": [*planned["tiers"], "cache.sharing=tiered", "debug.verify_rows=true"],
        "dreamshard": learned,
        "scattered-again": ["tables.placement=scattered_rows:ScatteredRows", "tables.spread=77"],
    }
    go_on = [f"train.resume={start}", "roles.servers=3", "roles.same_host=transfers"]
    train(6, [run(name, *go_on, *way) for name, way in ways.items()])
    train(
        1,
        [
            run("reference", "train.reference_slices=2", f"train.resume={start}"),
            run("anew", "train.reference_slices=2"),
        ],
    )
    for name in (*ways, "scattered", "reference"):
        assert compare(tmp_path / "anew", tmp_path / name).largest() == 0.0, name
