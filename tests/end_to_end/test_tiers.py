"""Rows in tiers end with the reference's bits on two hosts and on four; a sum over hosts in another order does not."""

from pathlib import Path

import numpy as np
import pytest

from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.table_plan import write_plan
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.breakages import NOTHING, TIER_MUTANTS
from tests.end_to_end.test_equality import RunRanks, overrides, train
from tests.end_to_end.test_policies_of_many_trainers import WIDTHS

HOSTS = (0, 0, 0, 0, 4, 4)
"""Of an oracle, a server and four trainers."""
LARGE_STEPS = ["optimizer.rows_lr=1.0", "data.lanes=4", "data.block_rows=50"]
"""In the sums of small gradients other orders of additions would be lost when the weights are rounded."""
SHORT = ["train.max_steps=17"]
"""A batch of a single sample, the fourteenth, is among them."""
CASES = {
    "adam, two hosts": ("adam", 2, ["train.checkpoint_every_steps=9", *SHORT]),
    "adagrad, four hosts": ("adagrad", 4, ["lookahead.batches=5", "cache.exchange=grid", *SHORT]),
    "several widths": ("rowwise_adagrad", 2, [WIDTHS, "lookahead.batches=1", "cache.exchange=grid", *SHORT]),
}
"""Optimizers, hosts that plans are made for, and further settings. Gradients travel in 16 bits in the first two."""


def tiers_of(shards: Path, path: Path, hosts: int) -> Path:
    """A plan in which every seventh row is with every trainer, and every third of the others once a host."""
    tables = [WholeTable(table.name, table.rows, 8, 36) for table in load_manifest(shards).tables]
    everywhere = {table.name: np.arange(0, table.rows, 7) for table in tables}
    hosted = {table.name: np.setdiff1d(np.arange(0, table.rows, 3), everywhere[table.name]) for table in tables}
    with path.open("wb") as file:
        holders = [0] * len(tables)
        write_plan(file, "flexshard", "ab" * 32, 1, tables, holders, everywhere, hosted=hosted, trainer_hosts=hosts)
    return path


@pytest.mark.slow
def test_four_trainers_end_with_the_references_bits(
    shards: Path, wide_config: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """One run goes on from a checkpoint of rows in tiers, with other hosts; others are broken."""
    plans = {hosts: tiers_of(shards, tmp_path / f"{hosts}-hosts.npz", hosts) for hosts in (2, 4)}

    def tiered(optimizer: str, name: str, hosts: int, *more: str) -> list[str]:
        own = (
            "policy.name=pinned",
            f"policy.plan={plans[hosts]}",
            "cache.sharing=tiered",
            "debug.verify_rows=true",
            *more,
        )
        return overrides(optimizer, tmp_path / name, "train.deterministic=true", *own, "roles.servers=1")

    alone = [
        overrides(optimizer, tmp_path / f"{name}, alone", "train.reference_slices=4", *more)
        for name, (optimizer, _, more) in CASES.items()
    ]
    sgd = [*LARGE_STEPS, *SHORT]
    alone.append(overrides("sgd", tmp_path / "sgd, alone", "train.reference_slices=4", *sgd))
    train(run_ranks, 1, wide_config, alone, tmp_path)

    runs = {name: tiered(optimizer, name, hosts, *more) for name, (optimizer, hosts, more) in CASES.items()}
    start = tmp_path / "adam, two hosts" / "checkpoints" / "step-00000009"
    runs["resumed"] = tiered("adam", "resumed", 4, f"train.resume={start}", *SHORT)
    runs |= {name: tiered("sgd", name, 2, *sgd) for name in ("sgd", *TIER_MUTANTS)}
    breakages = [name if name in TIER_MUTANTS else NOTHING for name in runs]
    said = train(
        run_ranks, 6, wide_config, [*runs.values()], tmp_path, "--hosts", *map(str, HOSTS), "--break", *breakages
    )

    found = {name: compare(tmp_path / f"{name}, alone", tmp_path / name).largest() for name in (*CASES, "sgd")}
    found["resumed"] = compare(tmp_path / "adam, two hosts, alone", tmp_path / "resumed").largest()
    assert found == dict.fromkeys(found, 0.0)
    assert "are on 2 hosts" not in said, "four hosts of a trainer each are no worse than two of two"
    for name in TIER_MUTANTS:
        assert compare(tmp_path / "sgd, alone", tmp_path / name).largest() > 0.0, name
