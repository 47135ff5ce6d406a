"""The heart: distributed runs end in the reference's checkpoint, for every mix of roles, windows and optimizers."""

import json
import platform
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.sections.rows import SHARINGS
from bagpipe_hpc.tools.inspection.compare import Comparison, compare
from tests.end_to_end.breakages import FEW_SLOTS, NOTHING
from tests.fork_server import forked_rank

DRIVER = "tests.end_to_end.train_many"
WINDOWS = {"no look-ahead": (1, 0), "shortest": (2, 1), "short": (5, 2), "long": (12, 11)}
WINDOWS |= {"usual": (40, 10), "beyond the data": (200, 7)}
CASES = [("sgd", window) for window in WINDOWS]
CASES += [("adagrad", "short")]
CASES += [("rowwise_adagrad", window) for window in WINDOWS]
CASES += [("adam", "long")]
CASES += [("momentum", "no look-ahead"), ("momentum", "usual"), ("rowwise_adam", "usual")]
CASES += [("rowwise_adam", "no look-ahead"), ("ftrl", "no look-ahead"), ("ftrl", "usual")]
"""Each second one has every window, those between them as well."""
WORLDS = [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3)]
"""Servers and trainers."""
HEART = {
    (1, 1): [("sgd", "short"), ("rowwise_adam", "usual")],
    (2, 2): [
        ("rowwise_adagrad", "no look-ahead"),
        ("rowwise_adagrad", "short"),
        ("sgd", "shortest"),
        ("adam", "long"),
        ("ftrl", "no look-ahead"),
    ],
    (1, 3): [("adagrad", "short"), ("rowwise_adagrad", "beyond the data"), ("momentum", "usual")],
}
"""What `make test` compares: every window, optimizer and way of rows once; `make test-all` compares every case, most of
them in two worlds."""
PLAIN = "kernels.backend=reference"
PLAIN_KERNELS = "shortest"
"""Runs with this window take NumPy and torch for all kernels, as the references do; the others native code."""
TRANSFERRED = "short"
"""Runs with this window send rows through MPI even where memory is shared."""
AT_HOME = {"shortest", "long", "usual", "beyond the data"}
"""With these windows rows live at one home each; of three trainers with `no look-ahead` and `short`, too."""
BY_HOROVOD = {"no look-ahead", "short", "beyond the data"}
"""With these windows Horovod sums dense gradients, in deterministic mode from three trainers on; with others messages
do, whose sums are always in rank order."""
LATE = {"no look-ahead", "shortest", "usual"}
"""In runs with these windows and several trainers gradients of weights come last, and the next step waits for sums."""
SUMS_THREAD = {"shortest", "long"}
"""In runs with these windows, whose sums go by messages, these have a thread of their own: one that pauses, as plain
kernels do, and a native one that keeps its core."""
GRIDS = {(1, 4): [("adam", "long"), ("sgd", "shortest")], (1, 6): [("adagrad", "usual"), ("sgd", "no look-ahead")]}
"""Worlds of further cases, whose trainers exchange rows with one home over a grid, of 2 x 2 and 2 x 3."""
TWO_HOSTS = {(2, 2): (0, 0, 2, 0, 2)}
"""Worlds whose ranks are dealt out to two hosts, a server and a trainer on each: both ways of rows in one run."""
LINEAR = "onednn" if platform.machine() == "x86_64" else "torch"
"""Linear layers of all runs here but one: with `auto` each would choose by its own times."""
EVALUATED = {
    "sgd": ["train.evaluate_every_steps=10", "train.evaluate_samples=130", "train.exact_auc_samples=150"],
    "adagrad": ["train.evaluate_every_steps=13", "train.auc_group=C3"],
}
"""Evaluations within an epoch, with an AUC from a histogram at its end; and by group. Others evaluate after epochs."""
SGD_BY_TORCH = "sgd by torch"
CROWDED = (2, 2)
"""World with a run more of each way to share rows, whose caches are so small that rows must be fetched late."""
MEASURED = (1, 1)
"""World with one run more, whose trainers time both."""

ON_DISK = {
    (1, 1): [("rowwise_adam", 0.00012, [])],
    (2, 2): [
        ("adam", 0.00008, ["train.checkpoint_every_steps=5", "train.full_checkpoint_every=3", "train.max_steps=23"]),
        ("adam", 0.00008, ["train.resume=auto"]),
    ],
    (1, 3): [("rowwise_adagrad", 0.00006, ["debug.verify_rows=true", "kernels.backend=reference"])],
}
"""Runs whose servers keep a part of their rows in memory: optimizer, GB of each server, further settings. Rows live
where `cache.sharing=auto` says. Of runs with the same optimizer the second goes on where the first has ended, with an
increment."""

Case = tuple[str, str]
RunRanks = Callable[..., CompletedProcess[str]]
References = Callable[[str, int], Path]


FURTHER_SETTINGS = {
    "sgd": [
        *("optimizer.dense=SGD", "optimizer.dense_options={ momentum = 0.9 }"),
        *("rows_rate.decay=step", "rows_rate.decay_steps=20", "rows_rate.gamma=0.5"),
        *("optimizer.rows_weight_decay=0.01", "optimizer.rows_weight_decay_mode=decoupled"),
    ],
    "momentum": [
        *("optimizer.rows_nesterov=true", "optimizer.rows_weight_decay=1e-3"),
        *("rows_rate.warmup_steps=9", "rows_rate.decay=cosine", "rows_rate.decay_steps=40"),
        *("dense_rate.decay=step", "dense_rate.decay_steps=15"),
    ],
    "rowwise_adam": [
        *("optimizer.rows_weight_decay=0.01", "optimizer.rows_weight_decay_mode=decoupled"),
        *("rows_rate.decay=polynomial", "rows_rate.decay_start=10", "rows_rate.decay_steps=30"),
        "rows_rate.end_factor=0.1",
    ],
    "ftrl": ["optimizer.rows_l1=1e-5", "optimizer.rows_l2=1e-4", "rows_rate.warmup_steps=20"],
    "adagrad": [
        *("optimizer.dense_clip_norm=0.3", "optimizer.rows_clip_norm=0.004", "train.row_sums=bfloat16"),
        *("data.lanes=5", "data.block_rows=32"),
    ],
    "adam": [
        *("train.row_sums=float16", "data.lanes=4", "data.block_rows=50"),
        *("rows_rate.warmup_steps=40", "dense_rate.warmup_steps=20"),
        *("dense_rate.decay=polynomial", "dense_rate.decay_steps=30", "optimizer.rows_weight_decay=1e-3"),
    ],
}
"""Of runs with an optimizer of rows: a dense optimizer with momentum; norms that many gradients exceed; row sums that
travel in 16 bits; rates that follow schedules, also in the midst of a warm-up when a run goes on; rows that decay;
batches put together from lanes, of which two trainers have two each, and three cut some."""


def overrides(optimizer: str, output: Path, *more: str) -> list[str]:
    """Settings of one run."""
    return [f"optimizer.rows={optimizer}", *FURTHER_SETTINGS.get(optimizer, []), f"train.output={output}", *more]


def story(output: Path) -> list[tuple[object, ...]]:
    """What a run tells, but for times and interruptions; when a checkpoint becomes complete is chance."""
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    further = ("log_loss", "normalised_entropy", "calibration", "group_auc")
    told = [
        (
            r["event"],
            r["step"],
            r.get("rows_lr"),
            r.get("dense_lr"),
            r.get("loss") or tuple(r[name] for name in further if name in r) or None,
            r.get("auc"),
        )
        for r in records
        if r["event"] != "resumed"
    ]
    return sorted(told, key=lambda event: (event[1], event[0] != "checkpoint"))


def train(
    run_ranks: RunRanks,
    ranks: int,
    config: Path,
    runs: list[list[str]],
    folder: Path,
    *more: str,
    limit_s: float | None = None,
) -> str:
    """Train one configuration after the other on `ranks` ranks; what they say on stderr."""
    path = folder / f"runs-{ranks}.json"
    path.write_text(json.dumps(runs))
    limit_s = limit_s or 120 + 20 * len(runs)  # a run takes a second or two on idle cores
    finished = run_ranks(ranks, *forked_rank(DRIVER), config, path, *more, timeout_s=limit_s)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stderr


@pytest.fixture(scope="module")
def references(
    short_config: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> References:
    """Output folder of the one-rank reference for an optimizer and a number of slices that a test needs."""
    from tests.ranks import run_ranks

    folder = tmp_path_factory.mktemp("references")
    needed = {("sgd", 1), ("sgd", 3)}
    for item in request.session.items:
        if getattr(item, "module", None) is request.module and hasattr(item, "callspec"):
            servers, trainers, chosen = (item.callspec.params[name] for name in ("servers", "trainers", "chosen"))
            on_disk = ON_DISK.get((servers, trainers), [])
            needed |= {(optimizer, trainers) for optimizer, *_ in [*chosen, *on_disk]}
    outputs = {(optimizer, slices): folder / f"{optimizer}-{slices}" for optimizer, slices in sorted(needed)}
    runs = [
        overrides(kind, out, f"train.reference_slices={slices}", PLAIN, *EVALUATED.get(kind, []))
        for (kind, slices), out in outputs.items()
    ]
    outputs[SGD_BY_TORCH, MEASURED[1]] = folder / "sgd-by-torch"
    runs.append(overrides("sgd", folder / "sgd-by-torch", PLAIN, "kernels.linear=torch"))
    train(run_ranks, 1, short_config, runs, folder)
    return lambda optimizer, slices: outputs[optimizer, slices]


def comparisons() -> list[object]:
    """Cases of each world: those of `make test`, then others; every third case in one world, others in the next."""
    found = []
    for number, world in enumerate(WORLDS):
        heart = HEART.get(world, [])
        rest = [case for case in CASES[number % 3 :: 3] if case not in heart]
        name = "{} servers, {} trainers".format(*world)
        if heart:
            found.append(pytest.param(*world, heart, id=name))
        found.append(pytest.param(*world, rest, id=f"{name}, the rest", marks=pytest.mark.slow))
    for world, chosen in GRIDS.items():
        marks = pytest.mark.slow if world[1] > 4 else ()
        found.append(pytest.param(*world, chosen, id=f"{world[1]} trainers in a grid", marks=marks))
    return found


@pytest.mark.parametrize(("servers", "trainers", "chosen"), comparisons())
def test_distributed_equals_reference(
    servers: int,
    trainers: int,
    chosen: list[Case],
    short_config: Path,
    references: References,
    run_ranks: RunRanks,
    tmp_path: Path,
) -> None:
    """Bit for bit, with three trainers too. The metrics tell the same losses and evaluations."""
    cases = {(optimizer, name): tmp_path / f"{optimizer}-{name.replace(' ', '-')}" for optimizer, name in chosen}
    runs = [
        overrides(
            optimizer,
            output,
            f"roles.servers={servers}",
            f"lookahead.batches={WINDOWS[name][0]}",
            f"lookahead.group={WINDOWS[name][1]}",
            *dense_sums(name, trainers),
            *EVALUATED.get(optimizer, []),
            *(["roles.same_host=transfers"] if name == TRANSFERRED else []),
            *([PLAIN] if name == PLAIN_KERNELS else []),
            f"cache.sharing={'home' if trainers > 1 and is_at_home(name, trainers) else 'replicated'}",
            *(["cache.exchange=grid"] if (servers, trainers) in GRIDS else []),
            *(["roles.transfers=one_sided"] if optimizer == "sgd" else []),
            *(["train.weight_gradients=late"] if name in LATE else []),
            *(["train.sums_thread=own"] if name in SUMS_THREAD else []),
            *(["train.checkpoint_every_steps=11", "cache.rows=3000"] if name == "long" else []),
        )
        for (optimizer, name), output in cases.items()
    ]
    if (servers, trainers) == MEASURED:
        runs.append(overrides("sgd", tmp_path / "measured", "roles.servers=1", "kernels.linear=auto"))
    on_disk = {f"disk-{optimizer}": optimizer for optimizer, *_ in ON_DISK.get((servers, trainers), [])}
    for optimizer, memory_gb, more in ON_DISK.get((servers, trainers), []):
        runs.append(
            overrides(
                optimizer,
                tmp_path / f"disk-{optimizer}",
                *(f"roles.servers={servers}", "lookahead.batches=6", "lookahead.group=2"),
                *(f"tables.memory_gb={memory_gb}", f"tables.ssd_path={tmp_path}", "debug.ssd_path_in_memory=true"),
                f"train.deterministic={str(trainers > 2).lower()}",
                *more,
            )
        )
    broken = []
    if (servers, trainers) == CROWDED and chosen == HEART[CROWDED]:
        crowded = [f"roles.servers={servers}", "lookahead.batches=6", "lookahead.group=2", "debug.verify_rows=true"]
        runs += [overrides("sgd", tmp_path / f"crowded-{own}", f"cache.sharing={own}", *crowded) for own in SHARINGS]
        broken = ["--break", *[NOTHING] * (len(runs) - len(SHARINGS)), *[FEW_SLOTS] * len(SHARINGS)]
    hosts = TWO_HOSTS.get((servers, trainers), ())
    simulated = ["--hosts", *map(str, hosts)] if hosts else []
    train(run_ranks, 1 + servers + trainers, short_config, runs, tmp_path, *simulated, *broken)
    found = {case: compare(references(case[0], trainers), output).largest() for case, output in cases.items()}
    assert found == dict.fromkeys(cases, 0.0)
    for (optimizer, name), output in cases.items():
        if name != "long":  # which writes more checkpoints
            assert story(output) == story(references(optimizer, trainers))
    for name, optimizer in on_disk.items():
        assert compare(references(optimizer, trainers), tmp_path / name).largest() == 0.0
        log = (tmp_path / name / "logs" / "server-0.log").read_text()
        work = re.findall(r"(\d+) blocks of \d+ bytes were read, (\d+) of them ahead, and (\d+)", log)
        read, ahead, written = work[-1]
        assert int(read) > int(ahead) > 0
        assert int(written) > 0
    for sharing in SHARINGS if broken else ():
        output = tmp_path / f"crowded-{sharing}"
        assert compare(references("sgd", trainers), output).largest() == 0.0
        told = (output / "logs" / "oracle-0.log").read_text(encoding="utf-8")
        late = re.findall(r"cache: \d+ of \d+ rows were in use at most; (\d+) batches were fetched late", told)
        assert int(late[-1]) > 5
        outgrown = "or a later one has more copies of rows than the first batches let expect" in told
        assert outgrown == (sharing == "home")
    if (servers, trainers) == MEASURED:
        check_measured(tmp_path / "measured", references)


def dense_sums(window: str, trainers: int) -> list[str]:
    """What sums dense gradients in the runs with a window."""
    if window in SUMS_THREAD and trainers > 3:
        return ["train.dense_sums=grid", "train.deterministic=true"]
    if window not in BY_HOROVOD:
        return ["train.dense_sums=mpi"]
    return ["train.dense_sums=horovod", *(["train.deterministic=true"] if trainers > 2 else [])]


def is_at_home(window: str, trainers: int) -> bool:
    """Whether rows live at one trainer each in the runs with a window."""
    return window in AT_HOME or (window in {"no look-ahead", "short"} and trainers > 2)


def check_measured(output: Path, references: References) -> None:
    """`config.toml`, checkpoint and log say which linear layers and device it took; with those, bits are the
    reference's."""
    settled = load_config(output / "config.toml", [])
    linear, device = settled.kernels.linear, settled.train.device
    assert linear in {LINEAR, "torch"}
    (manifest,) = output.glob("checkpoints/*/manifest.json")
    recorded = json.loads(manifest.read_text())
    assert recorded["config"]["kernels"]["linear"] == recorded["arithmetic"]["linear"] == linear
    told = (output / "logs" / "oracle-0.log").read_text(encoding="utf-8")
    assert "linear layers: " in told
    assert recorded["config"]["train"]["device"] == recorded["arithmetic"]["device"] == device
    assert f"trainers compute on: {device} (train.device = auto: " in told
    if LINEAR == "onednn":
        assert re.search(
            r"kernels\.linear = auto: the dense half of a step takes oneDNN [\d.]+ ms, torch [\d.]+ ms", told
        )
    reference = references("sgd" if linear == LINEAR else SGD_BY_TORCH, MEASURED[1])
    assert compare(reference, output).largest() == 0.0


@pytest.mark.slow
def test_three_trainers_without_fixed_order(
    short_config: Path, references: References, run_ranks: RunRanks, tmp_path: Path
) -> None:
    """By Horovod, within 1e-5 of the reference after 28 steps, and the same bits when run twice, wherever rows live."""
    outputs = [tmp_path / sharing for sharing in SHARINGS]
    settings = ["roles.servers=1", "train.dense_sums=horovod"]
    runs = [overrides("sgd", out, *settings, f"cache.sharing={out.name}") for out in outputs]
    train(run_ranks, 5, short_config, runs, tmp_path)
    assert compare(references("sgd", 3), outputs[0]).largest() <= 1e-5
    assert compare(*outputs).largest() == 0.0


@pytest.mark.slow
def test_four_trainers_over_a_grid(short_config: Path, run_ranks: RunRanks, tmp_path: Path) -> None:
    """Dense gradients, within its rows first: near the reference, the same bits in two runs; in rank order its bits."""
    reference, once, again, in_order = (tmp_path / name for name in ("reference", "once", "again", "in-order"))
    train(run_ranks, 1, short_config, [overrides("sgd", reference, "train.reference_slices=4", PLAIN)], tmp_path)
    settings = ["roles.servers=1", "train.dense_sums=grid", PLAIN]
    runs = [overrides("sgd", out, *settings) for out in (once, again)]
    train(
        run_ranks, 6, short_config, [*runs, overrides("sgd", in_order, *settings, "train.deterministic=true")], tmp_path
    )
    assert 0.0 < compare(reference, once).largest() <= 1e-5
    assert compare(once, again).largest() == 0.0
    assert compare(reference, in_order).largest() == 0.0


def test_evaluations_of_all_kinds_are_compared(references: References) -> None:
    told = [event for event in story(references("adagrad", 3)) if event[0] == "evaluation"]
    assert [step for _, step, *_ in told] == [13, 14, 26, 28]
    records = [json.loads(line) for line in (references("adagrad", 3) / "metrics.jsonl").read_text().splitlines()]
    assert all(0 < r["group_auc"] < 1 and r["auc_error"] == 0 for r in records if r["event"] == "evaluation")
    records = [json.loads(line) for line in (references("sgd", 1) / "metrics.jsonl").read_text().splitlines()]
    found = [(r["step"], r["samples"], r["auc_error"] > 0) for r in records if r["event"] == "evaluation"]
    assert found == [(10, 130, False), (14, 202, True), (20, 130, False), (28, 202, True)]


def test_slices_matter(references: References) -> None:
    """The comparison can fail: references that sum over other slices differ in the last bits."""
    comparison: Comparison = compare(references("sgd", 1), references("sgd", 3))
    assert 0.0 < comparison.largest() < 1e-4
