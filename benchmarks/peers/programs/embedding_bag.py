"""Any model of bagpipe_hpc over `nn.EmbeddingBag` in plain PyTorch, one process: same data, order and first weights.

    python benchmarks/peers/programs/embedding_bag.py CONFIG.toml data.path=SHARDS model.name=deepfm [...]

For features with one id a sample; row optimizers are those of `torch.optim` that take sparse gradients. The last line
is one JSON object.
"""

from typing import Any

import torch
from first_weights import fill_table
from peer_run import PeerRun, train_and_evaluate
from torch import Tensor, nn

from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.embeddings import Embeddings
from bagpipe_hpc.models.loss import click_loss
from bagpipe_hpc.run.run import Run

ROW_OPTIMIZERS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.SparseAdam,
}
"""Those of `optimizer.rows` that take sparse gradients."""


class WithTables(nn.Module):
    """A model and its tables.

    Legend: `n` samples, `N` dense features, `F` sparse features.
    """

    def __init__(self, job: Run) -> None:
        super().__init__()
        self._features = job.model_facts.features
        width = job.config.model.embedding_dim
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum", sparse=True, _weight=torch.empty(rows, width))
            for rows in job.manifest.table_rows
        )
        for number, table in enumerate(self.tables):
            fill_table(table.weight, job, number)
        self.model = build_model(job.config.model, job.model_facts)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Logits float32 `[n]` from float32 `[n, N]` and int64 `[n, F]`."""
        vectors = [table(ids[:, number : number + 1]) for number, table in enumerate(self.tables)]
        logits: Tensor = self.model(dense, Embeddings.of_stacked(self._features, torch.stack(vectors, dim=1)))
        return logits


def main() -> None:
    run = PeerRun.from_command_line(__doc__)
    job, config = run.job, run.job.config.optimizer
    model = WithTables(job)
    settings = config.row_settings
    of_adam = {"betas": settings.betas, "eps": settings.eps} if config.rows == "adam" else {}
    optimizers = [
        ROW_OPTIMIZERS[config.rows](list(model.tables.parameters()), lr=settings.lr, **of_adam),
        getattr(torch.optim, config.dense)(model.model.parameters(), lr=config.dense_lr, **config.dense_options),
    ]
    train_and_evaluate(
        run,
        optimizers,
        lambda batch: click_loss(model(batch.dense, batch.ids), batch.labels, len(batch.labels)),
        lambda batch: model(batch.dense, batch.ids).numpy(),
    )


if __name__ == "__main__":
    main()
