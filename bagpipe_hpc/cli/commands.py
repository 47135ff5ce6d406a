"""The `bagpipe` command: reads its arguments and calls the one function that does the work.

A command's modules are imported when it runs, so that help and usage errors come at once, without numpy, torch or MPI.
"""

import argparse
import shlex
from collections.abc import Sequence

from bagpipe_hpc import __version__
from bagpipe_hpc.cli.arguments.parser import CommandParser
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.data.generate import GENERATE
from bagpipe_hpc.cli.data.graphs import GENERATE_GRAPH, PREPARE_GRAPH
from bagpipe_hpc.cli.data.prepare import PREPARE
from bagpipe_hpc.cli.data.schemas import SCHEMA, SEARCH_PREPROCESSING
from bagpipe_hpc.cli.forecasts.comparisons import COMPARE_PLACEMENTS, COMPARE_POLICIES
from bagpipe_hpc.cli.forecasts.plan import PLAN
from bagpipe_hpc.cli.forecasts.simulate import SIMULATE
from bagpipe_hpc.cli.garbage import rare_full_collections
from bagpipe_hpc.cli.models.export import EXPORT
from bagpipe_hpc.cli.models.inspect import COMPARE, INSPECT
from bagpipe_hpc.cli.models.score import EVALUATE, PREDICT
from bagpipe_hpc.cli.outcome import exit_code_of
from bagpipe_hpc.cli.runs.beforehand import PLACE, PROFILE
from bagpipe_hpc.cli.runs.train import STOP, SWEEP, TRAIN
from bagpipe_hpc.cli.runs.watch import REPORT, TOP
from bagpipe_hpc.cli.setup import DOCTOR, KEYS
from bagpipe_hpc.errors import ConfigError

COMMANDS = (
    *(GENERATE, SCHEMA, SEARCH_PREPROCESSING, PREPARE, GENERATE_GRAPH, PREPARE_GRAPH),
    *(TRAIN, PROFILE, STOP, SWEEP, DOCTOR, EVALUATE, PREDICT, INSPECT, TOP, REPORT, PLACE, COMPARE, EXPORT),
    *(PLAN, SIMULATE, COMPARE_POLICIES, COMPARE_PLACEMENTS, KEYS),
)
"""All commands, in the order of the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments after the program's name; None takes the process's own.

    Returns:
        Exit code: 0, or `EXIT_DIFFERENT`, `EXIT_ERROR`, `EXIT_INTERRUPTED`, or what `launch.train` returns.
    """
    arguments = argparse.Namespace(command=None)

    def run() -> int:
        code: int = _parser().parse_args(argv, arguments).command.run(arguments)
        return code

    with rare_full_collections():
        return exit_code_of(run, "bagpipe", lambda: arguments.command.if_interrupted if arguments.command else "")


def _bench(arguments: argparse.Namespace) -> int:
    command = shlex.join(["python", "-m", "benchmarks", *arguments.rest])
    raise ConfigError(f"benchmarks are not part of the package; run `{command}` in a checkout of the project")


_BENCH = Command("bench", "measure", lambda _: None, _bench)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="bagpipe", description="Train recommendation models with huge embedding tables over MPI."
    )
    parser.add_argument("--version", action="version", version=f"bagpipe {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    # Without a summary the help does not list it. A user who types it is told where the benchmarks are.
    bench = commands.add_parser("bench", add_help=False, prefix_chars="\0")
    bench.add_argument("rest", nargs="*")
    bench.set_defaults(command=_BENCH)
    return parser
