"""DLRM in plain PyTorch, one process: what most people would write first.

    build/peers-venv/bin/python benchmarks/peers/programs/plain_pytorch.py CONFIG.toml data.path=SHARDS [...]

Sparse gradients and an optimizer of `torch.optim`. That has no row-wise Adagrad: `optimizer.rows = "rowwise_adagrad"`
gives the rows Adagrad, with an accumulator for each weight. The last line is one JSON object.
"""

from itertools import pairwise

import torch
from first_weights import dense_weights, fill_table
from onednn_linear import use_onednn
from peer_run import PeerRun, train_and_evaluate
from torch import Tensor, nn

from bagpipe_hpc.run.run import Run

ROW_OPTIMIZERS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rowwise_adagrad": torch.optim.Adagrad}
"""Those of `optimizer.rows` that take sparse gradients."""


class PlainDLRM(nn.Module):
    """Embedding tables, bottom MLP, dot interactions, top MLP.

    Legend: `n` samples, `N` dense features, `F` sparse features, `D` embedding width.
    """

    def __init__(self, job: Run) -> None:
        super().__init__()
        model, tables = job.config.model, job.manifest.table_rows
        width, vectors = model.embedding_dim, len(tables) + 1
        self.tables = nn.ModuleList(
            nn.Embedding(rows, width, sparse=True, _weight=torch.empty(rows, width)) for rows in tables
        )
        self.bottom = _mlp([job.manifest.dense_features, *model.settings.bottom_mlp, width])
        self.top = _mlp([width + vectors * (vectors - 1) // 2, *model.settings.top_mlp, 1])[:-1]
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, offset=-1), persistent=False)
        self.load_state_dict(dense_weights(job), strict=False)
        for number, table in enumerate(self.tables):
            fill_table(table.weight, job, number)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Logits float32 `[n]` from float32 `[n, N]` and int64 `[n, F]`."""
        bottom = self.bottom(dense)
        rows = [table(ids[:, number]) for number, table in enumerate(self.tables)]
        vectors = torch.stack([bottom, *rows], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((bottom, pairs), dim=1)).squeeze(1)


def _mlp(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def main() -> None:
    run = PeerRun.from_command_line(__doc__)
    job, config = run.job, run.job.config.optimizer
    model = PlainDLRM(job).to(run.device)
    if run.onednn:
        use_onednn(model)
    dense_parameters = [*model.bottom.parameters(), *model.top.parameters()]
    optimizers = [
        ROW_OPTIMIZERS[config.rows](model.tables.parameters(), lr=config.row_settings.lr),
        getattr(torch.optim, config.dense)(dense_parameters, lr=config.dense_lr, **config.dense_options),
    ]
    train_and_evaluate(
        run,
        optimizers,
        lambda batch: nn.functional.binary_cross_entropy_with_logits(model(batch.dense, batch.ids), batch.labels),
        lambda batch: model(batch.dense, batch.ids).cpu().numpy(),
    )


if __name__ == "__main__":
    main()
