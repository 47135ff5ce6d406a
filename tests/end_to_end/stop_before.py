"""`bagpipe` on a rank that stops itself (SIGSTOP) just before it calls a function, where it is the rank that is meant.

python -m tests.end_to_end.stop_before RANK MODULE:FUNCTION[@CALL] BAGPIPE_ARGUMENT...

FUNCTION may be a method; CALL says which call of it is meant, the first one where it is left out.
"""

import importlib
import os
import signal
import sys
from typing import Any

import bagpipe_hpc.mpi.start.running  # noqa: F401 - before any other file that imports mpi4py
from bagpipe_hpc import launch
from bagpipe_hpc.cli import commands as cli
from bagpipe_hpc.cli.runs import train as training
from tests.launched_pytest import world_rank


def stop_before(place: str) -> None:
    """Let this process stop when it comes to a place."""
    function, _, call = place.partition("@")
    module_name, _, path = function.partition(":")
    owner: Any = importlib.import_module(module_name)
    *classes, name = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    left = int(call or 1)

    def stopping(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return original(*arguments, **options)

    setattr(owner, name, stopping)


if __name__ == "__main__":
    training.COLD_START_S = launch._IMPORT_S = 12.0  # enough for forks: they find everything imported
    rank, place, *arguments = sys.argv[1:]
    if world_rank() == int(rank):
        stop_before(place)
    sys.exit(cli.main(arguments))
