"""Trains several configurations one after the other in the same ranks: starting ranks takes longer than a tiny run.

Usage: train_many.py CONFIG.toml RUNS.json [--break NAME...] [--hosts N...] [--refused | --outcomes FILE]

RUNS.json holds a list of override lists. `--break` breaks one thing in each run (`breakages.py`); `--hosts` deals the
ranks out to hosts that do not exist: rows travel between different numbers as between different hosts. With `--refused`
every run must be refused, and a line ends what is said of it. With `--outcomes` each may be, and FILE gets a line with
the exit code of each run that has ended.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

from bagpipe_hpc import launch
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.exit_codes import EXIT_ERROR
from bagpipe_hpc.mpi import communicators
from bagpipe_hpc.mpi.start.hosts import Hosts
from bagpipe_hpc.mpi.start.world import world_rank
from tests.end_to_end.breakages import BREAKAGES
from tests.started_mpi import start_mpi

END_OF_RUN = "==== the run has ended"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--break", dest="breakages", choices=BREAKAGES, nargs="+", help="one for each run")
    parser.add_argument("--hosts", type=int, nargs="+", help="host number of each rank")
    parser.add_argument("--refused", action="store_true", help="all runs are refused")
    parser.add_argument("--outcomes", type=Path, help="file of exit codes")
    arguments = parser.parse_args()
    start_mpi()
    if arguments.hosts:
        hosts = Hosts(tuple(arguments.hosts), ())
        communicators.Hosts = SimpleNamespace(find=lambda _: hosts)
    runs = json.loads(arguments.runs.read_text())
    for overrides, breakage in zip(runs, arguments.breakages or [None] * len(runs), strict=True):
        with _broken(breakage):
            code = _train(load_config(arguments.config, overrides))
        if arguments.outcomes:
            if world_rank() == 0:
                with arguments.outcomes.open("a", encoding="utf-8") as file:
                    file.write(f"{code}\n")
        elif arguments.refused:
            assert code == EXIT_ERROR, overrides
            if world_rank() == 0:
                print(END_OF_RUN, file=sys.stderr, flush=True)
        elif code:
            return code
        logging.getLogger("bagpipe_hpc").handlers.clear()
    return 0


def _train(config: Config) -> int:
    """The exit code; what runs in one process raises what it refuses."""
    try:
        return launch.train(config)
    except ConfigError as error:
        print(f"bagpipe: error: {error}", file=sys.stderr, flush=True)
        return EXIT_ERROR


@contextmanager
def _broken(name: str | None) -> Iterator[None]:
    """Something is broken during the body, and whole again afterwards."""
    with ExitStack() as stack:

        def patch(target: object, attribute: str, value: object) -> None:
            stack.callback(setattr, target, attribute, getattr(target, attribute))
            setattr(target, attribute, value)

        if name:
            BREAKAGES[name](patch)
        yield


if __name__ == "__main__":
    sys.exit(main())
