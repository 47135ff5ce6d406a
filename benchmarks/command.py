"""`python -m benchmarks`: the benchmarks by name; the module of one is imported when it runs."""

import argparse
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.cli.arguments.types import positive
from bagpipe_hpc.cli.outcome import exit_code_of
from bagpipe_hpc.errors import require_appendable
from bagpipe_hpc.exit_codes import EXIT_OK
from benchmarks import arguments


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
        module: where its function `run(arguments) -> Report` is, in this package.
        summary: what it measures.
        add_arguments: adds what only this one takes.
        repeats: whether `--runs` has a meaning: it takes medians of several runs.
        has_look: whether `--quick` has one.
    """

    module: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None] = arguments.add_none
    repeats: bool = True
    has_look: bool = True


BENCHMARKS = {
    "cache": Benchmark(
        "cache.benchmark",
        "row operations beside a plain copy of as many bytes: GB/s on the CPU and on a GPU",
        arguments.add_cache,
    ),
    "planner": Benchmark(
        "planner.benchmark",
        "samples/s and memory of the oracle's planner, native beside NumPy, up to a billion rows",
        arguments.add_planner,
    ),
    "oracle": Benchmark(
        "oracle", "samples/s that the oracle reads and plans, by threads, and how soon it starts", arguments.add_oracle
    ),
    "dense": Benchmark("dense", "the dense half of a step: ms, GFLOP/s and page faults, beside plain torch"),
    "prepare": Benchmark(
        "prepare.benchmark",
        "rows/s of `bagpipe prepare` beside those of the bare pyarrow parser",
        arguments.add_prepare,
    ),
    "reading": Benchmark(
        "reading",
        "bytes and ms of what a trainer and the oracle read of the shards, by the order of the samples",
        arguments.add_reading,
    ),
    "store": Benchmark(
        "store.benchmark",
        "rows/s that trainers get from servers and put to them, beside plain copies and messages",
        arguments.add_store,
    ),
    "peers": Benchmark(
        "peers.benchmark",
        "whole training beside plain PyTorch and TorchRec: samples/s, memory, quality",
        arguments.add_peers,
    ),
    "quality": Benchmark(
        "quality",
        "AUC and log loss of each model after an epoch, beside plain PyTorch and torch-rechub",
        arguments.add_quality,
        repeats=False,
    ),
    "search": Benchmark(
        "search",
        "settings, by what they learn of the end of the training rows from the rows before it",
        arguments.add_search,
        repeats=False,
    ),
    "checkpoint": Benchmark(
        "checkpoint.benchmark", "checkpoints: bytes, stand-still of training, GB/s beside plain HDF5"
    ),
    "memory": Benchmark("memory", "peak memory of each role against its formula", arguments.add_memory),
    "step": Benchmark(
        "step.benchmark",
        "whole training steps over several links, and where their time goes",
        arguments.add_step,
    ),
    "gpu_steps": Benchmark(
        "gpu_steps.benchmark",
        "what a GPU does in a trainer's steps: ms of products, row operations and copies, and how long it is idle",
        arguments.add_gpu_steps,
        repeats=False,
    ),
    "waiting": Benchmark(
        "waiting",
        "what two trainers on one host wait for, and which threads take the cores, by what sums dense gradients",
        arguments.add_waiting,
    ),
    "step_price": Benchmark(
        "step_price",
        "what a step takes beside its samples: ms and processor time by slice, and what is left of both at none",
        arguments.add_step_price,
    ),
    "ssd": Benchmark(
        "ssd",
        "training with 25, 50 and 100 %% of the rows in memory and the rest on SSD, beside all in memory",
        arguments.add_ssd,
    ),
    "volumes": Benchmark(
        "volumes",
        "rows that a trainer moves for a batch, replicated and with one home: counted in runs, beside their plans",
        arguments.add_volumes,
        repeats=False,
    ),
    "host_sharing": Benchmark(
        "host_sharing",
        "rows between hosts of several trainers, as they are sent and with one for all trainers of a host",
        arguments.add_host_sharing,
        repeats=False,
    ),
    "tiers": Benchmark(
        "tiers",
        "rows between trainers within hosts and between them, by where hot rows are held (FlexShard)",
        arguments.add_tiers,
        repeats=False,
        has_look=False,
    ),
    "growth": Benchmark(
        "growth",
        "how a step grows with trainers where links decide, beside what one trainer's step predicts",
        arguments.add_growth,
    ),
    "simulate": Benchmark(
        "simulate", "what `bagpipe simulate` predicts, beside measured steps", arguments.add_simulate
    ),
}
"""The benchmarks by name, in the order in which `all` runs them."""

PROGRAM = "python -m benchmarks"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark, or all of them.

    Args:
        argv: arguments after the program's name; None takes the process's own.

    Returns:
        Exit code, as `bagpipe` has them.
    """
    chosen = _parser().parse_args(argv)
    return exit_code_of(lambda: _run(chosen), PROGRAM)


def _parser() -> argparse.ArgumentParser:
    """A subcommand for each benchmark, and `all`."""
    program = argparse.ArgumentParser(prog=PROGRAM, description="Measure the parts and the whole on this machine.")
    names = program.add_subparsers(title="benchmarks", metavar="NAME", required=True)
    every = Benchmark("", "every benchmark, one after the other")
    for name, benchmark in {**BENCHMARKS, "all": every}.items():
        summary = benchmark.summary
        parser = names.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        parser.set_defaults(benchmark=name)
        if benchmark.has_look:
            fewer = " and fewer runs" if benchmark.repeats else ""
            parser.add_argument("--quick", action="store_true", help=f"smaller sizes{fewer}: a look, not a result")
        if benchmark.repeats:
            parser.add_argument(
                "--runs", type=positive, metavar="N", help="runs whose median counts (default: 5, quick: 2)"
            )
        parser.add_argument("--save", type=Path, metavar="FILE", help="append the JSON line to FILE")
        benchmark.add_arguments(parser)
    return program


def _run(chosen: argparse.Namespace) -> int:
    """Run the named benchmark, or all of them with their default arguments."""
    if "runs" in chosen and chosen.runs is None:
        chosen.runs = 2 if chosen.quick else 5
    if chosen.save:
        require_appendable(chosen.save)
    names = list(BENCHMARKS) if chosen.benchmark == "all" else [chosen.benchmark]
    for name in names:
        own = argparse.ArgumentParser()
        BENCHMARKS[name].add_arguments(own)
        defaults = vars(own.parse_args([]))
        module = importlib.import_module(f"benchmarks.{BENCHMARKS[name].module}")
        if chosen.benchmark == "all":
            print(f"== {name}", flush=True)
        module.run(argparse.Namespace(**(defaults | vars(chosen)))).finish(chosen.save)
    return EXIT_OK
