"""The arguments of `bagpipe bench`; a benchmark's own module is imported when it runs."""

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path

from bagpipe_hpc.argument_types import positive

BENCHMARKS: dict[str, str] = {
    "prepare": "rows/s of `bagpipe prepare` beside those of the bare pyarrow parser",
}
"""Name of each benchmark, which is also its module in this package, and what it measures."""


def _prepare_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("clicks", type=Path, nargs="?", metavar="FILE", help="Criteo clicks (default: generated ones)")
    parser.add_argument(
        "--rows", type=positive, default=1_000_000, metavar="N", help="generated rows (default: 1000000)"
    )


_OWN_ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {"prepare": _prepare_arguments}


def add_own_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Add what only benchmark `name` takes."""
    if name in _OWN_ARGUMENTS:
        _OWN_ARGUMENTS[name](parser)


def add_benchmarks(bench: argparse.ArgumentParser) -> None:
    """Add a subcommand for each benchmark, and `all`."""
    names = bench.add_subparsers(title="benchmarks", metavar="NAME", required=True)
    for name, summary in {**BENCHMARKS, "all": "every benchmark, one after the other"}.items():
        parser = names.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        parser.set_defaults(benchmark=name)
        parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer runs: a look, not a result")
        parser.add_argument(
            "--runs", type=positive, metavar="N", help="runs whose median counts (default: 5, quick: 2)"
        )
        parser.add_argument("--save", type=Path, metavar="FILE", help="append the JSON line to FILE")
        add_own_arguments(name, parser)


def run_benchmarks(arguments: argparse.Namespace) -> int:
    """Run the named benchmark, or all of them with their default arguments.

    Returns:
        Exit code 0.
    """
    if arguments.runs is None:
        arguments.runs = 2 if arguments.quick else 5
    names = list(BENCHMARKS) if arguments.benchmark == "all" else [arguments.benchmark]
    for name in names:
        own = argparse.ArgumentParser()
        add_own_arguments(name, own)
        defaults = vars(own.parse_args([]))
        module = importlib.import_module(f"bagpipe_hpc.bench.{name}")
        if arguments.benchmark == "all":
            print(f"== {name}", flush=True)
        module.run(argparse.Namespace(**(defaults | vars(arguments)))).finish(arguments.save)
    return 0
