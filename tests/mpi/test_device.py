"""All ranks settle on one device for the trainers, by the GPUs that these have."""

import pytest
import torch
from mpi4py import MPI

from bagpipe_hpc.cluster.role_layout import RoleLayout
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.config.schema import Config, TrainConfig
from bagpipe_hpc.mpi.communicators import Communicators
from bagpipe_hpc.preparation.agreement import RefusalError
from bagpipe_hpc.preparation.settling.device import settle_device

PLACEMENT = Placement.in_rank_order(RoleLayout(servers=1, trainers=2))


def settled(setting, gpus, monkeypatch):
    """What two trainers on one host with so many GPUs settle on."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with Communicators.create(PLACEMENT) as comms:
        return settle_device(Config(train=TrainConfig(device=setting)), comms, import_s=60.0).train.device


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(("setting", "gpus", "device"), [("auto", 2, "cuda"), ("auto", 1, "cpu"), ("cpu", 2, "cpu")])
def test_trainers_compute_on_one_kind_of_device(monkeypatch, setting, gpus, device):
    """Where one of them has no GPU, the other leaves its own alone."""
    assert MPI.COMM_WORLD.allgather(settled(setting, gpus, monkeypatch)) == [device] * 4


@pytest.mark.mpi(min_size=4)
def test_ranks_with_other_settings_are_refused_everywhere(monkeypatch):
    setting = "cuda" if MPI.COMM_WORLD.Get_rank() == 2 else "auto"
    with pytest.raises(
        RefusalError, match=r"train\.device: 'auto' on rank 0, 'cuda' on rank 2: let all ranks have the"
    ):
        settled(setting, 2, monkeypatch)
