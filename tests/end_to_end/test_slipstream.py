"""Runs with the policy `slipstream` end in the bits of the reference, which decides by its own tables what to skip."""

import json
import shutil
from pathlib import Path

import pytest

from bagpipe_hpc.storage.policy_memory import SEEN_FOLDER, load_memory
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME, SUMMARY_NAME, read_metrics
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.test_equality import TWO_HOSTS, RunRanks, story, train
from tests.end_to_end.test_resume import interrupted

KEPT = ("step-00000007-to-00000009.h5", "step-00000009.h5", "step-00000023.h5")
"""Of the snapshots behind steps 7 and 21, only the first has a checkpoint before the second one of its epoch, behind 9
and 23. An epoch of 14 batches has hot ones from 6 to 11."""
PASSED_OVER = 12
"""A step: about half of the samples of the three hot batches up to it stay, which fill two at most."""


def settings_of(policy: str, optimizer: str, folder: Path, output: Path, *more: str, drop: int = 50) -> list[str]:
    fae = ["policy.hot_rows=2500", "policy.sample_percent=100", f"policy.profile={folder / 'hot.h5'}"]
    slipstream = [
        *("policy.first_snapshot=1", "policy.between_percent=20", "policy.judged_percent=100"),
        *(f"policy.drop_percent={drop}", "policy.drop_tolerance=10", "policy.stale_look_ups=20"),
    ]
    own = [*fae, *(slipstream if policy == "slipstream" else [])]
    return [
        *(f"policy.name={policy}", *own, f"optimizer.rows={optimizer}", f"train.output={output}"),
        *("train.checkpoint_every_steps=4", "train.log_every_steps=1", *more),
    ]


def steps_of(output: Path) -> list[int]:
    """The steps that a run has told of, one after the other; as many as it says in the end."""
    steps = [event["step"] for event in read_metrics(output / METRICS_NAME).events if event["event"] == "progress"]
    assert json.loads((output / SUMMARY_NAME).read_text())["steps"] == len(steps)
    return steps


@pytest.mark.slow
def test_slipstream_equals_the_reference_and_fae_without_drops(
    short_config: Path, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """With one trainer and two; also what goes on from behind the snapshots, here and in another folder.

    What goes on from between them: `test_policy_faults.py`. The first trainer fetches the rows from a near server and
    a far one, from memory and from disk. The batches behind the second snapshot become fewer on the way.
    """

    def settings(name: str, optimizer: str, *more: str, policy: str = "slipstream", drop: int = 50) -> list[str]:
        return settings_of(policy, optimizer, tmp_path, tmp_path / name, *more, drop=drop)

    references = {"sgd 1": ("sgd", 1), "sgd 2": ("sgd", 2), "adam 2": ("adam", 2)}
    given = [
        settings(f"reference {name}", optimizer, f"train.reference_slices={slices}")
        for name, (optimizer, slices) in references.items()
    ]
    train(run_ranks, 1, short_config, given, tmp_path)
    verified = ["debug.verify_rows=true"]
    train(run_ranks, 3, short_config, [settings("sgd 1", "sgd", "roles.servers=1", *verified)], tmp_path)
    two = ["roles.servers=2", *verified]
    on_disk = ["tables.memory_gb=0.0001", f"tables.ssd_path={tmp_path}", "debug.ssd_path_in_memory=true"]
    runs = [settings("sgd 2", "sgd", *two), settings("adam 2", "adam", *two, *on_disk)]
    runs.append(settings("nothing dropped", "sgd", *two, drop=0))
    runs.append(settings("fae", "sgd", *two, policy="fae"))
    train(run_ranks, 5, short_config, runs, tmp_path, "--hosts", *map(str, TWO_HOSTS[2, 2]))
    replayed = settings("replayed", "adam", "train.reference_slices=2", f"policy.replay={tmp_path / 'adam 2'}", drop=60)
    train(run_ranks, 1, short_config, [replayed], tmp_path)
    assert compare(tmp_path / "replayed", tmp_path / "adam 2").largest() == 0.0
    for name in references:
        assert compare(tmp_path / f"reference {name}", tmp_path / name).largest() == 0.0, name
        seen = sorted(path.name for path in (tmp_path / name / SEEN_FOLDER).iterdir())
        assert seen == [*KEPT], name
        stale = [load_memory(tmp_path / name / SEEN_FOLDER / seen[number])["stale"].size for number in (1, 2)]
        assert all(0 < rows < 2500 for rows in stale), stale
    assert compare(tmp_path / "fae", tmp_path / "nothing dropped").largest() == 0.0
    assert not (tmp_path / "nothing dropped" / SEEN_FOLDER).exists()
    assert compare(tmp_path / "fae", tmp_path / "sgd 2").largest() > 1e-4
    assert steps_of(tmp_path / "fae") == steps_of(tmp_path / "nothing dropped") == list(range(1, 29))
    for name in references:
        steps = steps_of(tmp_path / name)
        assert PASSED_OVER - 1 in steps
        assert PASSED_OVER not in steps
        assert steps == steps_of(tmp_path / f"reference {name}"), name

    behind = interrupted(tmp_path / "adam 2", tmp_path / "behind", 24)
    elsewhere = tmp_path / "elsewhere"
    start = interrupted(tmp_path / "adam 2", tmp_path / "start", 12)
    forgetful = interrupted(tmp_path / "adam 2", tmp_path / "forgetful", 24)
    shutil.rmtree(forgetful / SEEN_FOLDER)
    runs = [settings("behind", "adam", "train.resume=auto", *two)]
    runs.append(settings("elsewhere", "adam", f"train.resume={start}", *two))
    train(run_ranks, 5, short_config, runs, tmp_path)
    for output in (behind, elsewhere):
        assert compare(tmp_path / "adam 2", output).largest() == 0.0, output.name
    assert [event for event in story(behind) if event[0] == "progress"] == [
        event for event in story(tmp_path / "adam 2") if event[0] == "progress"
    ]
    refused = settings("forgetful", "adam", "train.resume=auto", *two)
    said = train(run_ranks, 5, short_config, [refused], tmp_path, "--refused")
    assert "step-00000023.h5: is missing" in said
