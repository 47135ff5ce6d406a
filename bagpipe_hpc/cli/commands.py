"""The `bagpipe` command: reads its arguments and calls the one function that does the work.

What a command needs is imported when it runs, so that help and usage errors come at once, without numpy, torch or MPI.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bagpipe_hpc import __version__
from bagpipe_hpc.cli.argument_types import count, fraction, named_path, positive, positive_number, tolerance
from bagpipe_hpc.cli.command_parser import CommandParser
from bagpipe_hpc.cli.comparing import (
    add_compare_placements,
    add_compare_policies,
    compare_placements,
    compare_policies,
)
from bagpipe_hpc.cli.exporting import add_export, export
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
from bagpipe_hpc.cli.reporting import add_report, report
from bagpipe_hpc.cli.scoring import add_evaluate, add_predict, evaluate, predict
from bagpipe_hpc.cli.searching import add_search, search
from bagpipe_hpc.cli.training import GO_ON, train_from_file
from bagpipe_hpc.cli.watching import add_top, top
from bagpipe_hpc.config.doors import SOURCE_FORMATS
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.reference import annotated_toml, markdown
from bagpipe_hpc.errors import ConfigError, require_appendable
from bagpipe_hpc.terminal import line_start, printable

_GO_ON = {
    "_train": GO_ON,
    "_prepare": ": the same command goes on from the shards that are complete",
}
"""What to do after Ctrl-C."""
_DEFAULT_MIN_COUNT = 2
"""Not argparse's default: argparse overlooks a clash of exclusive options where one is given its default."""


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


def _generate(arguments: argparse.Namespace) -> int:
    from data_prep.generate import generate_clicks
    from data_prep.schema.document import load_schema

    generate_clicks(
        arguments.rows,
        arguments.output,
        seed=arguments.seed,
        zipf=arguments.zipf,
        ids_at_most=arguments.ids_at_most,
        kind=arguments.kind or "criteo",
        schema=None if arguments.schema is None else load_schema(arguments.schema),
    )
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.cli.proposing import propose

    return propose(arguments)


def _prepare(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.cli.preparing import prepare

    return prepare(arguments, _print_progress)


def _train(arguments: argparse.Namespace) -> int:
    quiet, verbose = arguments.quiet, arguments.verbose
    return train_from_file(arguments.config, arguments.overrides, quiet=quiet, verbose=verbose)


def _profile(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.cli.profiling import profile

    return profile(load_config(arguments.config, arguments.overrides))


def _stop(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.run.stop_request import request_stop

    is_output = arguments.run_path.is_dir()
    if is_output and arguments.overrides:
        raise ConfigError(f"{arguments.run_path} is a folder: overrides belong to a configuration file")
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
        print(f"{len(runs)} runs: sbatch --array=0-{last} slurm/sweep.sh {printable(told)}", file=sys.stderr)
        return EXIT_OK
    if arguments.task > last:
        raise ConfigError(f"--task {arguments.task}: the sweep has {len(runs)} runs, 0 to {last}")
    print(*runs[arguments.task], sep="\n")
    return EXIT_OK


def _doctor(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.tools.installation import find_missing

    lacking = find_missing()
    if any(finding.is_fatal for finding in lacking):
        if is_first_rank():
            print(printable("\n".join([*map(str, lacking), "not healthy"])))
        return EXIT_DIFFERENT
    from bagpipe_hpc.mpi.start.running import mpi_running

    with mpi_running(arguments.timeout_s, arguments.timeout_s):
        from bagpipe_hpc.tools.doctor import diagnose

        return diagnose(arguments.output, arguments.timeout_s, lacking)


def _compare(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.tools.compare import compare

    comparison = compare(arguments.first, arguments.second)
    print(printable(comparison.report()))
    return 0 if comparison.largest() <= arguments.tolerance else EXIT_DIFFERENT


def _keys(arguments: argparse.Namespace) -> int:
    print(markdown() if arguments.markdown else annotated_toml(), end="")
    return 0


def _simulate(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.tools.simulate import simulate

    if arguments.save:
        require_appendable(arguments.save)
    simulate(arguments).finish(arguments.save)
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
    generate = _add(commands, "generate", _generate, "write synthetic clicks, to try everything without a download")
    generate.add_argument("--rows", type=positive, required=True, metavar="N", help="rows to write")
    generate.add_argument(
        "--output", type=named_path, required=True, metavar="FILE", help="FILE.tsv, FILE.csv, or one ending in .gz"
    )
    described = generate.add_mutually_exclusive_group()
    described.add_argument("--schema", metavar="FILE.toml", help="write rows of its columns; also to FILE.parquet")
    described.add_argument(
        "--kind",
        choices=["criteo", "sequences"],
        help="the format: Criteo's, or users, items and histories with two labels (default: criteo)",
    )
    generate.add_argument("--seed", type=count, default=1, metavar="S", help="same seed, same rows (default: 1)")
    generate.add_argument(
        "--zipf", type=positive_number, default=1.05, metavar="A", help="skew of the categories (default: 1.05)"
    )

    generate.add_argument(
        "--ids-at-most",
        type=positive,
        metavar="N",
        help="tables cut to N ids each; criteo's then have the Kaggle data's sizes (default: 339,000 ids in all)",
    )

    schema = _add(commands, "schema", _schema, "propose what the columns of a file are, as TOML for prepare --schema")
    schema.add_argument("file", metavar="FILE", help="CSV, TSV (plain or compressed) or Parquet; its beginning is read")

    summary = "find transforms of dense columns that predict best, as a schema for prepare"
    add_search(_add(commands, "search-preprocessing", search, summary))

    prepare = _add(commands, "prepare", _prepare, "turn raw clicks into checksummed shards for training")
    formats = f"format of the input: {', '.join(SOURCE_FORMATS.entries)}, or package.module:Class (default: criteo)"
    described = prepare.add_mutually_exclusive_group()
    described.add_argument("--format", metavar="NAME", help=formats)
    described.add_argument(
        "--schema", metavar="FILE.toml", help="describes the columns of any CSV, TSV or Parquet; `bagpipe schema` helps"
    )
    prepare.add_argument(
        "--format-option", action="append", default=[], metavar="KEY=VALUE", help="a setting of the format's own"
    )
    prepare.add_argument(
        "--input",
        nargs="+",
        action="extend",
        required=True,
        metavar="FILE",
        help="files or glob patterns, in time order",
    )
    prepare.add_argument("--output", type=named_path, required=True, metavar="DIR", help="shard directory to write")
    sizes = prepare.add_mutually_exclusive_group()
    sizes.add_argument(
        "--min-count", type=positive, metavar="N", help=f"rarer values share a row (default: {_DEFAULT_MIN_COUNT})"
    )
    sizes.add_argument(
        "--max-rows-per-table", type=positive, metavar="N", help="hash the values of larger tables to N rows"
    )
    prepare.add_argument(
        "--unseen-buckets",
        type=count,
        metavar="N",
        help="rows of a table that rarer and later values share (default: 0)",
    )
    later = prepare.add_mutually_exclusive_group()
    later.add_argument(
        "--like", type=named_path, metavar="DIR", help="later rows, with format, settings and ids of the shards in DIR"
    )
    later.add_argument("--grow", type=named_path, metavar="DIR", help="the same, but new values get ids of their own")
    prepare.add_argument(
        "--evict-unused",
        type=positive,
        metavar="N",
        help="with --grow: values unused in N training rows lose ids",
    )
    prepare.add_argument("--rows-per-shard", type=positive, default=1 << 20, metavar="N", help="(default: 1048576)")
    prepare.add_argument(
        "--test-fraction",
        type=fraction,
        metavar="F",
        help="last part of the rows, for tests (default: 0.1; with --like all of them)",
    )
    prepare.add_argument(
        "--test-files", type=positive, metavar="N", help="the last N input files are for tests instead"
    )
    prepare.add_argument(
        "--test-half", choices=["first", "second"], help="of --test-files' rows that half alone; the other is left out"
    )
    prepare.add_argument("--compression", choices=["lzf", "gzip", "none"], default="lzf", help="(default: lzf)")
    prepare.add_argument("--chunk-checksums", action="store_true", help="let HDF5 check every chunk that it reads")
    prepare.add_argument(
        "--skip-bad-rows", type=count, default=0, metavar="N", help="skip up to N malformed rows (default: 0)"
    )
    prepare.add_argument(
        "--backend",
        choices=["auto", "native", "reference"],
        default="auto",
        help="native code, its definition in Python, or native code where it was built (default: auto)",
    )

    summary = "write a synthetic graph, to try training on one"
    add_generate_graph(_add(commands, "generate-graph", generate_graph, summary))
    summary = "turn edges and nodes into a graph and shards for training"
    add_prepare_graph(_add(commands, "prepare-graph", prepare_graph, summary))


def _add_run_commands(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    train = _add(
        commands, "train", _train, "train; start it with mpirun or srun, or as one process for the reference run"
    )
    train.add_argument("config", type=named_path, metavar="CONFIG.toml", help="settings; `bagpipe keys` lists them")
    train.add_overrides("overrides", "*", "section.field=value", "replace single settings")
    told = train.add_mutually_exclusive_group()
    told.add_argument("--quiet", action="store_true", help="warnings alone on stderr, and no progress")
    told.add_argument("--verbose", action="store_true", help="what every rank says, on stderr")

    profile = _add(
        commands, "profile", _profile, "find the hot rows of the training rows before a run with policy.name=fae does"
    )
    profile.add_argument("config", type=named_path, metavar="CONFIG.toml", help="settings, as for bagpipe train")
    profile.add_overrides("overrides", "*", "section.field=value", "replace single settings")

    stop = _add(commands, "stop", _stop, "let a run end early with a checkpoint, from which train.resume=auto goes on")
    stop.add_argument(
        "run_path", type=named_path, metavar="OUTPUT|CONFIG.toml", help="folder of the run, or its settings"
    )
    stop.add_overrides("overrides", "*", "section.field=value", "as the run was given them")

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
        "--timeout-s", type=positive_number, default=30.0, metavar="S", help="longest wait for a host (default: 30)"
    )

    summary = "measure a checkpoint on prepared rows; start it like train, with as many ranks or others"
    add_evaluate(_add(commands, "evaluate", evaluate, summary))
    summary = "write what a checkpoint predicts for raw rows; start it like train, with as many ranks or others"
    add_predict(_add(commands, "predict", predict, summary))

    add_inspect(_add(commands, "inspect", inspect, "describe a shard directory or a checkpoint"))

    add_top(_add(commands, "top", top, "show what each rank of a run does now"))

    add_report(_add(commands, "report", report, "write a page about one run or several, side by side"))

    add_place(_add(commands, "place", place, "make the plan of a placement that takes a while to find one"))

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
    _add_simulate(commands)
    summary = "count and train policies on equal terms: rows, bytes, waiting, quality"
    add_compare_policies(_add(commands, "compare-policies", compare_policies, summary))
    summary = "count what each placement of rows gives servers to hold and to do"
    add_compare_placements(_add(commands, "compare-placements", compare_placements, summary))
    # Without a summary the help does not list it: a user who types it hears where benchmarks are.
    bench = commands.add_parser("bench", add_help=False, prefix_chars="\0")
    bench.add_argument("rest", nargs="*")
    bench.set_defaults(run=_bench)

    keys = _add(commands, "keys", _keys, "print every setting with its meaning and default")
    keys.add_argument("--markdown", action="store_true", help="print docs/configuration.md instead of TOML")


def _add_simulate(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    simulate = _add(commands, "simulate", _simulate, "predict the steps of a run on a cluster that is not at hand")
    simulate.add_argument("config", type=named_path, metavar="CONFIG.toml", help="settings, as for bagpipe train")
    simulate.add_overrides("overrides", "*", "section.field=value", "replace single settings")
    simulate.add_argument(
        "--rows", type=positive, metavar="N", help="draw ids of tables with N rows in all (default: those of data.path)"
    )
    simulate.add_argument(
        "--zipf", type=positive_number, default=1.05, metavar="A", help="skew of the drawn ids (1.05)"
    )
    compute = simulate.add_mutually_exclusive_group(required=True)
    compute.add_argument(
        "--calibrate", type=named_path, metavar="RUN", help="take the time of a sample from RUN's output"
    )
    compute.add_argument("--compute-us-per-sample", type=positive_number, metavar="US", help="time of a sample")
    simulate.add_argument(
        "--trainers", type=positive, nargs="+", default=[1, 2, 4, 8, 16], metavar="T", help="(default: 1 2 4 8 16)"
    )
    simulate.add_argument("--lookahead", type=positive, nargs="+", metavar="L", help="(default: 1 and the setting)")
    simulate.add_argument("--trainers-per-host", type=positive, default=1, metavar="N", help="(default: 1)")
    simulate.add_argument(
        "--server-hosts", type=count, default=2, metavar="N", help="hosts of servers; 0: all on one host (default: 2)"
    )
    simulate.add_argument("--gbit-per-s", type=positive_number, default=10.0, metavar="X", help="each link (10)")
    simulate.add_argument("--latency-us", type=positive_number, default=50.0, metavar="US", help="one way (50)")
    simulate.add_argument(
        "--oracle-us-per-sample",
        type=positive_number,
        default=0.5,
        metavar="US",
        help="to read and plan a sample of a batch (0.5: one core)",
    )
    simulate.add_argument(
        "--message-us", type=positive_number, default=5.0, metavar="US", help="of a trainer, to one other trainer (5)"
    )
    simulate.add_argument(
        "--batches", type=positive, metavar="N", help="that count (default: 100, or what the data has)"
    )
    simulate.add_argument("--save", type=named_path, metavar="FILE", help="append the JSON line to FILE")


def _add(
    commands: "argparse._SubParsersAction[CommandParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
) -> CommandParser:
    command = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    command.set_defaults(run=run)
    return command


def _print_progress(message: str) -> None:
    print(f"{line_start()}{printable(message)}", file=sys.stderr, flush=True)
