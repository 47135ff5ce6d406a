"""Every policy of the package under faults: what is killed goes on to the same end, and other commands take it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.config.doors import POLICIES
from bagpipe_hpc.plan.heard import Heard
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from bagpipe_hpc.storage.policy_memory import SEEN_FOLDER
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.killed_runs import ORACLE, RANKS, SERVER, SERVERS, TRAINER, Killed, has_trained, kill_one
from tests.end_to_end.test_equality import DRIVER, TWO_HOSTS, story, train
from tests.end_to_end.test_policies import LARGE_STEPS, SGD, pin_every_third_row
from tests.end_to_end.test_scoring import lines, measures, run_commands, told_by_training
from tests.fork_server import forked_rank

HOT = ["policy.hot_rows=2500", "policy.sample_percent=100", "policy.profile={folder}/hot.h5"]
CASES = {
    "bagpipe": ["cache.sharing=home", "lookahead.batches=5", "lookahead.group=2", "train.full_checkpoint_every=3"],
    "bagpipe, replicated": ["cache.sharing=replicated", "lookahead.batches=40", "optimizer.rows=adam"],
    "none": ["cache.sharing=home", "train.full_checkpoint_every=3"],
    "scratchpipe": ["cache.rows=2300"],
    "hotline": ["policy.hot_rows=2000", "policy.learning_batches=1", "policy.refresh_batches=2", "optimizer.rows=adam"],
    "herald": ["cache.rows=2600", "optimizer.rows=adam"],
    "het": [
        *("policy.staleness=3", "policy.eviction=lfu", "cache.rows=4400", "train.deterministic=true"),
        *(*SGD, LARGE_STEPS),
    ],
    "fae": [*HOT, "policy.share_percent=30", "optimizer.rows=adam", "data.lanes=4", "data.block_rows=50"],
    "slipstream": [
        *(*HOT, "policy.first_snapshot=1", "policy.between_percent=20", "policy.judged_percent=100"),
        *("policy.drop_percent=50", "policy.drop_tolerance=10", "policy.stale_look_ups=20", "optimizer.rows=adam"),
    ],
    "pinned": ["policy.plan={folder}/plan.npz", "cache.sharing=home", "lookahead.batches=5"],
    "fae, adaptive": [
        *(*HOT, "policy.share_percent=12", "policy.adapt_share=true", "train.evaluate_every_steps=2"),
        *("optimizer.rows=adam", "optimizer.rows_lr=0.001", "optimizer.dense_lr=0.001", "data.lanes=4"),
        "data.block_rows=50",
    ],
}
"""Settings of runs that are killed, by the policy, and what else distinguishes them."""
VICTIMS = dict(zip(CASES, cycle((ORACLE, SERVER, TRAINER)), strict=False))
EVERY, RESUMED_AT, LAST_STEP = 4, 8, 9
"""Checkpoints; the last one that is there when the run is killed; the last step that is done then.

Slipstream takes snapshots behind steps 7 and 9: the one is in the checkpoint, the other is forgotten and taken anew.
The adaptive share is doubled behind step 12, by evaluations behind 4 to 12.
"""


@dataclass(frozen=True)
class Ended:
    """What became of the runs of all cases.

    Attributes:
        folder: with `whole-N`, which nothing befell, and `killed-N`, which went on, by the number of the case.
        killed: how the killed ones ended, by case.
        newest: the newest checkpoint that they left.
        said: on stderr, by those that went on.
    """

    folder: Path
    killed: dict[str, Killed | CompletedProcess[str]]
    newest: dict[str, str]
    said: str

    def outputs(self, case: str) -> tuple[Path, Path]:
        """Of the run that was left alone, and of the one that was killed and went on."""
        number = list(CASES).index(case)
        return self.folder / f"whole-{number}", self.folder / f"killed-{number}"


def settings_of(case: str, folder: Path, output: Path, *more: str) -> list[str]:
    own = [setting.format(folder=folder) for setting in CASES[case]]
    every = f"train.checkpoint_every_steps={EVERY}"
    world = [f"roles.servers={SERVERS}", "train.log_every_steps=1", every]
    return [f"policy.name={case.partition(',')[0]}", *own, *world, f"train.output={output}", *more]


@pytest.fixture(scope="module")
def ended(short_config: Path, shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Whole runs in one session of ranks, each killed one in ranks of its own, and in one more those that go on.

    Each trainer has a near server and a far one, but in the runs that are killed.
    """
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("policies")
    pin_every_third_row(shards, folder / "plan.npz")
    found = Ended(folder, {}, {}, "")
    hosts = "--hosts", *map(str, TWO_HOSTS[2, 2])
    whole = [settings_of(case, folder, found.outputs(case)[0]) for case in CASES]
    train(run_ranks, RANKS, short_config, whole, folder, *hosts)
    for case in CASES:
        output = found.outputs(case)[1]
        found.killed[case] = killed(settings_of(case, folder, output), short_config, output, VICTIMS[case])
        found.newest[case] = find_checkpoints(output)[-1].name
    on = ("train.resume=auto", "train.preflight=true")
    going_on = [settings_of(case, folder, found.outputs(case)[1], *on) for case in CASES]
    said = train(run_ranks, RANKS, short_config, going_on, folder, *hosts)
    return Ended(folder, found.killed, found.newest, said)


def killed(settings: list[str], config: Path, output: Path, rank: int) -> Killed | CompletedProcess[str]:
    """A run of which a rank is killed in the midst of a step: the last trainer stands still in it until then."""
    runs = output.with_suffix(".json")
    runs.write_text(json.dumps([settings]))
    command = [*forked_rank(DRIVER), config, runs, "--break", "trainer stands still"]

    def is_in_that_step() -> bool:
        saved = output / "checkpoints" / f"step-{RESUMED_AT:08d}"
        return saved.is_dir() and has_trained(output, LAST_STEP)

    return kill_one(RANKS, command, rank, is_in_that_step)


def test_every_policy_has_a_case() -> None:
    """A new policy needs one in `CASES`."""
    assert {case.partition(",")[0] for case in CASES} == set(POLICIES.entries)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_killed_run_ends_as_one_that_was_left_alone(case: str, ended: Ended) -> None:
    """The same tables, weights, losses and evaluations, and the same decisions of the policy."""
    was_killed = ended.killed[case]
    assert isinstance(was_killed, Killed), was_killed.stderr
    assert was_killed.finished.returncode != 0, was_killed.finished.stderr
    assert was_killed.left == ()
    assert ended.newest[case] == f"step-{RESUMED_AT:08d}"
    whole, went_on = ended.outputs(case)
    assert compare(whole, went_on).largest() == 0.0
    assert told(whole) == told(went_on)
    assert kept(whole) == kept(went_on)
    assert bool(kept(whole)) == (case == "slipstream")
    assert heard(whole) == heard(went_on)
    assert bool(heard(whole)) == (case == "fae, adaptive")


def told(output: Path) -> list[tuple[object, ...]]:
    """What a run tells, but for its checkpoints: of the last one before a kill that may have been too late."""
    return [event for event in story(output) if event[0] != "checkpoint"]


def kept(output: Path) -> dict[str, bytes]:
    """What the policy of a run has kept of the rows that it watches."""
    folder = output / SEEN_FOLDER
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def heard(output: Path) -> tuple[Heard, ...]:
    """By which evaluations a run has ordered its samples."""
    return load_checkpoint(output).manifest.heard


@pytest.mark.slow
def test_the_doctor_finds_nothing_wrong(ended: Ended) -> None:
    """Before each of the runs that went on."""
    assert ended.said.count("preflight: MPI gives thread level multiple everywhere") == len(CASES)


@pytest.mark.slow
def test_other_commands_take_their_checkpoints(
    ended: Ended, run_ranks: Callable[..., CompletedProcess[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`bagpipe evaluate` finds what training measured, with as many trainers and in one process; `inspect` no fault."""
    outputs = [ended.outputs(case)[1] for case in CASES]
    for ranks in (1, RANKS):
        save = tmp_path / f"{ranks}.jsonl"
        world = [] if ranks == 1 else [f"roles.servers={SERVERS}"]
        commands = [[0, "evaluate", output, *world, "--save", save] for output in outputs]
        run_commands(run_ranks, ranks, commands, tmp_path)
        found = dict(zip(CASES, map(measures, lines(save)), strict=True))
        assert found == dict(zip(CASES, map(told_by_training, outputs), strict=True))
    for output in outputs:
        assert main(["inspect", str(output), "--verify"]) == 0
        assert "complete checkpoints of steps" in capsys.readouterr().out
