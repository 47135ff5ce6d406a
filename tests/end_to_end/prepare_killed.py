"""`bagpipe prepare` with small pieces; one rank is killed when it has finished a piece of a stage.

The others wait behind a piece of that stage, so that they do not take all before it comes.

python -m tests.end_to_end.prepare_killed STAGE RANK ARGUMENT...
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import data_prep.prepare
import data_prep.stages.counted_tables
import data_prep.stages.parse
from bagpipe_hpc.cli.commands import main
from data_prep.preparation_state import WorkFolder
from tests.launched_pytest import RANK_VARIABLES

STAGES = {
    "parse": (WorkFolder, "note_part"),
    "count": (data_prep.stages.counted_tables, "_save"),
    "vocabularies": (WorkFolder, "note_vocabularies"),
    "write": (WorkFolder, "note_shard"),
    "end": (data_prep.prepare, "save_manifest"),
}


_WAIT_S = 30.0
"""The launcher ends ranks that wait as soon as one is killed."""


def end_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_end() -> None:
    time.sleep(_WAIT_S)


def go_on_with(place: Any, name: str, then: Callable[[], None]) -> None:
    """Let something happen whenever a function has ended."""
    function = getattr(place, name)

    def last(*arguments: object) -> None:
        function(*arguments)
        then()

    setattr(place, name, last)


if __name__ == "__main__":
    stage, rank, *arguments = sys.argv[1:]
    data_prep.prepare.RANGE_BYTES = 4000
    data_prep.stages.parse.PART_ROWS = 20
    own = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
    if stage != "none":
        go_on_with(*STAGES[stage], end_itself if own == rank else wait_for_the_end)
    sys.exit(main(["prepare", *arguments]))
