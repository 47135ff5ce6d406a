"""Every rule matters: a run with one rule broken does not end in the reference's checkpoint."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.breakages import LEAVES_LATE, MICRO_BATCH_MUTANTS, MUTANTS, NOTHING
from tests.end_to_end.home_mutants import COPIES_TOO_SOON, HOME_MUTANTS
from tests.end_to_end.late_mutants import AT_ONCE, CLIPPED, FIRST_LAYERS, IN_SMALL_GROUPS, LATE_MUTANTS, READ_TOO_SOON
from tests.end_to_end.test_equality import DRIVER, train
from tests.fork_server import forked_rank

RUN: list[str] = ["optimizer.rows=rowwise_adagrad", "lookahead.batches=4", "lookahead.group=2", "train.timeout_s=60.0"]
RUN += ["train.epochs=1", "rows_rate.warmup_steps=20", "optimizer.rows_weight_decay=1e-4", "train.dense_sums=mpi"]
AT_HOME, REPLICATED = ["cache.sharing=home"], ["cache.sharing=replicated"]
LATE = [*AT_HOME, "train.weight_gradients=late"]
VERIFIED = "debug.verify_rows=true"
BY_NORM = "optimizer.dense_clip_norm=0.05"
IN_TWO = ["policy.name=hotline", "policy.hot_rows=2000", "policy.learning_batches=2", "policy.refresh_batches=4"]
"""Most samples touch hot rows alone, so slices have two micro-batches."""
SOUND = {"plain": REPLICATED, "verified": [*REPLICATED, VERIFIED], "at home, verified": [*AT_HOME, VERIFIED]}
SOUND |= {"in two micro-batches": [*IN_TWO, VERIFIED, "train.weight_gradients=late"], LEAVES_LATE: [*AT_HOME, VERIFIED]}
SOUND |= {"weights' gradients last, verified": [*LATE, VERIFIED], IN_SMALL_GROUPS: LATE}
SOUND |= {FIRST_LAYERS: [*LATE, "train.late_share=0.5"], AT_ONCE: AT_HOME, CLIPPED: [*AT_HOME, BY_NORM]}
"""Settings of runs in which nothing is broken."""
CHANGED = {LEAVES_LATE, IN_SMALL_GROUPS, FIRST_LAYERS, AT_ONCE, CLIPPED}
"""Those in which something is changed all the same."""
REFERENCES = dict.fromkeys(("in two micro-batches", *MICRO_BATCH_MUTANTS), "in two") | {CLIPPED: "clipped"}
"""Of runs with a reference of their own: trainers have other samples, or gradients are clipped."""

RunRanks = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def reference(short_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The reference of two trainers for a run, which the sound program reaches (see the first test)."""
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("reference")
    settings = {"plain": [], "in two": IN_TWO, "clipped": [BY_NORM]}
    outputs = {kind: folder / kind for kind in settings}
    runs = [[*RUN, *settings[kind], f"train.output={outputs[kind]}", "train.reference_slices=2"] for kind in settings]
    train(run_ranks, 1, short_config, runs, folder)
    return lambda name: outputs[REFERENCES.get(name, "plain")]


@pytest.fixture(scope="module")
def ended_runs(short_config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    """For each sound run and each mutant the output, and why the job failed, if it did.

    The ranks train one after the other, until one ends the job; then others take the rest.
    """
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("mutants")
    settings = SOUND | dict.fromkeys(HOME_MUTANTS, AT_HOME) | dict.fromkeys(MUTANTS, REPLICATED)
    settings |= (
        dict.fromkeys(MICRO_BATCH_MUTANTS, IN_TWO) | dict.fromkeys(LATE_MUTANTS, LATE) | {READ_TOO_SOON: AT_HOME}
    )
    outputs = {name: folder / f"out-{number}" for number, name in enumerate(settings)}
    ended: dict[str, tuple[Path, str]] = {}
    while left := [name for name in settings if name not in ended]:
        runs = folder / "runs.json"
        runs.write_text(json.dumps([[*RUN, *settings[name], f"train.output={outputs[name]}"] for name in left]))
        breakages = [NOTHING if name in SOUND and name not in CHANGED else name for name in left]
        limit_s = 120 + 20 * len(left)
        finished = run_ranks(4, *forked_rank(DRIVER), short_config, runs, "--break", *breakages, timeout_s=limit_s)
        for name in left:
            if not (outputs[name] / "summary.json").exists():
                assert finished.returncode, "all runs are over"
                ended[name] = outputs[name], finished.stderr
                break
            ended[name] = outputs[name], ""
    return ended


@pytest.mark.parametrize("name", SOUND)
def test_the_sound_program_survives(
    name: str, reference: Callable[[str], Path], ended_runs: dict[str, tuple[Path, str]]
) -> None:
    """And the versions that travel with the rows where they are verified do not change the result."""
    output, failure = ended_runs[name]
    assert not failure
    assert compare(reference(name), output).largest() == 0.0


@pytest.mark.parametrize("mutant", [*HOME_MUTANTS, *MUTANTS, *MICRO_BATCH_MUTANTS, *LATE_MUTANTS])
def test_mutant_is_killed(
    mutant: str, reference: Callable[[str], Path], ended_runs: dict[str, tuple[Path, str]]
) -> None:
    """It ends with another checkpoint, or the job notices that something is wrong and fails."""
    output, failure = ended_runs[mutant]
    if failure:
        assert "failed: " in failure, failure
    else:
        assert compare(reference(mutant), output).largest() > 0.0


@pytest.mark.parametrize(
    "mutant",
    [
        "a row is not written back",
        COPIES_TOO_SOON,
        pytest.param("prefetch before the write-back barrier", marks=pytest.mark.slow),
        pytest.param("copies of updated rows are not taken in", marks=pytest.mark.slow),
    ],
)
def test_verification_catches_a_stale_row(mutant: str, short_config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """`debug.verify_rows` names the row, the batch and both versions at the first stale read; rows have one home."""
    runs = tmp_path / "runs.json"
    runs.write_text(json.dumps([[*RUN, *AT_HOME, VERIFIED, f"train.output={tmp_path / 'out'}"]]))
    finished = run_ranks(4, *forked_rank(DRIVER), short_config, runs, "--break", mutant, timeout_s=90)
    assert finished.returncode != 0
    assert re.search(r"table C\d+, row \d+ has version", finished.stderr), finished.stderr
    assert "in batch" in finished.stderr
