"""DLRM as TorchRec trains it on CPUs: its own model, tables sharded table-wise, its pipelined trainer, gloo.

    cd benchmarks/peers/programs
    .../build/peers-venv/bin/torchrun --standalone --nproc-per-node 2 torchrec_trainer.py CONFIG.toml ...
    MASTER_ADDR=... MASTER_PORT=... mpirun -n 2 .../build/peers-venv/bin/python torchrec_trainer.py CONFIG.toml ...

Started without either, one rank runs alone. On hosts with several networks GLOO_SOCKET_IFNAME names the one to use.
Everything that the configuration does not set is TorchRec's default: its planner places the tables, FBGEMM's fused
optimizers update the rows. The last line of rank 0 is one JSON object.
"""

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial

import torch
import torch.distributed as dist
from first_weights import dense_weights, fill_table, in_torchrec_order
from onednn_linear import use_onednn
from peer_run import (
    Batch,
    PeerRun,
    StepClock,
    TimedBatches,
    evaluation,
    evaluation_batches,
    print_result,
    training_batches,
)
from torch import Tensor, nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.datasets.utils import Batch as TorchRecBatch
from torchrec.distributed import DistributedModelParallel, TrainPipelineSparseDist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.types import ShardingType
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter

from bagpipe_hpc.config.schema import OptimizerConfig
from bagpipe_hpc.run.run import Run

CPU = torch.device("cpu")
RANK_VARIABLES = {
    "RANK": ("PMI_RANK", "OMPI_COMM_WORLD_RANK"),
    "WORLD_SIZE": ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"),
}
"""What torch.distributed calls a rank's number and the number of ranks, and what MPICH and Open MPI call them."""


def torchrec_batches(job: Run, batches: Iterator[Batch]) -> Iterator[TorchRecBatch]:
    """The same batches as TorchRec takes them: ids table by table, one for each look-up."""
    names = [table.name for table in job.manifest.tables]
    for batch in batches:
        ids = batch.ids.t().contiguous().reshape(-1)
        lengths = torch.ones(ids.numel(), dtype=torch.int32)
        yield TorchRecBatch(batch.dense, KeyedJaggedTensor(keys=names, values=ids, lengths=lengths), batch.labels)


def untrained_model(job: Run) -> DLRMTrain:
    """TorchRec's DLRM with the run's first dense weights; the tables are filled where they end up."""
    model, tables = job.config.model, job.manifest.tables
    configs = [
        EmbeddingBagConfig(
            name=table.name,
            feature_names=[table.name],
            num_embeddings=table.rows,
            embedding_dim=model.embedding_dim,
            init_fn=partial(fill_table, job=job, table=number),
        )
        for number, table in enumerate(tables)
    ]
    dlrm = DLRM(
        EmbeddingBagCollection(configs, device=torch.device("meta")),
        dense_in_features=job.manifest.dense_features,
        dense_arch_layer_sizes=[*model.settings.bottom_mlp, model.embedding_dim],
        over_arch_layer_sizes=[*model.settings.top_mlp, 1],
        dense_device=CPU,
    )
    values = dense_weights(job)
    first_top = values["top.0.weight"]
    first_top[:] = in_torchrec_order(first_top, model.embedding_dim, len(tables) + 1)
    for half, prefix in ((dlrm.dense_arch, "bottom"), (dlrm.over_arch, "top")):
        own = [value for name, value in values.items() if name.startswith(prefix)]
        for parameter, value in zip(half.parameters(), own, strict=True):
            parameter.data.copy_(value)
    return DLRMTrain(dlrm)


def shard(model: DLRMTrain, job: Run, config: OptimizerConfig) -> DistributedModelParallel:
    """Tables table-wise over the ranks, their optimizer fused into the backward pass; the dense half replicated."""
    optimizer = {"sgd": torch.optim.SGD, "rowwise_adagrad": RowWiseAdagrad}[config.rows]
    apply_optimizer_in_backward(optimizer, model.model.sparse_arch.parameters(), asdict(config.row_settings))
    constraint = ParameterConstraints(sharding_types=[ShardingType.TABLE_WISE.value])
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=dist.get_world_size(), compute_device="cpu"),
        batch_size=job.config.train.batch_size // dist.get_world_size(),
        constraints={table.name: constraint for table in job.manifest.tables},
        debug=False,
    )
    sharders = [EmbeddingBagCollectionSharder()]
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    return DistributedModelParallel(model, device=CPU, plan=plan, sharders=sharders)


def join_ranks() -> None:
    """Start torch.distributed among the ranks that torchrun or mpirun started."""
    for name, launchers_names in RANK_VARIABLES.items():
        given = [os.environ[own] for own in launchers_names if own in os.environ]
        os.environ.setdefault(name, *given[:1] or ["1" if name == "WORLD_SIZE" else "0"])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "0")  # any: nobody else has to know it where a rank is alone
    dist.init_process_group("gloo")


def mean_over_ranks(values: list[float]) -> list[float]:
    """The mean of each number over all ranks, whose slices are equally large. Collective over: all ranks."""
    total = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(total)
    return (total / dist.get_world_size()).tolist()


@torch.no_grad()
def evaluate(model: nn.Module, job: Run) -> dict[str, object]:
    """AUC and log loss over the test rows, from the slices of all ranks. Collective over: all ranks."""
    model.eval()
    labels, logits = [], []
    for batch in torchrec_batches(job, evaluation_batches(job, dist.get_rank(), dist.get_world_size())):
        _, (_, own_logits, own_labels) = model(batch)
        parts: list[tuple[Tensor, Tensor]] = [(own_labels, own_logits)] * dist.get_world_size()
        dist.all_gather_object(parts, (own_labels, own_logits))
        labels += [part.numpy() for part, _ in parts]
        logits += [part.numpy() for _, part in parts]
    return evaluation(labels, logits)


def main() -> None:
    run = PeerRun.from_command_line(__doc__)
    job, config = run.job, run.job.config.optimizer
    join_ranks()
    untrained = untrained_model(job)
    if run.onednn:
        use_onednn(untrained)
    model = shard(untrained, job, config)
    dense = KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(model.named_parameters())),
        lambda parameters: getattr(torch.optim, config.dense)(parameters, lr=config.dense_lr, **config.dense_options),
    )
    pipeline = TrainPipelineSparseDist(model, CombinedOptimizer([model.fused_optimizer, dense]), CPU)
    batches = TimedBatches(torchrec_batches(job, training_batches(job, dist.get_rank(), dist.get_world_size())))
    clock = StepClock(run if dist.get_rank() == 0 else replace(run, progress=None), batches)
    for _ in range(job.total_steps):
        loss, _, _ = pipeline.progress(batches)
        clock.step_done(loss)
    figures = clock.figures() | {"first_losses": mean_over_ranks(clock.first_losses)}
    figures |= evaluate(pipeline.detach(), job)
    if dist.get_rank() == 0:
        print_result(figures)
    dist.barrier()
    # The interpreter's end now and then aborts ("terminate called"): threads of gloo and of the pipeline still run.
    os._exit(0)


if __name__ == "__main__":
    main()
