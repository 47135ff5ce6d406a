"""All ranks learn the same places, from what each finds around itself."""

import os
import socket

import pytest
from mpi4py import MPI

from bagpipe_hpc.cluster import rank_facts
from bagpipe_hpc.mpi.start.places import find_places


@pytest.fixture
def slurm_task(monkeypatch):
    """An environment of a task with a GPU and a memory limit of its own, on a host whose driver shows nothing."""
    monkeypatch.setattr(rank_facts, "_GPUS_OF_DRIVER", rank_facts.Path("/no/driver"))
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    rank = MPI.COMM_WORLD.Get_rank()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(rank))
    monkeypatch.setenv("SLURM_MEM_PER_NODE", str(64 + rank))


@pytest.mark.mpi(min_size=3)
@pytest.mark.usefixtures("slurm_task")
def test_places_are_the_same_on_every_rank():
    places, hosts = find_places(30.0, use_gpus=True)
    assert MPI.COMM_WORLD.allgather((places, hosts)) == [(places, hosts)] * 3
    assert hosts == [socket.gethostname()] * 3
    assert [(place.host, place.gpus, place.gpu_group) for place in places] == [(0, 3, 0), (0, 3, 1), (0, 3, 2)]
    assert {place.memory_bytes for place in places} == {64 << 20}


@pytest.mark.mpi(min_size=3)
@pytest.mark.usefixtures("slurm_task")
def test_gpus_are_left_out_where_none_is_wanted():
    places, _ = find_places(30.0, use_gpus=False)
    assert [place.gpus for place in places] == [0, 0, 0]
