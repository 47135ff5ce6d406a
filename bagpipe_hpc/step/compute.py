"""What a trainer and the reference both compute with, made in one place: what they share is the same in both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from bagpipe_hpc.cache.frozen_rows import FrozenRows
from bagpipe_hpc.cache.row_cache import RowCache
from bagpipe_hpc.cache.row_decay import RowDecay
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels.dense.finite import finite_kernel
from bagpipe_hpc.kernels.dense.finite_notes import finite_notes
from bagpipe_hpc.kernels.device import Device
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.models.build import build_model
from bagpipe_hpc.models.dropout import DropoutMasks
from bagpipe_hpc.models.layers.layer_weights import LayerWeights
from bagpipe_hpc.models.optimizer.dense_optimizer import dense_optimizer
from bagpipe_hpc.models.optimizer.dense_rate import DenseRate
from bagpipe_hpc.models.optimizer.gradient_clipping import clip_dense
from bagpipe_hpc.planning.slots import CacheSlots
from bagpipe_hpc.rows.optimizers.build import build_row_optimizer
from bagpipe_hpc.rows.optimizers.contract import RowOptimizer
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.run.start.dense_start import load_dense
from bagpipe_hpc.step.compute_setup import arithmetic_of, model_kernels, row_threads, use_deterministic_algorithms
from bagpipe_hpc.step.divergence import DivergenceWatch, note_kinds
from bagpipe_hpc.storage.checkpoints.manifest import Arithmetic

_CURE = "smaller optimizer.rows_lr and optimizer.dense_lr"
_OVERFLOW_CURE = ", or with train.row_sums=bfloat16: what is too large for float16 becomes infinite on its way"


@dataclass(frozen=True)
class ComputeParts:
    """Rows, model and optimizers of a rank that computes.

    Attributes:
        caches: rows on the device, of each group of tables; empty.
        row_names: say for each group how users know one of its rows.
        frozen_rows: of each group, the rows that updates pass over; None for none.
        row_optimizer: updates the rows.
        model: dense half, with its first weights or those of the checkpoint that the run goes on from.
        weights: all of the model, also those that are frozen: a loop of one's own may freeze them for a while.
        modules: all of the model, as it was made.
        dropout: draws the masks of its `Dropout` modules.
        dense_optimizer: updates its weights; its state is the checkpoint's too.
        dense_rate: sets its learning rate before each step.
        divergence: looks at every loss, updated row and dense weight.
        arithmetic: on what the last bits of results depend.
        row_decay: of the weights of rows; None for none.
        rows_clip_norm: `optimizer.rows_clip_norm`.
        dense_clip_norm: `optimizer.dense_clip_norm`.
        layer_weights: hears which weights layers read, and whose gradients come last; None for nobody.
    """

    caches: tuple[RowCache, ...]
    row_names: tuple[Callable[[int], str], ...]
    frozen_rows: tuple[FrozenRows | None, ...]
    row_optimizer: RowOptimizer
    model: nn.Module
    weights: tuple[nn.Parameter, ...]
    modules: tuple[nn.Module, ...]
    dropout: DropoutMasks
    dense_optimizer: Optimizer
    dense_rate: DenseRate
    divergence: DivergenceWatch
    arithmetic: Arithmetic
    row_decay: RowDecay | None
    rows_clip_norm: float
    dense_clip_norm: float
    layer_weights: LayerWeights | None = None

    @classmethod
    def of(
        cls,
        run: Run,
        device: torch.device,
        slots: Sequence[CacheSlots],
        slices: int,
        *,
        holds_all_rows: bool = False,
        layer_weights: LayerWeights | None = None,
    ) -> "ComputeParts":
        """Make the parts, after `start_threads` and with `kernels.linear` settled.

        Args:
            run: the settings and sizes of model and optimizer.
            device: where the rank computes.
            slots: of the cache of each group of tables.
            slices: of a batch: the number of trainers, or what the reference sums over.
            holds_all_rows: every row has the slot of its number.
            layer_weights: hears which weights layers read; None for nobody.
        """
        config = run.config
        is_cpu = device.type == "cpu"
        if config.train.deterministic and not is_cpu:
            use_deterministic_algorithms()
        threads = row_threads(config)
        operations = row_operations(config.kernels.backend, device, threads)
        caches = tuple(
            RowCache(own.total, group.record, operations, device, holds_all=holds_all_rows, reserved=own.reserved_slots)
            for own, group in zip(slots, run.groups, strict=True)
        )
        kernels = model_kernels(config, device, layer_weights=layer_weights)
        model = build_model(config.model, run.model_facts, kernels).to(device)
        optimizer = dense_optimizer(config.optimizer, model.parameters())
        load_dense(run, model, optimizer)
        row_names = tuple(group.tables.row_name for group in run.groups)
        divergence = DivergenceWatch(
            caches,
            model,
            optimizer,
            finite_kernel(config.kernels.backend, device, threads),
            None if is_cpu else finite_notes(config.kernels.backend, device, note_kinds(len(caches))),
            row_names=row_names,
            advice=partial(divergence_advice, run),
        )
        row_optimizer = build_row_optimizer(config.optimizer, config.rows_rate)
        dense_rate = DenseRate(optimizer, config.optimizer.dense_lr, config.dense_rate)
        arithmetic = arithmetic_of(config, device, slices)
        return cls(
            caches=caches,
            row_names=row_names,
            frozen_rows=tuple(FrozenRows.of(run.frozen_tables, group.tables.tables, device) for group in run.groups),
            row_optimizer=row_optimizer,
            model=model,
            weights=tuple(model.parameters()),
            modules=tuple(model.modules()),
            dropout=DropoutMasks(model, config.train.seed),
            dense_optimizer=optimizer,
            dense_rate=dense_rate,
            divergence=divergence,
            arithmetic=arithmetic,
            row_decay=RowDecay.of(config.optimizer),
            rows_clip_norm=config.optimizer.rows_clip_norm,
            dense_clip_norm=config.optimizer.dense_clip_norm,
            layer_weights=layer_weights,
        )

    def begin_pass(self, step: int, samples: Callable[[], NDArray[np.int64]]) -> None:
        """Put the model into training mode, and draw the masks of its pass.

        Args:
            step: number of the step, from 1.
            samples: gives the numbers of the pass's samples in the global batch, `[n]`; not asked without masks.
        """
        if not all(module.training for module in self.modules):
            self.model.train()
        if self.dropout:
            self.dropout.begin(step, self.device.to_device(samples()))

    def clear_gradients(self) -> None:
        """Let all gradients of weights go. An optimizer's `zero_grad` takes eight times as long."""
        for weight in self.weights:
            weight.grad = None

    def require_own_weights(self) -> None:
        """See that the model has the weights that it was made with: these are summed and updated, and no others.

        Raises:
            ConfigError: a training loop, or a forward pass, has put others in their place, or changed their type.
        """
        weights, known = dict(self.model.named_parameters()), {id(weight) for weight in self.weights}
        wrong = [name for name, own in weights.items() if id(own) not in known or own.dtype != torch.float32]
        if wrong or len(weights) < len(known):
            what = f"{wrong[0]} is new, or of another type" if wrong else f"it has {len(weights)} of {len(known)}"
            raise ConfigError(
                f"the model has other weights than it was made with: {what}, and would not be trained; make layers in "
                "its __init__, and change weights in place (load_state_dict, copy_)"
            )

    @property
    def device(self) -> Device:
        """Where all is."""
        return self.caches[0].device

    def update_rows(self, group: int, slots: Tensor, gradients: Tensor, step: int) -> None:
        """Update distinct rows of a group by the sums of their gradients over the batch.

        Args:
            group: of tables, from 0.
            slots: of the rows, int32 `[N]`.
            gradients: of the global-batch mean loss, float32 `[N, D]`.
            step: number of the training step, from 1.
        """
        if frozen := self.frozen_rows[group]:
            changes = frozen.change(self.caches[group].rows_in(slots))
            slots, gradients = slots[changes], gradients[changes]
        self.caches[group].update(self.row_optimizer, slots, gradients, step, self.rows_clip_norm, self.row_decay)
        self.divergence.see_rows(step, slots, group)

    def update_dense(self, step: int) -> None:
        """Update the dense weights in a step, whose gradients hold their sums over the batch."""
        if self.dense_clip_norm:
            clip_dense(self.model.parameters(), self.dense_clip_norm)
        self.step_dense(step)
        self.divergence.see_dense(step)

    def step_dense(self, step: int) -> None:
        """Update the dense weights that have a gradient, unclipped and unseen."""
        self.dense_rate.set(step)
        self.dense_optimizer.step()

    def rates(self, step: int) -> dict[str, float]:
        """The learning rates of a step, by the names that they have in the metrics."""
        rates = {"dense_lr": self.dense_rate.of(step)}
        if hasattr(self.row_optimizer.settings, "lr"):
            rates["rows_lr"] = self.row_optimizer.rate(step)
        return rates


def divergence_advice(run: Run) -> str:
    """What to do where numbers of a run are not finite: those of its checkpoints, whose newest one is named, all are.

    What a run scores is such a checkpoint, so that the reason is in the rows, or in how it computes.
    """
    if not run.trains:
        return (
            "All weights are finite: look for numbers in the rows that those of the training did not have, or score "
            "with model.precision=float32"
        )
    newest = run.newest_checkpoint()
    last_good = f"The last good checkpoint is {newest}" if newest else "There is no checkpoint yet"
    overflow = _OVERFLOW_CURE if run.config.train.row_sums == "float16" else ""
    return f"{last_good}; start anew with {_CURE}{overflow}"
