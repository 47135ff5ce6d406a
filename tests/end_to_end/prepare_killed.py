"""`bagpipe prepare` with small pieces; one rank is killed when it has finished a piece of a stage.

python -m tests.end_to_end.prepare_killed STAGE RANK ARGUMENT...
"""

import os
import signal
import sys
from typing import Any

import data_prep.counted_tables
import data_prep.parse_stage
import data_prep.prepare
from bagpipe_hpc.cli.commands import main
from data_prep.preparation_state import WorkFolder
from tests.launched_pytest import RANK_VARIABLES

STAGES = {
    "parse": (WorkFolder, "note_part"),
    "count": (data_prep.counted_tables, "_save"),
    "vocabularies": (WorkFolder, "note_vocabularies"),
    "write": (WorkFolder, "note_shard"),
    "end": (data_prep.prepare, "save_manifest"),
}


def kill_after(place: Any, name: str) -> None:
    """Let a function end, and this process with it."""
    function = getattr(place, name)

    def last(*arguments: object) -> None:
        function(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place, name, last)


if __name__ == "__main__":
    stage, rank, *arguments = sys.argv[1:]
    data_prep.prepare.RANGE_BYTES = 4000
    data_prep.parse_stage.PART_ROWS = 20
    own = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
    if stage != "none" and own == rank:
        kill_after(*STAGES[stage])
    sys.exit(main(["prepare", *arguments]))
