"""A rank stops just before all ranks do something together: the others end the job and say what they waited for."""

import re
from pathlib import Path

import pytest

from tests.fork_server import forked_rank
from tests.ranks import run_ranks

pytestmark = pytest.mark.slow

LIMIT_S = 8
SERVER, FIRST_TRAINER, TRAINER = 1, 2, 3
RANKS = 4


def missing(name: str, what: str) -> str:
    """How the rank speaks that calls the roll."""
    return rf"bagpipe: (oracle 0 .* failed: |rank 0 of 4 failed: )?{re.escape(name)}: no word of {what} within"


def limit(what: str) -> str:
    """How a rank speaks whose call takes too long."""
    return rf"bagpipe: waited \d+ s for {what}: a rank is stopped"


NO_PLAN = r"waited \d+ s for trainer \d to finish plan"
"""The oracle waits as long, since about the same time."""

PLACES = {
    "mpi.start.running:_library": (SERVER, limit("all ranks to start MPI")),
    "launch:find_places": (SERVER, missing("rank 1", "having started")),
    "mpi.communicators:Communicators._create": (SERVER, limit("all ranks to form the groups of their roles")),
    "launch:check_run": (SERVER, missing("server 0 (world rank 1)", "having checked its part")),
    "launch:log_to_file": (SERVER, missing("server 0 (world rank 1)", "having timed its linear layers")),
    "launch:run_prepared": (SERVER, missing("server 0 (world rank 1)", "being about to start its role")),
    "roles.start:open_windows": (SERVER, missing("server 0 (world rank 1)", "being ready to share the tables")),
    "mpi.rows.host_tables:HostTables.__init__": (
        SERVER,
        limit("the ranks of this host to share the memory of the tables"),
    ),
    "roles.trainer.trainer:open_dense_sums": (
        TRAINER,
        f"{limit('the other trainers to start sums of dense gradients')}|{NO_PLAN}",
    ),
    "checkpointing.protocol:_share": (FIRST_TRAINER, f"{limit('trainer 0 to announce a checkpoint')}|{NO_PLAN}"),
    "models.sums.horovod_sums:HorovodSums.close": (TRAINER, limit("the other trainers to end sums of dense gradients")),
    "roles.start:save_resources": (TRAINER, limit("all ranks to say what they have used")),
    "mpi.rows.window:RowWindow.close": (SERVER, missing("server 0 (world rank 1)", "being done with the tables")),
    "mpi.rows.host_tables:HostTables.close": (SERVER, limit("all ranks to give the memory of the tables back")),
    "mpi.heartbeat:HeartbeatCounter.__exit__": (
        SERVER,
        limit("the ranks of this host to give back the heartbeat counter"),
    ),
    "mpi.communicators:Communicators.__exit__": (
        FIRST_TRAINER,
        missing("trainer 0 (world rank 2)", "being about to end"),
    ),
    "mpi.start.running:_end": (FIRST_TRAINER, missing("rank 2", "having finished")),
    "mpi.start.running:_library@2": (FIRST_TRAINER, limit("all ranks to end MPI")),
}
"""Where a rank stops: which one, and what is said. Dense gradients are summed by Horovod, which all start and end
together."""


@pytest.mark.parametrize("place", PLACES)
def test_the_others_say_what_they_waited_for(place: str, config_path: Path, tmp_path: Path) -> None:
    rank, said = PLACES[place]
    settings = [f"train.output={tmp_path / 'run'}", f"train.timeout_s={LIMIT_S}", "train.epochs=1"]
    settings += ["train.dense_sums=horovod"]
    program = [*forked_rank("tests.end_to_end.stop_before"), str(rank), f"bagpipe_hpc.{place}"]
    ended = run_ranks(RANKS, *program, "train", config_path, *settings)
    assert ended.returncode not in (0, 124, 137), ended.stderr
    assert re.search(said, ended.stderr), ended.stderr
