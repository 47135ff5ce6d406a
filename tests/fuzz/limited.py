"""Runs commands of `bagpipe` one after the other in one process with a limit of memory, and says how each ended.

Usage: limited.py REQUEST.json

Runs as a fork (`tests/fork_server.py`). The request has the `commands`, lists of arguments, and `more_bytes`: the
address space that they may take beyond what the fork has. For each command a line of JSON goes to stdout: its exit
code, null where an exception ended it, what it said, and its seconds of processor time.
"""

import json
import logging
import os
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

from bagpipe_hpc.mpi.start.running import mpi_running  # isort: skip - before any other that imports mpi4py

from bagpipe_hpc.cli.commands import main as bagpipe

_MOST_FILE_BYTES = 64 << 20


def limit_memory(more_bytes: int) -> None:
    """Let this process have so much more address space than now, and no large files."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))


def end_of(arguments: list[str]) -> int | None:
    try:
        return bagpipe(arguments)
    except SystemExit as usage:
        return usage.code if isinstance(usage.code, int) else 0
    except BaseException:  # noqa: BLE001 - whatever it is, a user would see its traceback
        traceback.print_exc()
        return None


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with mpi_running(60.0, 60.0), tempfile.TemporaryFile() as said:
        limit_memory(request["more_bytes"])
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        for arguments in request["commands"]:
            said.seek(0)
            said.truncate()
            start_s = time.process_time()
            code = end_of(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
            json.dump({"code": code, "said": text, "cpu_s": time.process_time() - start_s}, answers)
            answers.write("\n")
            answers.flush()
            logging.getLogger("bagpipe_hpc").handlers.clear()


if __name__ == "__main__":
    main()
