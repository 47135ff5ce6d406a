"""All ranks settle on one device for the trainers, by the GPUs that these have."""

import pytest
import torch
from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.config.schema import Config, TrainConfig
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.preparation.settling.device import settle_device


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(("setting", "gpus", "settled"), [("auto", 2, "cuda"), ("auto", 1, "cpu"), ("cuda", 0, "cuda")])
def test_trainers_compute_on_one_kind_of_device(monkeypatch, setting, gpus, settled):
    """Two trainers on one host with so many GPUs; where one of them has none, the other leaves its own alone."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    config = Config(train=TrainConfig(device=setting))
    with Communicators.create(Placement.in_rank_order(RoleLayout(servers=1, trainers=2))) as comms:
        found = settle_device(config, comms, import_s=60.0).train.device
    assert MPI.COMM_WORLD.allgather(found) == [settled] * 4
