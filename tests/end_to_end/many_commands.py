"""Runs several commands one after the other in the same ranks: starting ranks takes longer than a tiny run.

Usage: many_commands.py COMMANDS.json

The file holds a list of argument lists of `bagpipe`, each behind the exit code that it must have. What a command says
on stderr is followed by a line that ends it.
"""

import json
import logging
import sys
from pathlib import Path

from bagpipe_hpc.mpi.start.running import mpi_running  # isort: skip - before any other that imports mpi4py

from bagpipe_hpc.cli.commands import main as bagpipe
from bagpipe_hpc.mpi.start.world import world_rank

END_OF_COMMAND = "==== the command has ended"


def main() -> int:
    commands = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with mpi_running(60.0, 60.0):
        for expected, *arguments in commands:
            try:
                code = bagpipe(arguments)
            except SystemExit as usage_error:
                code = int(usage_error.code or 0)
            if code != expected:
                print(f"{arguments}: exit code {code} instead of {expected}", file=sys.stderr)
                return 1
            if world_rank() == 0:
                print(END_OF_COMMAND, file=sys.stderr, flush=True)
            logging.getLogger("bagpipe_hpc").handlers.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
