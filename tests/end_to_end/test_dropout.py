"""A model with dropout ends in the reference's bits whoever computes which samples, in bfloat16 too."""

from pathlib import Path

import pytest
import torch

from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.conftest import CONFIG
from tests.end_to_end.test_equality import LINEAR, PLAIN, RunRanks, story, train

MODEL = "model.name=tests.end_to_end.dropping_model:Dropping"
INTERLEAVED = "policy.name=tests.end_to_end.policies:Interleaved"


@pytest.fixture
def config(shards: Path, tmp_path: Path) -> Path:
    """Without the settings of DLRM."""
    path = tmp_path / "tiny.toml"
    text = CONFIG.format(shards=shards).replace("bottom_mlp = [16]\ntop_mlp = [16]\n", "")
    path.write_text(text.replace(f'linear = "{LINEAR}"', 'linear = "auto"'))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("trainers", [1, 3])
def test_masks_are_the_references(config: Path, trainers: int, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Contiguous slices, and samples dealt out by a policy; the whole run, and one that goes on inside an epoch."""
    cases = {"slices": [MODEL], "dealt": [MODEL, INTERLEAVED]}
    if torch.cpu._is_avx512_bf16_supported():
        cases["bfloat16"] = [MODEL, "model.precision=bfloat16"]

    def runs(kind: str, *more: str) -> list[list[str]]:
        return [[*case, *more, f"train.output={tmp_path}/{name}-{kind}"] for name, case in cases.items()]

    every = "train.checkpoint_every_steps=11"  # where segments end, the policy begins anew
    train(run_ranks, 1, config, runs("reference", f"train.reference_slices={trainers}", PLAIN, every), tmp_path)
    distributed = "roles.servers=1", "train.deterministic=true", "lookahead.batches=5"
    rest = [f"train.output={tmp_path}/rest", f"train.resume={tmp_path}/slices-whole/checkpoints/step-00000011"]
    whole = runs("whole", *distributed, every)
    train(run_ranks, 2 + trainers, config, [*whole, [MODEL, *distributed, *rest]], tmp_path)
    found = {name: compare(tmp_path / f"{name}-reference", tmp_path / f"{name}-whole").largest() for name in cases}
    found["rest"] = compare(tmp_path / "slices-reference", tmp_path / "rest").largest()
    assert found == dict.fromkeys(found, 0.0)
    assert story(tmp_path / "slices-whole") == story(tmp_path / "slices-reference")
    assert story(tmp_path / "slices-whole") != story(tmp_path / "dealt-whole")
