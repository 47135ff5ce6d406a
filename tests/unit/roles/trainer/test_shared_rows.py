"""Nothing of a trainer's rows travels where it is alone, so nothing is rounded, however they are shared."""

from types import SimpleNamespace
from typing import Any

import torch

from bagpipe_hpc.kernels.device import Cpu
from bagpipe_hpc.mpi.rows.grid_comms import GridComms
from bagpipe_hpc.mpi.waiting import Waits
from bagpipe_hpc.plan.exchange import Kind
from bagpipe_hpc.roles.trainer.shared_rows import open_row_sharing
from bagpipe_hpc.step.sharing.tiered_rows import TieredRows

SUMS = torch.arange(6, dtype=torch.float32).view(3, 2) / 3


def test_a_trainer_that_is_alone_rounds_nothing() -> None:
    alone: Any = SimpleNamespace(Get_size=lambda: 1, Get_rank=lambda: 0)
    comms: Any = SimpleNamespace(
        layout=SimpleNamespace(trainers=1),
        trainers=alone,
        gathering=alone,
        exchanges=[GridComms(alone, alone) for _ in Kind],
    )
    config: Any = SimpleNamespace(
        train=SimpleNamespace(row_sums="bfloat16", batch_size=64),
        cache=SimpleNamespace(sharing="tiered"),
        kernels=SimpleNamespace(backend="reference"),
    )
    parts: Any = SimpleNamespace(device=Cpu(), caches=[SimpleNamespace(device=Cpu())])
    updates: Any = None
    rows = open_row_sharing(config, comms, parts, updates, Waits(30.0), lambda: None)
    assert isinstance(rows, TieredRows)
    pending = rows._everywhere._row_sums.start(SUMS)
    pending.advance()
    assert torch.equal(pending.wait("them"), SUMS)
    assert torch.equal(rows._everywhere._row_sums.rounded(SUMS), SUMS)
    assert torch.equal(rows._at_homes._sums.rounded(SUMS), SUMS)
