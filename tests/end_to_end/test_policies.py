"""Policies from outside the package train as the reference does: bit for bit or, with added changes, up to rounding."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

from bagpipe_hpc.rows.placements.assignment import WholeTable
from bagpipe_hpc.rows.placements.table_plan import write_plan
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.addition_mutants import LOOKS_UP_LATE
from tests.end_to_end.breakages import NOTHING
from tests.end_to_end.test_equality import TWO_HOSTS, train
from tests.extending import Example

SERVERS, TRAINERS = 2, 2
SGD = ["optimizer.rows=sgd", "optimizer.dense=SGD"]
LARGE_STEPS = "optimizer.rows_lr=5.0"
"""With small steps most changes of a row are whole multiples of its last digit, and their order costs none."""
HOTLINE = ["policy.name=hotline", "policy.hot_rows=2000", "policy.learning_batches=2", "policy.refresh_batches=4"]
HET = ["policy.name=het", "policy.staleness=0", "cache.rows=2200", *SGD, LARGE_STEPS, "train.deterministic=true"]
LATE = "het, by messages"
"""One trainer looks rows up late; sums by messages do not let the others wait for it at the end of a step."""
HALFWAY = ["train.checkpoint_every_steps=15"]
POLICIES = {
    "bagpipe": [],
    "no cache": ["policy.name=no_cache:NoCache"],
    "none": ["policy.name=none"],
    "scratchpipe": ["policy.name=scratchpipe", "cache.rows=1800", *HALFWAY],
    "pinned": ["policy.name=pinned", "lookahead.batches=5", "cache.sharing=replicated"],
    "pinned, SGD": ["policy.name=pinned", "lookahead.batches=1", "cache.sharing=home", *SGD],
    "by row": ["policy.name=by_row:ByRow", "policy.feature=3", "lookahead.batches=5"],
    "interleaved": ["policy.name=tests.end_to_end.policies:Interleaved", "lookahead.batches=5"],
    "herald": ["policy.name=herald", "cache.rows=1300", *HALFWAY],
    "herald, Adam": ["policy.name=herald", "policy.telling_features=5", "optimizer.rows=adam"],
    "herald, SGD": ["policy.name=herald", "policy.on_demand=false", *SGD],
    "hotline": [*HOTLINE, *HALFWAY],
    "hotline, Adam": [*HOTLINE, "optimizer.rows=adam"],
    "hotline, SGD": [*HOTLINE, *SGD],
    "plain SGD": SGD,
    "plain SGD, large steps": [*SGD, LARGE_STEPS],
    "het": HET,
    "het, stale": ["policy.name=het", "policy.staleness=3", "policy.eviction=lfu", "cache.rows=2200", *SGD],
    LATE: [*HET, "train.dense_sums=mpi"],
    "added": ["policy.name=tests.end_to_end.added_changes:AddedChanges", *SGD],
}
SAME_SLICES = ("no cache", "none", "scratchpipe")
"""Policies that leave samples where bagpipe has them: its reference is theirs."""
OWN_SLICES = (
    "by row",
    "interleaved",
    "herald",
    "herald, Adam",
    "herald, SGD",
    "hotline",
    "hotline, Adam",
    "hotline, SGD",
)
PINNED = ("pinned", "pinned, SGD")
VERIFIED = (*SAME_SLICES, *PINNED, *OWN_SLICES)
BROKEN = {
    "put": ("added", "changes are put"),
    "forgotten": ("het, stale", "changes are forgotten"),
    "reversed": ("het", "the last trainer adds first"),
    "too early": (LATE, "others have not looked up"),
}
"""Policies whose changes are not added as they should, and what is broken."""
ROUNDING = 1e-5
"""Largest difference in proportion to the largest weight of a row. It is not 0: each trainer's change is rounded before
the server adds it. Without `train.deterministic` it adds those of two trainers in the order in which they come, too."""


@pytest.mark.slow
def test_policies_equal_the_reference(
    shards: Path,
    config_path: Path,
    example: Callable[[str], Example],
    run_ranks: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """What happens to rows changes no bit of bagpipe's reference; where samples go elsewhere, the last bits differ.

    Changes that trainers add in rank order make the tables of a reference that adds changes. Each trainer has a near
    server and a far one. Where trainers put what they should add, training is another.
    """
    environment = example("Policy").environment

    def run_with_example(*arguments: Any, **options: Any) -> CompletedProcess[str]:
        return run_ranks(*arguments, env=environment, **options)

    def train_all(ranks: int, runs: dict[str, list[str]], *more: str) -> dict[str, Path]:
        outputs = {name: tmp_path / f"{ranks} ranks {name}" for name in runs}
        settings = [[*runs[name], "train.epochs=1", f"train.output={output}"] for name, output in outputs.items()]
        train(run_with_example, ranks, config_path, settings, tmp_path, *more)
        return outputs

    plain = ("bagpipe", *OWN_SLICES, "plain SGD", "plain SGD, large steps", "het")
    references = train_all(1, {name: [*POLICIES[name], f"train.reference_slices={TRAINERS}"] for name in plain})
    runs = {name: [*POLICIES[name], "debug.verify_rows=true"] for name in VERIFIED}
    for name in PINNED:
        runs[name].append(f"policy.plan={pin_every_third_row(shards, tmp_path / 'plan.npz')}")
    runs |= {name: POLICIES[name] for name in ("het", LATE, "het, stale", "added")}
    runs |= {name: POLICIES[sound] for name, (sound, _) in BROKEN.items()}
    runs = {name: [*settings, f"roles.servers={SERVERS}"] for name, settings in runs.items()}
    broken = {LATE: LOOKS_UP_LATE} | {name: breakage for name, (_, breakage) in BROKEN.items()}
    breakages = [broken.get(name, NOTHING) for name in runs]
    hosts = map(str, TWO_HOSTS[SERVERS, TRAINERS])
    found = train_all(1 + SERVERS + TRAINERS, runs, "--hosts", *hosts, "--break", *breakages)

    expected = dict.fromkeys((*SAME_SLICES, "pinned"), references["bagpipe"]) | references
    expected["pinned, SGD"] = references["plain SGD"]
    differences = {name: compare(expected[name], found[name]).largest() for name in VERIFIED}
    assert differences == dict.fromkeys(VERIFIED, 0.0)
    assert 0.0 < compare(references["bagpipe"], references["by row"]).largest() < 1e-2
    assert compare(references["by row"], references["interleaved"]).largest() > 1e-3

    limit = ROUNDING * largest_weight(references["plain SGD"])
    assert 0.0 < compare(references["plain SGD"], found["added"]).largest() < limit
    assert 0.0 < compare(references["plain SGD"], found["het, stale"]).largest() < 10 * limit
    for name in ("put", "forgotten"):
        assert compare(references["plain SGD"], found[name]).largest() > 10 * limit, name

    assert compare(references["het"], found["het"]).largest() == 0.0
    assert compare(references["het"], found[LATE]).largest() == 0.0
    assert compare(references["het"], found["too early"]).largest() > 1e-3
    limit = ROUNDING * largest_weight(references["plain SGD, large steps"])
    for output in (references["plain SGD, large steps"], found["reversed"]):
        assert 0.0 < compare(references["het"], output).largest() < limit


def pin_every_third_row(shards: Path, path: Path) -> Path:
    """A plan that pins so many rows of every table, hot or not."""
    tables = [WholeTable(table.name, table.rows, 8, 36) for table in load_manifest(shards).tables]
    pinned = {table.name: np.arange(0, table.rows, 3) for table in tables}
    with path.open("wb") as file:
        write_plan(file, "recshard", "ab" * 32, 1, tables, [0] * len(tables), pinned)
    return path


def largest_weight(output: Path) -> float:
    """Of all rows of a run's last checkpoint."""
    checkpoint = load_checkpoint(output)
    with checkpoint.open_rows() as rows:
        return float(np.abs(rows.read(0, sum(checkpoint.manifest.table_rows))).max())
