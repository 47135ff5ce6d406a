"""Trainers of any number find the evaluation of one that has all samples, digit for digit."""

from dataclasses import asdict

import numpy as np
import pytest
from mpi4py import MPI

from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.evaluation.click_evaluation import ClickEvaluation
from bagpipe_hpc.evaluation.peers import Alone
from bagpipe_hpc.mpi.evaluation_peers import EvaluationPeers

TIMEOUT_S = 30.0


@pytest.mark.mpi(min_size=3)
@pytest.mark.parametrize("is_exact", [True, False])
def test_an_evaluation_is_that_of_one_process(comm: MPI.Comm, is_exact: bool) -> None:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, 5000).astype(np.float32)
    logits = rng.normal(size=5000).astype(np.float32).round(2)  # many are tied
    groups = rng.integers(0, 40, 5000) if is_exact else None
    whole = ClickEvaluation(is_exact=is_exact, by_group=is_exact)
    whole.add(labels, logits, groups)
    owner = np.minimum(rng.integers(0, 4, 5000), comm.Get_size() - 1)  # the last one has most
    own = ClickEvaluation(is_exact=is_exact, by_group=is_exact)
    mine = owner == comm.Get_rank()
    own.add(labels[mine], logits[mine], None if groups is None else groups[mine])
    peers = EvaluationPeers(comm, TIMEOUT_S)
    assert asdict(own.finish(peers)) == asdict(whole.finish(Alone()))


@pytest.mark.mpi(min_size=2)
def test_a_trainer_that_does_not_come_is_noticed(comm: MPI.Comm) -> None:
    if comm.Get_rank() == 0:
        for other in range(1, comm.Get_size()):
            comm.recv(source=other)
        comm.Ibarrier().Wait()
    else:
        with pytest.raises(WaitTimeoutError, match="for the evaluations of the other trainers"):
            EvaluationPeers(comm, timeout_s=0.05).all_of(None)
        comm.send(None, dest=0)
