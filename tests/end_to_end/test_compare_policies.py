"""`bagpipe compare-policies --train`: runs as users start them move what plans say, and end in the same quality."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from bagpipe_hpc.cli import commands as cli
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from tests.fork_server import forked_rank
from tests.ranks import RUN_RANKS


@pytest.mark.slow
def test_policies_are_trained_and_compared(
    short_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command itself raises where a run moved other rows than its plans name.

    A run that was cut short is started anew, so that its means are of all steps.
    """
    policies = ["bagpipe", "bagpipe cache.sharing=replicated"]
    launcher = shlex.join([str(RUN_RANKS), "{ranks}", *forked_rank("tests.end_to_end.as_python")])
    options = ["--trainers", "2", "--seeds", "2", "--launch", launcher]
    output = [
        "--output",
        str(tmp_path / "runs"),
        "train.seed=2",
        "train.deterministic=true",
        "train.checkpoint_every_steps=4",
    ]
    command = ["compare-policies", str(short_config), "--policies", *policies, *options, "--train", *output]
    assert cli.main(command) == 0
    cells = json.loads(capsys.readouterr().out.splitlines()[-1])["cells"]
    by_policy = {cell["policy"]: cell["trained"] for cell in cells}
    assert list(by_policy) == policies
    qualities = [[(run["auc"], run["log_loss"]) for run in runs] for runs in by_policy.values()]
    assert qualities[0] == qualities[1]  # synchronous training has one result
    first, second = qualities[0]
    assert first != second
    for run in (run for runs in by_policy.values() for run in runs):
        assert run["samples_per_s"] > 0 <= run["rows_wait"] + run["sums_wait"] < 1

    (cut_short,) = (tmp_path / "runs" / "bagpipe").glob("*seed=2")
    (cut_short / "summary.json").unlink()
    shutil.rmtree(find_checkpoints(cut_short)[-1])
    assert cli.main(command) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])["cells"]
    assert again[1]["trained"] == cells[1]["trained"]
    assert [run["moved"] for run in again[0]["trained"]] == [run["moved"] for run in cells[0]["trained"]]
