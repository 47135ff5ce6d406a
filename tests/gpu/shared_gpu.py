"""Run a command on a rank so that many trainers share one GPU: `python -m tests.gpu.shared_gpu UUID COMMAND...`.

A trainer takes a GPU of its own among those that ranks with its `CUDA_VISIBLE_DEVICES` see. CUDA knows a GPU by any
beginning of its UUID that no other has, so each rank calls the one that there is by a name of its own.
"""

import os
import sys

_RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def main() -> None:
    uuid, *command = sys.argv[1:]
    rank = next(int(os.environ[name]) for name in _RANK_VARIABLES if name in os.environ)
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid[: len(uuid) - rank]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
