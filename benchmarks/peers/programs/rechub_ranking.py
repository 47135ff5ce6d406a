"""The ranking models of torch-rechub, one process, on the shards and in the order of a run of bagpipe_hpc.

    python benchmarks/peers/programs/rechub_ranking.py CONFIG.toml data.path=SHARDS model.name=deepfm [...]

`model.name` is that of bagpipe_hpc's model; widths and hidden layers are those of its settings, everything else is what
the package chooses: its first weights, Adam over all weights at `optimizer.dense_lr`, as its trainer has it. The last
line is one JSON object.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from peer_run import Batch, PeerRun, train_and_evaluate
from torch import Tensor, nn
from torch_rechub.basic.features import DenseFeature, SparseFeature
from torch_rechub.models import ranking

from bagpipe_hpc.run.run import Run

_SMALLEST = 1e-7


def wide_deep(dense: list[Any], sparse: list[Any], settings: Any) -> nn.Module:
    """The dense features are the wide part, as in the package's own example."""
    model: nn.Module = ranking.WideDeep(dense, sparse, mlp_params=_mlp(settings.deep_mlp))
    return model


def deepfm(dense: list[Any], sparse: list[Any], settings: Any) -> nn.Module:
    """The dense features go to the MLP alone, as in the package's own example."""
    model: nn.Module = ranking.DeepFM(dense, sparse, mlp_params=_mlp(settings.deep_mlp))
    return model


def dcn(dense: list[Any], sparse: list[Any], settings: Any) -> nn.Module:
    """Cross layers of vectors."""
    model: nn.Module = ranking.DCN([*dense, *sparse], settings.cross_layers, mlp_params=_mlp(settings.deep_mlp))
    return model


def dcn_v2(dense: list[Any], sparse: list[Any], settings: Any) -> nn.Module:
    """Cross layers of whole matrices, beside or below the MLP."""
    model: nn.Module = ranking.DCNv2(
        [*dense, *sparse],
        settings.cross_layers,
        mlp_params=_mlp(settings.deep_mlp),
        model_structure=settings.structure,
        use_low_rank_mixture=False,
    )
    return model


MODELS: dict[str, Callable[[list[Any], list[Any], Any], nn.Module]] = {
    "wide_deep": wide_deep,
    "deepfm": deepfm,
    "dcn": dcn,
    "dcn_v2": dcn_v2,
}


def _mlp(widths: tuple[int, ...]) -> dict[str, Any]:
    return {"dims": list(widths), "dropout": 0.0, "activation": "relu"}


def main() -> None:
    run = PeerRun.from_command_line(__doc__)
    job = run.job
    torch.manual_seed(job.config.train.seed)
    model = _build(job)
    optimizer = torch.optim.Adam(model.parameters(), lr=job.config.optimizer.dense_lr)
    train_and_evaluate(
        run,
        [optimizer],
        lambda batch: nn.functional.binary_cross_entropy(model.train()(_inputs(batch)), batch.labels),
        lambda batch: _logits(model.eval()(_inputs(batch))),
    )


def _build(job: Run) -> nn.Module:
    width = job.config.model.embedding_dim
    dense = [DenseFeature(f"I{number}") for number in range(job.manifest.dense_features)]
    sparse = [
        SparseFeature(f"C{number}", vocab_size=rows, embed_dim=width)
        for number, rows in enumerate(job.manifest.table_rows)
    ]
    return MODELS[job.config.model.name](dense, sparse, job.config.model.settings)


def _inputs(batch: Batch) -> dict[str, Tensor]:
    dense = {f"I{number}": column for number, column in enumerate(batch.dense.unbind(1))}
    return dense | {f"C{number}": column for number, column in enumerate(batch.ids.unbind(1))}


def _logits(chances: Tensor) -> np.ndarray:
    kept = chances.double().clamp(_SMALLEST, 1 - _SMALLEST)
    logits: np.ndarray = torch.log(kept / (1 - kept)).float().numpy()
    return logits


if __name__ == "__main__":
    main()
