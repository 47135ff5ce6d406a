"""`bagpipe train`, and the function that Python programs call in its place."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bagpipe_hpc.cli.outcome import EXIT_ERROR, is_first_of_host, is_first_rank, is_torn, print_error
from bagpipe_hpc.config.doors import EntryError
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.terminal import show_no_progress

if TYPE_CHECKING:
    from bagpipe_hpc.step.slice_step import Loop

COLD_START_S = 120.0
"""Added to `train.timeout_s` where ranks wait for MPI to start: a cold file system is slow to load interpreters."""
GO_ON = ": complete checkpoints are kept; the same command with train.resume=auto goes on from the newest"
"""What to do after Ctrl-C."""


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
