"""Runs whose settings are drawn, in worlds that are drawn: their rows, weights and evaluations are the reference's.

So are those of runs that go on from one of their checkpoints in another world, or begin with its weights, and of runs
by saved plans; and a world that evaluates what another one trained finds what that found. A few are drawn, always the
same ones; `FUZZ_SEED=N` draws others, `FUZZ_TIMES=N` so many times as many:

    FUZZ_SEED=7 FUZZ_TIMES=20 python -m pytest -m slow tests/end_to_end/test_drawn_runs.py
"""

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.drawn_settings import Settings, World, draw_data, draw_settings, draw_world
from tests.end_to_end.test_equality import DRIVER, RunRanks
from tests.end_to_end.test_scoring import lines, measures, run_commands, told_by_training
from tests.fork_server import forked, forked_rank
from tests.fuzz.hunting import SEED, TIMES
from tests.ranks import rank_environment

pytestmark = pytest.mark.slow

DRAWS, RUNS = 2, 6
LIMIT_S = 600
CONFIG = """
[data]
path = "of each run"
block_rows = 64
[model]
embedding_dim = 8
[train]
deterministic = true
timeout_s = 120.0
"""
VERIFIED = "debug.verify_rows=true"
TRAINED, DIVERGED, REFUSED = "0", "1", "2"
"""Exit codes. Where the reference diverges, there is nothing to compare."""
UNSAVED = ("policy.name=fae", "policy.name=slipstream")
"""Policies that go by what is trained."""


class Drawn:
    """Runs that train together: in one session of ranks, or of one rank.

    Args:
        folder: of everything.
        run_ranks: starts ranks.
    """

    def __init__(self, folder: Path, run_ranks: RunRanks) -> None:
        self._folder = folder
        self._run_ranks = run_ranks
        self.config = folder / "all.toml"
        self.config.write_text(CONFIG)
        self.faults: list[str] = []

    def output(self, name: str, kind: str) -> Path:
        """Of a run."""
        return self._folder / f"{name} {kind}"

    def alone(self, runs: Mapping[str, Settings], trainers: int, kind: str) -> dict[str, Settings]:
        """Train references that add up as so many trainers do; those runs whose references have not diverged."""
        slices = f"train.reference_slices={trainers}"
        codes = self._train(1, {name: [*given, slices] for name, given in runs.items()}, kind)
        self._note((name, kind, code) for name, code in codes.items() if code not in (TRAINED, DIVERGED))
        return {name: given for name, given in runs.items() if codes.get(name) == TRAINED}

    def in_world(self, runs: Mapping[str, Settings], world: World, kind: str) -> list[str]:
        """Train runs, which have to come to their end; those that have."""
        in_world = {name: self.settings_in(world, given) for name, given in runs.items()}
        codes = self._train(world.ranks, in_world, kind, "--hosts", *map(str, world.hosts))
        self._note((name, f"{kind} in {world}", code) for name, code in codes.items() if code != TRAINED)
        return [name for name, code in codes.items() if code == TRAINED]

    def settings_in(self, world: World, given: Settings) -> Settings:
        """Settings of a run in a world, which mostly verifies its rows.

        A sum of versions is none, so rows that trainers add to have no versions; and where rows are verified, no plans
        are written side by side.
        """
        unverified = {"policy.name=het", "kernels.planner_threads=7"}
        return [*given, f"roles.servers={world.servers}", *([VERIFIED] if unverified.isdisjoint(given) else [])]

    def note_differences(self, runs: Iterable[str], one: str, other: str) -> None:
        """Note where runs of one kind have not come to what those of the other kind have."""
        for name in runs:
            pair = self.output(name, one), self.output(name, other)
            if difference := compare(*pair).largest():
                self._note([(name, f"{one} and {other}", f"differ by {difference}")])
            evaluations = [json.loads((output / "summary.json").read_text())["evaluations"] for output in pair]
            if evaluations[0] != evaluations[1]:
                self._note([(name, f"{one} and {other}", f"evaluations {evaluations}")])

    def save_plans(self, name: str, given: Settings, world: World) -> Settings:
        """Plan a run; what makes it go by these plans."""
        plans = self.output(name, "plans")
        for_world = ("--trainers", str(world.trainers), "--save", plans)
        command = forked(["bagpipe", "plan", self.config, *self.settings_in(world, given), *for_world])
        ended = subprocess.run(
            [str(part) for part in command], env=rank_environment(), capture_output=True, text=True, check=False
        )
        if ended.returncode:
            self._note([(name, f"plan for {world}", ended.stderr[-3000:])])
        return [f"train.plans={plans}"]

    def note_other_measures(self, runs: Sequence[str], kind: str, world: World) -> None:
        """Note where a world measures otherwise than the one that trained, and does not say that it may."""
        saved = self._folder / f"measured {kind}.jsonl"
        own = [f"roles.servers={world.servers}", "--save", saved]
        commands = [[0, "evaluate", self.output(name, kind), *own] for name in runs]
        said = run_commands(self._run_ranks, world.ranks, commands, self._folder) if runs else []
        for name, told, found in zip(runs, said, lines(saved) if runs else [], strict=True):
            if "the last bits may differ" not in told:
                pair = measures(found), told_by_training(self.output(name, kind))
                if pair[0] != pair[1]:
                    self._note([(name, f"{kind}, measured in {world}", f"evaluations {pair}")])

    def _note(self, found: Iterable[tuple[str, str, str]]) -> None:
        self.faults += [": ".join(parts) for parts in found]

    def _train(self, ranks: int, runs: Mapping[str, Settings], kind: str, *more: str) -> dict[str, str]:
        """Exit codes; with what was said where a run is refused, or has ended all ranks, so that nothing follows it."""
        path, outcomes = self._folder / f"{kind}.json", self._folder / f"{kind}.outcomes"
        path.write_text(
            json.dumps([[*given, f"train.output={self.output(name, kind)}"] for name, given in runs.items()])
        )
        outcomes.touch()
        arguments = (self.config, path, "--outcomes", outcomes, *more)
        ended = self._run_ranks(ranks, *forked_rank(DRIVER), *arguments, timeout_s=LIMIT_S)
        codes = dict(zip(runs, outcomes.read_text().split(), strict=False))
        refused = [line for line in ended.stderr.splitlines() if line.startswith("bagpipe: error: ")]
        told = {name: refused.pop(0) if code == REFUSED else code for name, code in codes.items()}
        broken = next((name for name in runs if name not in codes), None)
        return told if broken is None else {**told, broken: ended.stderr[-3000:]}


@pytest.mark.parametrize("draw", range(DRAWS * TIMES))
def test_drawn_runs_end_as_their_references_do(draw: int, shards: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    random, drawn = Random(1000 * SEED + draw), Drawn(tmp_path, run_ranks)
    is_even = random.random() < 1 / 2
    world, other = (draw_world(random, is_even=is_even) for _ in range(2))
    data = draw_data(random, shards, tmp_path / "data")
    drawn_settings = [draw_settings(random, random.choice(data), tmp_path, is_even=is_even) for _ in range(RUNS)]
    runs = {str(number): given for number, given in enumerate(drawn_settings)}
    sound = drawn.alone(runs, world.trainers, "alone")
    together = drawn.in_world(sound, world, "together")
    drawn.note_differences(together, "alone", "together")

    evaluated = [name for name in together if "train.evaluate=false" not in runs[name]]
    drawn.note_other_measures(evaluated, "together", other)

    starts = {name: _earlier(drawn.output(name, "together")) for name in together}
    on = {name: [*runs[name], f"train.resume={start}"] for name, start in starts.items() if start}
    going_on = drawn.alone(on, other.trainers, "on alone")
    drawn.note_differences(drawn.in_world(going_on, other, "on"), "on alone", "on")

    takes = {name: f"train.warm_start_takes={random.choice(['all', 'rows', 'dense'])}" for name in starts}
    warm = {name: [*runs[name], f"train.warm_start={start}", takes[name]] for name, start in starts.items() if start}
    started = drawn.alone(warm, other.trainers, "warm alone")
    drawn.note_differences(drawn.in_world(started, other, "warm"), "warm alone", "warm")

    planned = [name for name in together if not set(UNSAVED) & set(runs[name])][: RUNS // 2]
    by_plans = {name: [*runs[name], *drawn.save_plans(name, runs[name], world)] for name in planned}
    drawn.note_differences(drawn.in_world(by_plans, world, "by plans"), "together", "by plans")
    assert not drawn.faults, "\n".join([*drawn.faults, *(f"{name}: {given}" for name, given in runs.items())])
    assert len(sound) > RUNS // 2


def _earlier(output: Path) -> Path | None:
    """The first of several checkpoints."""
    saved = sorted((output / "checkpoints").glob("step-*"))
    return saved[0] if len(saved) > 1 else None
