"""A model from outside the package, the example of docs/extending.md, is trained and kept like one of the package."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from bagpipe_hpc.tools.inspection.describe import describe
from tests.end_to_end.conftest import CONFIG
from tests.end_to_end.test_equality import DRIVER, LINEAR, PLAIN, story
from tests.extending import Example
from tests.fork_server import forked_rank

TRAINERS = 3


@pytest.mark.slow
def test_an_added_model_trains_resumes_and_compares(
    shards: Path,
    example: Callable[[str], Example],
    run_ranks: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """With three trainers in deterministic mode, bit for bit: the whole run, and one that was stopped between."""
    added = example("Model")
    config = tmp_path / "tiny.toml"
    config.write_text(
        CONFIG.format(shards=shards)
        .replace("bottom_mlp = [16]\ntop_mlp = [16]\n", "")
        .replace(f'linear = "{LINEAR}"', 'linear = "auto"')
    )

    def train(ranks: int, *runs: list[str]) -> None:
        path = tmp_path / f"runs-{ranks}.json"
        path.write_text(json.dumps([[*added.overrides, *settings] for settings in runs]))
        finished = run_ranks(ranks, *forked_rank(DRIVER), config, path, env=added.environment)
        assert finished.returncode == 0, finished.stdout + finished.stderr

    roles = ["roles.servers=1", "train.deterministic=true"]
    reference, whole, stopped = (tmp_path / name for name in ("reference", "whole", "stopped"))
    train(1, [f"train.output={reference}", f"train.reference_slices={TRAINERS}", PLAIN])
    train(
        1 + 1 + TRAINERS,
        [*roles, f"train.output={whole}"],
        [*roles, f"train.output={stopped}", "train.max_steps=31"],
        [*roles, f"train.output={stopped}", "train.resume=auto"],
    )
    assert compare(reference, whole).largest() == 0.0
    assert compare(whole, stopped).largest() == 0.0
    assert story(whole) == story(reference)
    aucs = [auc for event, *_, auc in story(whole) if event == "evaluation"]
    assert len(aucs) == 2
    assert aucs[-1] > 0.6
    found = describe(whole, verify=True)
    assert not found.faults
    assert "factorization_machine:FactorizationMachine" in (whole / "config.toml").read_text()
