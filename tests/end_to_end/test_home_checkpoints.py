"""Rows with one home, saved and taken up again: in the same world, another one, and by the other way to share rows."""

from pathlib import Path

import pytest

from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.breakages import CHECKPOINT_MUTANTS, NOTHING
from tests.end_to_end.test_equality import RunRanks, overrides, story, train

pytestmark = pytest.mark.slow

SHARINGS = ("home", "replicated")
STEPS = (6, 12, 18)
RESUMED_AT = 12
"""A step in the first epoch, whose checkpoint is an increment on that of step 6."""
CASES = {
    # optimizer of rows, with state, and settings: a window of one batch, and one longer than a segment
    "rowwise_adagrad": ("lookahead.batches=1", "model.embedding_dim_of={ C3 = 4, C7 = 12 }"),
    "adam": ("lookahead.batches=40", "model.embedding_dim_of={ C1 = 16 }", "train.full_checkpoint_every=3"),
}
BOTH_CASES = pytest.mark.parametrize("case", CASES)
VERIFIED = "debug.verify_rows=true"
SHORT_WINDOW = ("lookahead.batches=3", "lookahead.group=1", *CASES["adam"][1:])
"""Rows leave all the time."""
TWO_TRAINERS, THREE_TRAINERS, ONE_TRAINER = 5, 6, 4
"""Ranks of worlds with an oracle and two servers."""


def settings_of(case: str, sharing: str, output: Path, *more: str, own: tuple[str, ...] | None = None) -> list[str]:
    """Of a run of 18 steps with three checkpoints, the same whatever the number of trainers; `own` as in `CASES`."""
    ends = ("train.max_steps=18", "train.checkpoint_every_steps=6", "train.evaluate=false")
    world = ("roles.servers=2", "train.deterministic=true", f"cache.sharing={sharing}")
    return overrides(case, output, *ends, *world, *(own or CASES[case]), *more)


def resumed(case: str, sharing: str, output: Path, begun: Path, *more: str) -> list[str]:
    """Of a run that goes on in the middle of another one, in a folder of its own."""
    start = f"train.resume={begun / 'checkpoints' / f'step-{RESUMED_AT:08d}'}"
    return settings_of(case, sharing, output, start, *more)


@pytest.fixture(scope="module")
def runs(wide_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs `CASE-SHARING` of whole runs, and `CASE-SHARING-on` of runs that go on where the other way began."""
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("shared")
    whole = [
        settings_of(case, sharing, folder / f"{case}-{sharing}", VERIFIED) for case in CASES for sharing in SHARINGS
    ]
    others = dict(zip(SHARINGS, SHARINGS[::-1], strict=True))
    on = [
        resumed(case, sharing, folder / f"{case}-{sharing}-on", folder / f"{case}-{others[sharing]}", VERIFIED)
        for case in CASES
        for sharing in SHARINGS
    ]
    train(run_ranks, TWO_TRAINERS, wide_config, [*whole, *on], folder)
    return folder


@BOTH_CASES
def test_every_checkpoint_is_that_of_replicated_rows(case: str, runs: Path) -> None:
    """Full ones, and increments: each row's home notes that it was updated."""
    for step in STEPS:
        home, replicated = (runs / f"{case}-{sharing}" / "checkpoints" / f"step-{step:08d}" for sharing in SHARINGS)
        assert compare(home, replicated).largest() == 0.0
        layers = [[layer.manifest.step for layer in load_checkpoint(saved).layers()] for saved in (home, replicated)]
        assert layers[0] == layers[1]
        rows = [[of_rows.bytes for of_rows in load_checkpoint(saved).manifest.files] for saved in (home, replicated)]
        assert rows[0][:-1] == rows[1][:-1]  # the same rows in each file; the last one is the dense half
    assert story(runs / f"{case}-home") == story(runs / f"{case}-replicated")


@BOTH_CASES
def test_a_run_goes_on_with_the_other_sharing(case: str, runs: Path) -> None:
    """From replicated rows to homes, and from homes to replicated rows: the same bits as without a break."""
    for sharing in SHARINGS:
        assert compare(runs / f"{case}-{sharing}-on", runs / f"{case}-{sharing}").largest() == 0.0


@pytest.mark.parametrize(("ranks", "slices"), [(ONE_TRAINER, 1), (THREE_TRAINERS, 3)])
def test_a_run_goes_on_with_other_trainers(
    ranks: int, slices: int, wide_config: Path, runs: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Both ways to share rows end as the reference does that goes on from the same checkpoint with as many slices."""
    on = [resumed(case, s, tmp_path / f"{case}-{s}", runs / f"{case}-home") for case in CASES for s in SHARINGS]
    train(run_ranks, ranks, wide_config, on, tmp_path)
    alone = [
        resumed(case, "home", tmp_path / f"{case}-one", runs / f"{case}-home", f"train.reference_slices={slices}")
        for case in CASES
    ]
    train(run_ranks, 1, wide_config, alone, tmp_path)
    for case in CASES:
        for sharing in SHARINGS:
            assert compare(tmp_path / f"{case}-one", tmp_path / f"{case}-{sharing}").largest() == 0.0


@pytest.mark.parametrize("mutant", CHECKPOINT_MUTANTS)
def test_mutant_is_killed(mutant: str, wide_config: Path, runs: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Rows that are written while they change, or that one home does not note."""
    jobs = [settings_of("adam", "home", tmp_path / name, own=SHORT_WINDOW) for name in ("sound", "broken")]
    train(run_ranks, TWO_TRAINERS, wide_config, jobs, tmp_path, "--break", NOTHING, mutant)
    names = [f"checkpoints/step-{step:08d}" for step in STEPS]
    of_broken = [compare(runs / "adam-home" / name, tmp_path / "broken" / name).largest() for name in names]
    assert max(of_broken) > 0.0
    assert all(compare(runs / "adam-home" / name, tmp_path / "sound" / name).largest() == 0.0 for name in names)
