"""What a reader adds from outside the package trains like what comes with it: the examples of docs/extending.md."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.models.optimizer.dense_optimizer import known_optimizers
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import train
from tests.extending import Example


@pytest.mark.slow
def test_a_row_optimizer_of_ones_own(
    config_path: Path,
    example: Callable[[str], Example],
    run_ranks: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two trainers and two servers end in the reference's bits, and so does a run that goes on from a checkpoint.

    In the midst of a warm-up, and with decay, which it does not know of.
    """
    added = example("Row optimizer")
    monkeypatch.setenv("PYTHONPATH", added.environment["PYTHONPATH"])
    reference, whole, rest = (tmp_path / name for name in ("reference", "whole", "rest"))
    short = [*added.overrides, "train.max_steps=22", "train.evaluate=false"]
    short += ["rows_rate.warmup_steps=15", "optimizer.rows_weight_decay=1e-3"]
    train(run_ranks, 1, config_path, [[*short, f"train.output={reference}", "train.reference_slices=2"]], tmp_path)
    distributed = [*short, "roles.servers=2", "lookahead.batches=5", "lookahead.group=2"]
    runs = [
        [*distributed, f"train.output={whole}", "train.checkpoint_every_steps=11", "roles.same_host=transfers"],
        [*distributed, f"train.output={rest}", f"train.resume={whole}/checkpoints/step-00000011"],
    ]
    train(run_ranks, 5, config_path, runs, tmp_path)
    assert [compare(reference, output).largest() for output in (whole, rest)] == [0.0, 0.0]
    assert len(find_checkpoints(whole)) == 2


@pytest.mark.slow
def test_a_dense_optimizer_of_ones_own(
    config_path: Path,
    example: Callable[[str], Example],
    run_ranks: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With it, and with each of torch's, two trainers end in the reference's bits; so do runs that go on with some."""
    added = example("Dense optimizer")
    monkeypatch.setenv("PYTHONPATH", added.environment["PYTHONPATH"])
    chosen = {"own": added.overrides}
    chosen |= {name: [f"optimizer.dense={name}"] for name in known_optimizers() if name != "Muon"}
    short = ["train.max_steps=22", "train.evaluate=false", "train.checkpoint_every_steps=11"]

    def settings(kind: str, *more: str) -> list[list[str]]:
        return [[*own, *short, *more, f"train.output={tmp_path}/{name}-{kind}"] for name, own in chosen.items()]

    train(run_ranks, 1, config_path, settings("reference", "train.reference_slices=2"), tmp_path)
    runs = settings("whole", "roles.servers=1")
    resumed = [*chosen][::3]
    for name, rest in zip(chosen, settings("rest", "roles.servers=1"), strict=True):
        if name in resumed:
            runs.append([*rest, f"train.resume={tmp_path}/{name}-whole/checkpoints/step-00000011"])
    train(run_ranks, 4, config_path, runs, tmp_path)
    found = {
        (name, kind): compare(tmp_path / f"{name}-reference", tmp_path / f"{name}-{kind}").largest()
        for kind, names in (("whole", chosen), ("rest", resumed))
        for name in names
    }
    assert found == dict.fromkeys(found, 0.0)
