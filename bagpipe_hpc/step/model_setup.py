"""Device, row operations and dense model of a rank that computes."""

import logging
import os
from collections.abc import Sequence

import torch

from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.cluster.core_share import threads_each
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.kernels import native, shared_library
from bagpipe_hpc.kernels.finite import finite_kernel
from bagpipe_hpc.kernels.output_gradient import output_gradient_kernel
from bagpipe_hpc.kernels.row_operations import RowOperations, row_operations
from bagpipe_hpc.models.dense_optimizer import state_numbers
from bagpipe_hpc.models.dlrm import DLRM
from bagpipe_hpc.models.interaction import choose_interaction
from bagpipe_hpc.models.linear import (
    LinearLayer,
    bfloat16_linear,
    check_bfloat16,
    check_implementation,
    onednn_linear,
    torch_linear,
)
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.divergence import DivergenceWatch
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic

log = logging.getLogger(__name__)


def choose_device(name: str, number: int = 0) -> torch.device:
    """The device that `train.device` means on this rank.

    Args:
        name: `cpu`, `cuda`, or `auto` for a GPU where there is one.
        number: of this trainer among those that see the same GPUs; each takes one of its own.

    Raises:
        ConfigError: a GPU is asked for and there is none.
    """
    if name == "cpu":
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if number < gpus:
        return torch.device("cuda", number)
    if name == "auto":
        return torch.device("cpu")
    raise ConfigError(
        f"train.device = 'cuda': torch sees {gpus} GPUs here, and this is trainer {number} of those that see them; use "
        "cpu or auto, or start where each trainer has a GPU"
    )


def check_gpu_memory(device: torch.device, cache_rows: int, row_bytes: int, dense_bytes: int) -> None:
    """See that a GPU has room for a row cache and the dense half.

    Args:
        device: the GPU.
        cache_rows: slots of the cache.
        row_bytes: of a slot.
        dense_bytes: weights, gradients, optimizer and what a step computes.

    Raises:
        CapacityError: it has not.
    """
    free_bytes, _ = torch.cuda.mem_get_info(device)
    if cache_rows * row_bytes + dense_bytes > free_bytes:
        raise CapacityError(
            f"a cache of {cache_rows} rows takes {cache_rows * row_bytes / 1e6:.0f} MB and the dense model with a step "
            f"{dense_bytes / 1e6:.0f} MB, but {device} has {free_bytes / 1e6:.0f} MB free: set a smaller cache.rows, "
            "lookahead.batches or train.batch_size, or narrower model.bottom_mlp and model.top_mlp"
        )


def use_deterministic_algorithms() -> None:
    """Let a GPU compute the dense half with the same bits in every run; call it before the GPU's first work.

    torch then takes slower algorithms where the fast ones add in an order that changes, and cuBLAS a workspace without
    which its sums may differ between streams. The row operations have a fixed order anyway.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def check_model_settings(config: Config, device: torch.device) -> None:
    """See that torch has the dense optimizer, and that the native code which the configuration asks for is there.

    Raises:
        ConfigError: one of them does not.
    """
    check_implementation(config.kernels.linear, device)
    if config.model.precision == "bfloat16":
        check_bfloat16(device)
    if config.kernels.backend == "native":
        on_cpu = ("finite", "interaction", "output_gradient", native.LIBRARY)
        for library in on_cpu if device.type == "cpu" else ("cuda",):
            shared_library.load(library)
    state_numbers(config.optimizer)


def start_threads(threads: int, trainers: Sequence[tuple[int, frozenset[int]]]) -> None:
    """Give torch its threads, whatever `OMP_NUM_THREADS` says.

    Args:
        threads: `train.threads`.
        trainers: all that compute, as for `threads_each`.
    """
    torch.set_num_threads(threads or threads_each(trainers))
    log.info("%d threads (train.threads = %d)", torch.get_num_threads(), threads)


def arithmetic_of(config: Config, device: torch.device, trainers: int) -> Arithmetic:
    """On what the last bits of this run's results depend; after `start_threads`.

    Args:
        config: of the run, `kernels.linear` settled.
        device: where its trainers compute.
        trainers: their number; slices in a one-rank run.
    """
    linear = "torch" if config.model.precision == "bfloat16" else config.kernels.linear
    return Arithmetic(trainers, linear, device.type, torch.get_num_threads())


def build_row_operations(config: Config, device: torch.device) -> RowOperations:
    """What carries out the operations on rows."""
    return row_operations(config.kernels.backend, device, config.kernels.row_threads or torch.get_num_threads())


def build_model(run: Run, device: torch.device) -> DLRM:
    """The dense half with its first weights, which depend on the seed alone."""
    model = DLRM(
        run.config.model,
        run.manifest.dense_features,
        len(run.manifest.tables),
        run.config.train.seed,
        linear_layer(run.config),
        choose_interaction(run.config.kernels.backend, device),
    )
    return model.to(device)


def build_divergence_watch(run: Run, cache: RowCache, model: DLRM, optimizer: torch.optim.Optimizer) -> DivergenceWatch:
    """What ends the run when its numbers are no longer finite; on a GPU it takes notes rather than wait for it."""
    device = cache.device.torch_device
    threads = run.config.kernels.row_threads or torch.get_num_threads()
    kernel = finite_kernel(run.config.kernels.backend, device, threads)
    return DivergenceWatch(run, cache, model, optimizer, kernel, defers=device.type != "cpu")


def linear_layer(config: Config) -> LinearLayer:
    """What computes linear layers, where `kernels.linear` is settled (`roles/linear_choice.py`)."""
    if config.model.precision == "bfloat16":
        return bfloat16_linear
    if config.kernels.linear == "onednn":
        return onednn_linear(output_gradient_kernel(config.kernels.backend))
    return torch_linear
