"""The programs in `examples/` train, and end in the reference's bits."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import RunRanks
from tests.fork_server import forked, forked_rank
from tests.ragged_shards import write_ragged
from tests.ranks import ROOT

EXAMPLES = ROOT / "examples"
LOOP = "python", EXAMPLES / "own_loop.py"
MODEL = "bagpipe", "train", "model.name=own_model:FactorizationMachine", "model.hidden=8"
CONFIG = """
[model]
embedding_dim = 4
[train]
batch_size = 30
deterministic = true
timeout_s = 60.0
[lookahead]
batches = 4
"""


@pytest.mark.parametrize(
    "start",
    [
        lambda: forked_rank("own_loop"),
        pytest.param(lambda: LOOP, marks=pytest.mark.slow),
        pytest.param(lambda: forked(MODEL), marks=pytest.mark.slow),
    ],
    ids=["own_loop, forked", "own_loop", "own_model, forked"],
)
def test_an_example_trains_as_the_reference(
    start: Callable[[], tuple[str | Path, ...]], run_ranks: RunRanks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users start programs; modules that forks run take less time."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    config = tmp_path / "run.toml"
    config.write_text(CONFIG, encoding="utf-8")
    write_ragged(tmp_path / "shards", samples=150, weighted_samples=True)
    for name, ranks, settings in (("found", 4, ["roles.servers=1"]), ("reference", 1, ["train.reference_slices=2"])):
        words = [*start(), config, f"data.path={tmp_path / 'shards'}", f"train.output={tmp_path / name}", *settings]
        job = run_ranks(ranks, *words)
        assert job.returncode == 0, job.stderr
    assert compare(tmp_path / "found", tmp_path / "reference").largest() == 0.0
