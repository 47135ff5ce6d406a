"""Policies from outside the package train as the reference does with the same policy, bit for bit."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from bagpipe_hpc.tools.compare import compare
from tests.end_to_end.test_equality import train
from tests.extending import Example

TRAINERS = 2
POLICIES = {
    "bagpipe": [],
    "no cache": ["policy.name=no_cache:NoCache"],
    "by row": ["policy.name=by_row:ByRow", "policy.column=3", "lookahead.batches=5"],
    "interleaved": ["policy.name=tests.end_to_end.policies:Interleaved", "lookahead.batches=5"],
}


@pytest.mark.slow
def test_policies_equal_the_reference(
    config_path: Path,
    example: Callable[[str], Example],
    run_ranks: Callable[..., CompletedProcess[str]],
    tmp_path: Path,
) -> None:
    """No cache alone changes no bit of bagpipe's reference; where samples go elsewhere, the last bits differ."""
    environment = example("Policy").environment

    def run_with_example(*arguments: Any, **options: Any) -> CompletedProcess[str]:
        return run_ranks(*arguments, env=environment, **options)

    def train_all(ranks: int, names: list[str], setting: str) -> dict[str, Path]:
        outputs = {name: tmp_path / f"{ranks} ranks {name}" for name in names}
        runs = [
            [*POLICIES[name], setting, "train.epochs=1", f"train.output={output}"] for name, output in outputs.items()
        ]
        train(run_with_example, ranks, config_path, runs, tmp_path)
        return outputs

    references = train_all(1, ["bagpipe", "by row", "interleaved"], f"train.reference_slices={TRAINERS}")
    found = train_all(2 + TRAINERS, ["no cache", "by row", "interleaved"], "debug.verify_rows=true")
    expected = {"no cache": references["bagpipe"]} | references
    differences = {name: compare(expected[name], output).largest() for name, output in found.items()}
    assert differences == dict.fromkeys(found, 0.0)
    assert 0.0 < compare(references["bagpipe"], references["by row"]).largest() < 1e-2
    assert compare(references["by row"], references["interleaved"]).largest() > 1e-3
