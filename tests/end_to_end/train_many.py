"""Trains several configurations one after the other in the same ranks: starting ranks takes longer than a tiny run.

Usage: train_many.py CONFIG.toml RUNS.json [--break NAME] [--hosts N...]

RUNS.json holds a list of override lists. `--break` breaks one thing first, see `breakages.py`; `--hosts` deals the
ranks out to hosts that do not exist: rows travel between different numbers as between different hosts.
"""

import argparse
import json
import logging
import sys
from pathlib import Path

from bagpipe_hpc import launch
from bagpipe_hpc.config_file import load_config
from bagpipe_hpc.mpi import communicators
from tests.end_to_end.breakages import BREAKAGES


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--break", dest="breakage", choices=BREAKAGES)
    parser.add_argument("--hosts", type=int, nargs="+", help="host number of each rank")
    arguments = parser.parse_args()
    if arguments.hosts:
        communicators._hosts = lambda _: tuple(arguments.hosts)
    if arguments.breakage:
        BREAKAGES[arguments.breakage]()
    for overrides in json.loads(arguments.runs.read_text()):
        code = launch.train(load_config(arguments.config, overrides))
        if code:
            return code
        logging.getLogger("bagpipe_hpc").handlers.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
