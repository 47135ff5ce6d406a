"""The heart: distributed runs end in the reference's checkpoint, for every mix of roles, windows and optimizers."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.comparison import Comparison, compare

DRIVER = ("python", "-m", "tests.end_to_end.train_many")
WINDOWS = {"no look-ahead": (1, 0), "shortest": (2, 1), "short": (5, 2), "long": (12, 11), "beyond the data": (200, 7)}
CASES = [(optimizer, window) for optimizer in ("sgd", "rowwise_adagrad") for window in WINDOWS]
CASES += [("adagrad", "short"), ("adam", "long")]
PLAIN = "kernels.backend=reference"
PLAIN_KERNELS = "shortest"
"""Runs with this window take NumPy and torch for all kernels, as the references do; the others native code."""
TRANSFERRED = "short"
"""Runs with this window send rows through MPI even where memory is shared."""
TWO_HOSTS = {(2, 2): (0, 0, 2, 0, 2)}
"""Worlds whose ranks are dealt out to two hosts, a server and a trainer on each: both ways of rows in one run."""
OPTIMIZERS = tuple(dict.fromkeys(optimizer for optimizer, _ in CASES))

RunRanks = Callable[..., CompletedProcess[str]]


def overrides(optimizer: str, output: Path, *more: str) -> list[str]:
    """Settings of one run; SGD's dense half uses momentum, so that dense optimizer state is covered too."""
    dense = ["optimizer.dense=SGD", "optimizer.dense_options={ momentum = 0.9 }"] if optimizer == "sgd" else []
    return [f"optimizer.rows={optimizer}", *dense, f"train.output={output}", *more]


def story(output: Path) -> list[tuple[object, ...]]:
    """What a run tells, but for times and interruptions; when a checkpoint becomes complete is chance."""
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    told = [(r["event"], r["step"], r.get("loss"), r.get("auc")) for r in records if r["event"] != "resumed"]
    return sorted(told, key=lambda event: (event[1], event[0] != "checkpoint"))


def train(run_ranks: RunRanks, ranks: int, config: Path, runs: list[list[str]], folder: Path, *more: str) -> None:
    """Train one configuration after the other on `ranks` ranks."""
    path = folder / f"runs-{ranks}.json"
    path.write_text(json.dumps(runs))
    finished = run_ranks(ranks, *DRIVER, config, path, *more, timeout_s=240)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.fixture(scope="module")
def references(config_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Output folder of the one-rank reference for an optimizer and a number of slices."""
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("references")
    runs = {(optimizer, slices): folder / f"{optimizer}-{slices}" for optimizer in OPTIMIZERS for slices in (1, 2, 3)}
    settings = [
        overrides(kind, output, f"train.reference_slices={slices}", PLAIN) for (kind, slices), output in runs.items()
    ]
    train(run_ranks, 1, config_path, settings, folder)
    return lambda optimizer, slices: runs[optimizer, slices]


@pytest.mark.parametrize(("servers", "trainers"), [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3)])
def test_distributed_equals_reference(
    servers: int,
    trainers: int,
    config_path: Path,
    references: Callable[[str, int], Path],
    run_ranks: RunRanks,
    tmp_path: Path,
) -> None:
    """Bit for bit; with three trainers in deterministic mode, and in half of the cases."""
    chosen = CASES if trainers < 3 else CASES[::2]
    cases = {(optimizer, name): tmp_path / f"{optimizer}-{name.replace(' ', '-')}" for optimizer, name in chosen}
    runs = [
        overrides(
            optimizer,
            output,
            f"roles.servers={servers}",
            f"lookahead.batches={WINDOWS[name][0]}",
            f"lookahead.group={WINDOWS[name][1]}",
            f"train.deterministic={str(trainers > 2).lower()}",
            *(["roles.same_host=transfers"] if name == TRANSFERRED else []),
            *([PLAIN] if name == PLAIN_KERNELS else []),
            *(["roles.transfers=one_sided"] if optimizer == "sgd" else []),
            *(["train.checkpoint_every_steps=11", "cache.rows=3000"] if name == "long" else []),
        )
        for (optimizer, name), output in cases.items()
    ]
    hosts = TWO_HOSTS.get((servers, trainers), ())
    simulated = ["--hosts", *map(str, hosts)] if hosts else []
    train(run_ranks, 1 + servers + trainers, config_path, runs, tmp_path, *simulated)
    found = {case: compare(references(case[0], trainers), output).largest() for case, output in cases.items()}
    assert found == dict.fromkeys(cases, 0.0)


def test_three_trainers_without_fixed_order(
    config_path: Path, references: Callable[[str, int], Path], run_ranks: RunRanks, tmp_path: Path
) -> None:
    """Within 1e-5 of the reference after 54 steps, and the same bits when run twice."""
    outputs = [tmp_path / "first", tmp_path / "second"]
    train(run_ranks, 5, config_path, [overrides("sgd", o, "roles.servers=1") for o in outputs], tmp_path)
    assert compare(references("sgd", 3), outputs[0]).largest() <= 1e-5
    assert compare(*outputs).largest() == 0.0


def test_slices_matter(references: Callable[[str, int], Path]) -> None:
    """The comparison can fail: references that sum over other slices differ in the last bits."""
    comparison: Comparison = compare(references("sgd", 1), references("sgd", 3))
    assert 0.0 < comparison.largest() < 1e-4


def test_evaluation_and_losses_equal_the_references(
    config_path: Path, references: Callable[[str, int], Path], run_ranks: RunRanks, tmp_path: Path
) -> None:
    """The metrics files tell the same story."""
    train(run_ranks, 4, config_path, [overrides("sgd", tmp_path / "out", "roles.servers=1")], tmp_path)
    assert story(tmp_path / "out") == story(references("sgd", 2))
