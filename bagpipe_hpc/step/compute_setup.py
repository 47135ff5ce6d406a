"""What a rank that computes has to compute with: its device, its threads, and the code for it."""

import logging
import os
from collections.abc import Sequence

import torch

from bagpipe_hpc.cluster.core_share import threads_each
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.sections.train import LATE
from bagpipe_hpc.errors import CapacityError, ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.rows import native
from bagpipe_hpc.models.build import layers_tell, takes_kernels
from bagpipe_hpc.models.contract import ModelKernels
from bagpipe_hpc.models.layers.interaction import choose_interaction
from bagpipe_hpc.models.layers.layer_weights import LayerWeights
from bagpipe_hpc.models.layers.linear import (
    LinearLayer,
    bfloat16_linear,
    blas_linear,
    check_bfloat16,
    check_implementation,
    linear_kernels,
    onednn_linear,
    torch_linear,
    usable_implementations,
)
from bagpipe_hpc.models.optimizer.dense_rate import require_rate_followed
from bagpipe_hpc.models.optimizer.trial import state_numbers
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic
from bagpipe_hpc.terminal import counted

log = logging.getLogger(__name__)


def has_gpu(number: int = 0) -> bool:
    """Whether there is a GPU for trainer `number` among those that see the same ones."""
    return torch.cuda.is_available() and number < torch.cuda.device_count()  # the count alone believes the driver


def choose_device(name: str, number: int = 0) -> torch.device:
    """The device that `train.device` means on this rank.

    Args:
        name: `cpu`, `cuda`, or, in a one-rank run, `auto` for a GPU where there is one; others settle it for all.
        number: of this trainer among those that see the same GPUs; each takes one of its own.

    Raises:
        ConfigError: a GPU is asked for and there is none.
    """
    if name == "cpu":
        return torch.device("cpu")
    if has_gpu(number):
        return torch.device("cuda", number)
    if name == "auto":
        return torch.device("cpu")
    raise ConfigError(
        f"train.device = 'cuda': torch sees {counted(torch.cuda.device_count(), 'GPU')} here, and this is trainer "
        f"{number} of those that see them; use cpu or auto, or start where each trainer has a GPU"
    )


def check_gpu_memory(device: torch.device, cache_rows: int, cache_bytes: int, dense_bytes: int) -> None:
    """See that a GPU has room for a row cache and the dense half.

    Args:
        device: the GPU.
        cache_rows: slots of the cache.
        cache_bytes: of all of them.
        dense_bytes: weights, gradients, optimizer and what a step computes.

    Raises:
        CapacityError: it has not.
    """
    free_bytes, _ = torch.cuda.mem_get_info(device)
    if cache_bytes + dense_bytes > free_bytes:
        raise CapacityError(
            f"a cache of {cache_rows} rows takes {cache_bytes / 1e6:.0f} MB and the dense model with a step "
            f"{dense_bytes / 1e6:.0f} MB, but {device} has {free_bytes / 1e6:.0f} MB free: set a smaller cache.rows, "
            "lookahead.batches or train.batch_size, or a smaller model ([model])"
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
    """See that there is a model, a dense optimizer, and the native code which the configuration asks for.

    Raises:
        ConfigError: one of them is absent, or the model or the dense optimizer has no use for what is set.
    """
    if not takes_kernels(config.model):
        _require_no_kernels(config)
    check_implementation(config.kernels.linear, device)
    if config.model.precision == "bfloat16":
        check_bfloat16(device)
    if config.kernels.backend == "native":
        on_cpu = ("finite", "interaction", "layer_outputs", "output_gradient", native.LIBRARY)
        for library in on_cpu if device.type == "cpu" else ("cuda",):
            shared_library.load(library)
    state_numbers(config.optimizer)
    require_rate_followed(config.optimizer, config.dense_rate)


def _require_no_kernels(config: Config) -> None:
    """See that nothing is asked of the layers of a model that computes them itself."""
    linear = config.kernels.linear
    if linear not in ("auto", "torch"):
        raise ConfigError(
            f"kernels.linear = {linear!r}: model.name = {config.model.name!r} computes its layers in its own way; "
            "use auto or torch, or give it use_kernels (docs/extending.md)"
        )


def start_threads(threads: int, trainers: Sequence[tuple[int, frozenset[int]]]) -> None:
    """Give torch its threads, whatever `OMP_NUM_THREADS` says.

    Args:
        threads: `train.threads`.
        trainers: all that compute, as for `threads_each`.
    """
    torch.set_num_threads(threads or threads_each(trainers))
    log.info("%s (train.threads = %d)", counted(torch.get_num_threads(), "thread"), threads)


def arithmetic_of(config: Config, device: torch.device, trainers: int) -> Arithmetic:
    """On what the last bits of this run's results depend; after `start_threads`.

    Args:
        config: of the run, `kernels.linear` settled.
        device: where its trainers compute.
        trainers: their number; slices in a one-rank run.
    """
    linear = "torch" if config.model.precision == "bfloat16" else config.kernels.linear
    return Arithmetic(trainers, linear, device.type, torch.get_num_threads())


def row_threads(config: Config) -> int:
    """CPU threads of a rank's row operations; after `start_threads`."""
    return config.kernels.row_threads or torch.get_num_threads()


def model_kernels(
    config: Config, device: torch.device, linear: str = "", layer_weights: LayerWeights | None = None
) -> ModelKernels:
    """What computes the layers of a model that takes its kernels from others.

    Args:
        config: of the run.
        device: where they are computed.
        linear: in place of `kernels.linear`; else that is settled (`step/dense/linear_choice.py`).
        layer_weights: hears which weights layers read, where they are computed natively; None for nobody.

    Raises:
        ConfigError: native code is asked for and was not built or does not load.
    """
    backend = config.kernels.backend
    layer: LinearLayer = torch_linear
    if config.model.precision == "bfloat16":
        layer = bfloat16_linear
    elif device.type == "cpu":
        make = onednn_linear if (linear or config.kernels.linear) == "onednn" else blas_linear
        layer = make(linear_kernels(backend), layer_weights)
    return ModelKernels(layer, choose_interaction(backend, device))


def layer_weights_of(config: Config, device: torch.device, trainers: int, *, side_by_side: bool) -> LayerWeights | None:
    """What hears from layers before they read their weights, and may put off gradients of these; None for nobody.

    One trainer has nobody to wait for. Layers that say so are native ones alone: on CPUs, in float32, of models that
    take their layers from others. Elsewhere `train.weight_gradients = late` has no effect, which is said.

    Args:
        config: of the run.
        device: where the trainers compute.
        trainers: their number.
        side_by_side: whether sums of dense gradients pass side by side (`DenseSums`). Of those that come one after the
            other the first layers' is the last: unless gradients are late, all are there when the first layer asks.
    """
    if trainers == 1:
        return None
    if device.type == "cpu" and layers_tell(config.model):
        return LayerWeights() if side_by_side or config.train.share_of_late_weights else None
    if config.train.weight_gradients == LATE:
        name, precision = config.model.name, config.model.precision
        log.info("train.weight_gradients = late: without effect on layers of %s on %s in %s", name, device, precision)
    return None


def usable_linear(config: Config, device: torch.device) -> tuple[str, ...]:
    """Values of `kernels.linear` that a rank can offer for its model; none where that computes its layers itself."""
    return usable_implementations(device) if takes_kernels(config.model) else ()
