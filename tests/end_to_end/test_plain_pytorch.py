"""A distributed run ends, up to rounding, where a program ends that has nothing of this project in it.

The reference of the other tests shares kernels, optimizers and the order of samples with what is compared with it.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.end_to_end import plain_pytorch
from tests.end_to_end.plain_pytorch import Clicks, Dlrm
from tests.end_to_end.test_equality import RunRanks
from tests.fork_server import forked

SEED = 1
TINY = 1e-14
"""An epsilon so small that it does not matter where it is added: torch's SparseAdam does so before the correction."""
ADAPTIVE = ["optimizer.rows_lr=0.002", f"optimizer.rows_eps={TINY}"]
ROWS: dict[str, tuple[list[str], Callable[[list[torch.Tensor]], torch.optim.Optimizer]]] = {
    "sgd": (["optimizer.rows_lr=0.05"], lambda rows: torch.optim.SGD(rows, lr=0.05)),
    "adagrad": (ADAPTIVE, lambda rows: torch.optim.Adagrad(rows, lr=0.002, eps=TINY)),
    "adam": (ADAPTIVE, lambda rows: torch.optim.SparseAdam(rows, lr=0.002, eps=TINY)),
}
"""Settings of a run, and torch's optimizer of the same formula."""
ROUNDING = {"tables": 1e-6}
FURTHER_ROUNDING = 1e-5
"""Of dense weights: Adam takes steps of the same length, however small a gradient is."""


@pytest.mark.parametrize(
    "optimizer", ["adam", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sgd", "adagrad"))]
)
def test_a_run_ends_where_plain_pytorch_does(
    optimizer: str, run_ranks: RunRanks, config_path: Path, shards: Path, tmp_path: Path
) -> None:
    """Two servers, two trainers, a short window, two epochs of 27 batches."""
    of_run, of_torch = ROWS[optimizer]
    settings = [f"optimizer.rows={optimizer}", *of_run, "lookahead.batches=5", "lookahead.group=2", "roles.servers=2"]
    finished = run_ranks(5, *forked(["bagpipe", "train", config_path, f"train.output={tmp_path}", *settings]))
    assert finished.returncode == 0, finished.stderr
    clicks = Clicks.read(shards)
    model = Dlrm(clicks.table_rows, dim=8, hidden=16, seed=SEED)
    first = plain_pytorch.weights_of(model)
    dense = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=0.005)
    order = plain_pytorch.batches(len(clicks.labels), batch_size=70, block_rows=256, epochs=2, seed=SEED)
    plain_pytorch.train(model, clicks, order, [dense, of_torch(list(model.tables.parameters()))])
    plain, run = plain_pytorch.weights_of(model), plain_pytorch.read_checkpoint(tmp_path)
    assert run.keys() == plain.keys()
    for name, values in plain.items():
        rounding = ROUNDING.get(name, FURTHER_ROUNDING)
        np.testing.assert_allclose(run[name], values, rtol=0, atol=rounding, err_msg=name)
        assert np.abs(values - first[name]).max() > 1000 * rounding, name
