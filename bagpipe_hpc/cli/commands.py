"""The `bagpipe` command: reads its arguments and calls the one function that does the work.

A command's modules are imported when it runs, so that help and usage errors come at once, without numpy, torch or MPI.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bagpipe_hpc import __version__
from bagpipe_hpc.cli.argument_types import count, named_path, seconds, tolerance
from bagpipe_hpc.cli.command_parser import CommandParser, add_config
from bagpipe_hpc.cli.comparing import (
    add_compare_placements,
    add_compare_policies,
    compare_placements,
    compare_policies,
)
from bagpipe_hpc.cli.exporting import add_export, export
from bagpipe_hpc.cli.generating import add_generate, generate
from bagpipe_hpc.cli.graphs import add_generate_graph, add_prepare_graph, generate_graph, prepare_graph
from bagpipe_hpc.cli.inspecting import add_inspect, inspect
from bagpipe_hpc.cli.outcome import (
    EXIT_DIFFERENT,
    EXIT_OK,
    exit_code_of,
    is_first_rank,
)
from bagpipe_hpc.cli.placing import add_place, place
from bagpipe_hpc.cli.planning import add_plan, plan
from bagpipe_hpc.cli.preparing import add_prepare, prepare
from bagpipe_hpc.cli.reporting import add_report, report
from bagpipe_hpc.cli.scoring import add_evaluate, add_predict, evaluate, predict
from bagpipe_hpc.cli.searching import add_search, search
from bagpipe_hpc.cli.simulating import add_simulate, simulate
from bagpipe_hpc.cli.streams import write_for_programs
from bagpipe_hpc.cli.training import GO_ON, train_from_file
from bagpipe_hpc.cli.watching import add_top, top
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.reference import annotated_toml, markdown
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.terminal import counted, printable

_GO_ON = {
    "_train": GO_ON,
    "prepare": ": the same command goes on from the shards that are complete",
}
"""What to do after Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments after the program's name; None takes the process's own.

    Returns:
        Exit code: 0, or `EXIT_DIFFERENT`, `EXIT_ERROR`, `EXIT_INTERRUPTED`, or what `launch.train` returns.
    """
    arguments = argparse.Namespace(run=None)

    def run() -> int:
        code: int = _parser().parse_args(argv, arguments).run(arguments)
        return code

    return exit_code_of(run, "bagpipe", lambda: _GO_ON.get(getattr(arguments.run, "__name__", ""), ""))


def _schema(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.cli.proposing import propose

    return propose(arguments)


def _train(arguments: argparse.Namespace) -> int:
    return train_from_file(
        arguments.config,
        arguments.overrides,
        quiet=arguments.quiet,
        verbose=arguments.verbose,
        comes_again=arguments.requeued,
    )


def _profile(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.cli.profiling import profile

    return profile(load_config(arguments.config, arguments.overrides))


def _stop(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.run.stop_request import request_stop

    is_output = arguments.run_path.is_dir()
    if is_output and arguments.overrides:
        raise ConfigError(f"{arguments.run_path} is a folder: overrides belong to a configuration file")
    if not arguments.run_path.exists():
        raise ConfigError(
            f"{arguments.run_path}: is not there; name train.output of a run, or the arguments of its train"
        )
    output = (
        arguments.run_path if is_output else Path(load_config(arguments.run_path, arguments.overrides).train.output)
    )
    request_stop(output)
    print(f"{printable(str(output))}: asked to stop; it ends with a checkpoint")
    return 0


def _sweep(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.config.sweep import sweep_runs

    runs = sweep_runs(arguments.config, arguments.settings)
    last = len(runs) - 1
    if arguments.task is None:
        for number, run in enumerate(runs):
            print(f"{number}  {printable(shlex.join(run))}")
        told = shlex.join([str(arguments.config), *arguments.settings])
        script = shlex.quote(str(Path(os.environ.get("BAGPIPE_HOME", ""), "slurm/sweep.sh")))
        print(f"{counted(len(runs), 'run')}: sbatch --array=0-{last} {script} {printable(told)}", file=sys.stderr)
        return EXIT_OK
    if arguments.task > last:
        raise ConfigError(f"--task {arguments.task}: the sweep has {len(runs)} runs, 0 to {last}")
    write_for_programs("\n".join(runs[arguments.task]) + "\n", sys.getfilesystemencoding())
    return EXIT_OK


def _doctor(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.tools.doctor.installation import find_missing

    lacking = find_missing()
    if any(finding.is_fatal for finding in lacking):
        if is_first_rank():
            print(printable("\n".join([*map(str, lacking), "not healthy"])))
        return EXIT_DIFFERENT
    from bagpipe_hpc.mpi.start.running import mpi_running

    with mpi_running(arguments.timeout_s, arguments.timeout_s):
        from bagpipe_hpc.tools.doctor.doctor import diagnose

        return diagnose(arguments.output, arguments.timeout_s, lacking)


def _compare(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.tools.compare import compare

    comparison = compare(arguments.first, arguments.second)
    print(printable(comparison.report()))
    return 0 if comparison.largest() <= arguments.tolerance else EXIT_DIFFERENT


def _keys(arguments: argparse.Namespace) -> int:
    print(markdown() if arguments.markdown else annotated_toml(), end="")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    command = shlex.join(["python", "-m", "benchmarks", *arguments.rest])
    raise ConfigError(f"benchmarks are not part of the package; run `{command}` in a checkout of the project")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="bagpipe", description="Train recommendation models with huge embedding tables over MPI."
    )
    parser.add_argument("--version", action="version", version=f"bagpipe {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_data_commands(commands)
    _add_run_commands(commands)
    return parser


def _add_data_commands(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    summary = "write synthetic clicks, to try everything without a download"
    add_generate(_add(commands, "generate", generate, summary))

    schema = _add(commands, "schema", _schema, "propose what the columns of a file are, as TOML for prepare --schema")
    schema.add_argument("file", metavar="FILE", help="CSV, TSV (plain or compressed) or Parquet; its beginning is read")

    summary = "find transforms of dense columns that predict best, as a schema for prepare"
    add_search(_add(commands, "search-preprocessing", search, summary))

    summary = "turn raw clicks into checksummed shards for training"
    add_prepare(_add(commands, "prepare", prepare, summary))

    summary = "write a synthetic graph, to try training on one"
    add_generate_graph(_add(commands, "generate-graph", generate_graph, summary))
    summary = "turn edges and nodes into a graph and shards for training"
    add_prepare_graph(_add(commands, "prepare-graph", prepare_graph, summary))


def _add_voices(parser: CommandParser, quiet: str, verbose: str) -> None:
    """Add the options that say how much `bagpipe train` tells; `quiet` and `verbose` are their help texts."""
    told = parser.add_mutually_exclusive_group()
    told.add_argument("--quiet", action="store_true", help=quiet)
    told.add_argument("--verbose", action="store_true", help=verbose)


def _add_run_commands(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    train = _add(
        commands, "train", _train, "train a model; start it with mpirun or srun, or as one process for the reference"
    )
    train.add_argument("config", type=named_path, metavar="CONFIG.toml", help="settings; `bagpipe keys` lists them")
    train.add_overrides("overrides", "*", "section.field=value", "replace single settings")
    _add_voices(train, "print only warnings on stderr, and no progress", "print what every rank says on stderr")
    train.add_argument(
        "--requeued",
        action="store_true",
        help="for a requeued Slurm job: go on from what its earlier starts saved; slurm/train.sh passes it",
    )

    profile = _add(
        commands, "profile", _profile, "find the hot rows of the training rows before a run with policy.name=fae does"
    )
    add_config(profile)

    stop = _add(commands, "stop", _stop, "let a run end early with a checkpoint, from which train.resume=auto goes on")
    stop.add_argument(
        "run_path", type=named_path, metavar="OUTPUT|CONFIG.toml", help="folder of the run, or its settings"
    )
    stop.add_overrides("overrides", "*", "section.field=value", "the overrides that the run was given")
    _add_voices(stop, argparse.SUPPRESS, argparse.SUPPRESS)  # arguments of the run, which mean nothing here

    sweep = _add(
        commands, "sweep", _sweep, "list the runs of a parameter sweep; slurm/sweep.sh trains them as an array"
    )
    sweep.add_argument("config", type=named_path, metavar="CONFIG.toml", help="settings that all runs share")
    sweep.add_overrides("settings", "+", "section.field=value,...", "values to combine; a run for each combination")
    sweep.add_argument("--task", type=count, metavar="N", help="print the overrides of run N alone, one a line")

    doctor = _add(commands, "doctor", _doctor, "check this set-up; start it with mpirun or srun to check several hosts")
    doctor.add_argument(
        "--output",
        type=named_path,
        default=Path(),
        metavar="DIR",
        help="folder that all hosts must share (default: this one)",
    )
    doctor.add_argument(
        "--timeout-s", type=seconds, default=30.0, metavar="S", help="longest wait for a host (default: 30)"
    )

    summary = "measure a checkpoint on prepared rows; start it like train, with as many ranks or others"
    add_evaluate(_add(commands, "evaluate", evaluate, summary))
    summary = "write what a checkpoint predicts for raw rows; start it like train, with as many ranks or others"
    add_predict(_add(commands, "predict", predict, summary))

    add_inspect(_add(commands, "inspect", inspect, "describe a shard directory or a checkpoint"))

    add_top(_add(commands, "top", top, "show what each rank of a run does now"))

    add_report(_add(commands, "report", report, "write a page about one run or several, side by side"))

    add_place(_add(commands, "place", place, "search for a placement's plan beforehand, where that takes long"))

    compare = _add(commands, "compare", _compare, "compare two checkpoints; exits with 1 where they differ")
    for name, metavar in (("first", "A"), ("second", "B")):
        meaning = "a checkpoint, or a run's output folder for its newest"
        compare.add_argument(name, type=named_path, metavar=metavar, help=meaning)
    compare.add_argument(
        "--tolerance", type=tolerance, default=0.0, metavar="X", help="largest difference allowed (default: 0)"
    )

    add_export(_add(commands, "export", export, "write a trained model as a folder for a service with torch alone"))

    summary = "count what a run will move, hold and wait for, before it starts, and recommend settings"
    add_plan(_add(commands, "plan", plan, summary))
    summary = "predict the steps of a run on a cluster that is not at hand"
    add_simulate(_add(commands, "simulate", simulate, summary))
    summary = "count and train policies on equal terms: rows, bytes, waiting, quality"
    add_compare_policies(_add(commands, "compare-policies", compare_policies, summary))
    summary = "count what each placement of rows gives servers to hold and to do"
    add_compare_placements(_add(commands, "compare-placements", compare_placements, summary))
    # Without a summary the help does not list it. A user who types it is told where the benchmarks are.
    bench = commands.add_parser("bench", add_help=False, prefix_chars="\0")
    bench.add_argument("rest", nargs="*")
    bench.set_defaults(run=_bench)

    keys = _add(commands, "keys", _keys, "print every setting with its meaning and default")
    keys.add_argument("--markdown", action="store_true", help="print docs/configuration.md instead of TOML")


def _add(
    commands: "argparse._SubParsersAction[CommandParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
) -> CommandParser:
    command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    command.set_defaults(run=run)
    return command
