"""`bagpipe train`, `stop` and `sweep`: runs, from the list of them to their end.

Python programs that bring a training loop of their own call `train_from_file`.
"""

import argparse
import os
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bagpipe_hpc.cli.arguments.parser import CommandParser
from bagpipe_hpc.cli.arguments.types import count, named_path
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.outcome import is_first_of_host, is_first_rank, is_torn, print_error
from bagpipe_hpc.cli.streams import write_for_programs
from bagpipe_hpc.config.doors import EntryError
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.exit_codes import EXIT_ERROR, EXIT_OK
from bagpipe_hpc.terminal import counted, printable, show_no_progress

if TYPE_CHECKING:
    from bagpipe_hpc.step.slice_step import Loop

COLD_START_S = 120.0
"""Added to `train.timeout_s` where ranks wait for MPI to start: a cold file system is slow to load interpreters."""
GO_ON = ": complete checkpoints are kept; the same command with train.resume=auto goes on from the newest"
"""What to do after Ctrl-C."""


def _add_train(parser: CommandParser) -> None:
    parser.add_argument("config", type=named_path, metavar="CONFIG.toml", help="settings; `bagpipe keys` lists them")
    parser.add_overrides("overrides", "*", "section.field=value", "replace single settings")
    _add_voices(parser, "print only warnings on stderr, and no progress", "print what every rank says on stderr")
    parser.add_argument(
        "--requeued",
        action="store_true",
        help="for a requeued Slurm job: go on from what its earlier starts saved; slurm/train.sh passes it",
    )


def _add_voices(parser: CommandParser, quiet: str, verbose: str) -> None:
    """Add the options that say how much `bagpipe train` tells; `quiet` and `verbose` are their help texts."""
    told = parser.add_mutually_exclusive_group()
    told.add_argument("--quiet", action="store_true", help=quiet)
    told.add_argument("--verbose", action="store_true", help=verbose)


def _train(arguments: argparse.Namespace) -> int:
    return train_from_file(
        arguments.config,
        arguments.overrides,
        quiet=arguments.quiet,
        verbose=arguments.verbose,
        comes_again=arguments.requeued,
    )


def train_from_file(
    path: Path,
    overrides: Sequence[str],
    loop: "Loop | None" = None,
    *,
    quiet: bool = False,
    verbose: bool = False,
    comes_again: bool = False,
) -> int:
    """Train as a configuration says. Collective over: all ranks that the launcher started.

    Args:
        path: the configuration, a TOML file.
        overrides: `section.field=value`.
        loop: as for `launch.train`.
        quiet: only warnings go to stderr.
        verbose: what all ranks say goes to stderr.
        comes_again: as for `launch.train`.

    Returns:
        The exit code.
    """
    try:
        config = load_config(path, overrides)
        if not config.data.path:
            raise ConfigError(f"{path}: data.path = '': name the folder that `bagpipe prepare` wrote")
    except ConfigError as error:
        # Every rank reads the same file and finds the same mistake, except where only some hosts lack a module. Later
        # errors are each rank's own.
        if is_first_rank():
            print_error(error)
        elif isinstance(error.__cause__, EntryError) and is_first_of_host():
            print_error(ConfigError(f"on host {socket.gethostname()}: {error}"))
        return EXIT_ERROR

    from bagpipe_hpc.mpi.start.running import mpi_running

    with mpi_running(config.train.timeout_s + COLD_START_S, config.train.timeout_s):
        if is_torn():
            return EXIT_ERROR

        from bagpipe_hpc.launch import train
        from bagpipe_hpc.telemetry.run_log import Voice

        if quiet:
            show_no_progress()
        voice = Voice.QUIET if quiet else Voice.VERBOSE if verbose else Voice.USUAL
        return train(config, loop, voice, comes_again=comes_again)


def _add_stop(parser: CommandParser) -> None:
    parser.add_argument(
        "run_path", type=named_path, metavar="OUTPUT|CONFIG.toml", help="folder of the run, or its settings"
    )
    parser.add_overrides("overrides", "*", "section.field=value", "the overrides that the run was given")
    _add_voices(parser, argparse.SUPPRESS, argparse.SUPPRESS)  # arguments of the run, which mean nothing here


def _stop(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.run.output.stop_request import request_stop

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
    return EXIT_OK


def _add_sweep(parser: CommandParser) -> None:
    parser.add_argument("config", type=named_path, metavar="CONFIG.toml", help="settings that all runs share")
    parser.add_overrides("settings", "+", "section.field=value,...", "values to combine; a run for each combination")
    parser.add_argument("--task", type=count, metavar="N", help="print the overrides of run N alone, one a line")


def _sweep(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.config.sweep import sweep_run, sweep_runs

    if arguments.task is not None:
        run = sweep_run(arguments.config, arguments.settings, arguments.task)
        write_for_programs("\n".join(run) + "\n", sys.getfilesystemencoding())
        return EXIT_OK
    runs = sweep_runs(arguments.config, arguments.settings)
    for number, run in enumerate(runs):
        print(f"{number}  {printable(shlex.join(run))}")
    told = shlex.join([str(arguments.config), *arguments.settings])
    script = shlex.quote(str(Path(os.environ.get("BAGPIPE_HOME", ""), "slurm/sweep.sh")))
    print(f"{counted(len(runs), 'run')}: sbatch --array=0-{len(runs) - 1} {script} {printable(told)}", file=sys.stderr)
    return EXIT_OK


TRAIN = Command(
    "train",
    "train a model; start it with mpirun or srun, or as one process for the reference",
    _add_train,
    _train,
    GO_ON,
)
STOP = Command("stop", "let a run end early with a checkpoint, from which train.resume=auto goes on", _add_stop, _stop)
SWEEP = Command(
    "sweep", "list the runs of a parameter sweep; slurm/sweep.sh trains them as an array", _add_sweep, _sweep
)
