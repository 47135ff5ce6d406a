"""What is saved is the state between two steps, however long writing takes and whatever a checkpoint builds on."""

import json
from pathlib import Path

import pytest

from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.breakages import CHECKPOINT_MUTANTS, NOTHING, SLOW_DISK
from tests.end_to_end.test_equality import train

STEPS = (11, 22, 33)
RUN = ["optimizer.rows=adagrad", "train.checkpoint_every_steps=11", "train.max_steps=33", "train.evaluate=false"]
RUN += ["lookahead.batches=3", "lookahead.group=1"]  # rows are written back all the time
INCREMENTS = "train.full_checkpoint_every=3"


@pytest.fixture(scope="module")
def outputs(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of a run that stands still while it saves all rows, and of runs with increments: a slow disk, and the mutants."""
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("checkpoints")
    outputs = {name: folder / f"out-{number}" for number, name in enumerate([NOTHING, SLOW_DISK, *CHECKPOINT_MUTANTS])}
    own = {NOTHING: "train.checkpoint_copy=false"}
    runs = [[*RUN, own.get(name, INCREMENTS), f"train.output={output}"] for name, output in outputs.items()]
    train(run_ranks, 5, config_path, runs, folder, "--break", *outputs)
    return outputs


@pytest.fixture(scope="module")
def whole_checkpoints(outputs: dict[str, Path]) -> Path:
    """Those that hold all rows."""
    return outputs[NOTHING] / "checkpoints"


def differences(output: Path, whole_checkpoints: Path) -> list[float]:
    """Of the checkpoints of a run from those of the run that writes all rows."""
    names = [f"step-{step:08d}" for step in STEPS]
    return [compare(whole_checkpoints / name, output / "checkpoints" / name).largest() for name in names]


@pytest.mark.slow
def test_increments_that_take_long_hold_the_same_bits(outputs: dict[str, Path], whole_checkpoints: Path) -> None:
    output = outputs[SLOW_DISK]
    assert differences(output, whole_checkpoints) == [0.0, 0.0, 0.0]
    first, second, third = (load_checkpoint(output / "checkpoints" / f"step-{step:08d}") for step in STEPS)
    assert [layer.manifest.step for layer in third.layers()] == list(STEPS)
    assert second.manifest.total_bytes < first.manifest.total_bytes
    events = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [event["base_step"] for event in events if event["event"] == "checkpoint"] == [None, *STEPS[:2]]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CHECKPOINT_MUTANTS)
def test_mutant_is_killed(mutant: str, outputs: dict[str, Path], whole_checkpoints: Path) -> None:
    assert max(differences(outputs[mutant], whole_checkpoints)) > 0.0
