"""Parts of a running job that fail, fall silent or compute nonsense: the job ends, and says why."""

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray

from bagpipe_hpc.mpi.rows.window import RowWindow
from bagpipe_hpc.roles import embedding_server, plan_sources
from bagpipe_hpc.rows.disk.store import DiskStore
from bagpipe_hpc.rows.store import Places
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.compute import ComputeParts
from bagpipe_hpc.step.train_step import TrainStep
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.checkpoints.writer import CheckpointWriter

Patch = Callable[[object, str, object], None]
"""Puts a value in the place of an object's attribute."""
Breakage = Callable[[Patch], None]


def fail_in_last_rank(target: type, method: str) -> Breakage:
    """The last trainer raises in its fifth call of a method."""

    def install(patch: Patch) -> None:
        original = getattr(target, method)
        calls = 0

        def failing(self: object, *arguments: object, **keywords: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 5 and MPI.COMM_WORLD.Get_rank() == MPI.COMM_WORLD.Get_size() - 1:
                raise RuntimeError("planted failure")
            return original(self, *arguments, **keywords)

        patch(target, method, failing)

    return install


def run_out_of_memory_in_a_server(patch: Patch) -> None:
    """The second server fails while it fills its tables."""
    fill = embedding_server.fill_partition

    def failing(*arguments: object) -> None:
        if arguments[-1] == 1:
            raise MemoryError("planted failure")
        fill(*arguments)  # type: ignore[arg-type]

    patch(embedding_server, "fill_partition", failing)


def fail_in_the_oracle(patch: Patch) -> None:
    """The oracle fails while it plans."""

    def failing(*_: object, **__: object) -> None:
        raise OSError("planted failure")

    patch(plan_sources, "plan_segment", failing)


def stop_the_last_trainer(step: int, silence_s: Callable[[], float]) -> Breakage:
    """The last trainer falls silent in one of its steps, as if it had been stopped."""

    def install(patch: Patch) -> None:
        finish = TrainStep.finish
        calls = 0

        def sleeping(self: TrainStep, *arguments: object) -> None:
            nonlocal calls
            calls += 1
            if calls == step and MPI.COMM_WORLD.Get_rank() == MPI.COMM_WORLD.Get_size() - 1:
                time.sleep(silence_s())
            finish(self, *arguments)  # type: ignore[arg-type]

        patch(TrainStep, "finish", sleeping)

    return install


def drift_in_the_second_trainer(patch: Patch) -> None:
    """The last but one rank changes a bit of a dense weight in every step."""
    finish = TrainStep.finish

    def drifting(self: TrainStep, *arguments: object) -> None:
        finish(self, *arguments)  # type: ignore[arg-type]
        weight = list(self._model.parameters())[1].detach()
        weight[3] = torch.nextafter(weight[3], weight[3] + 1)

    if MPI.COMM_WORLD.Get_rank() == MPI.COMM_WORLD.Get_size() - 2:
        patch(TrainStep, "finish", drifting)


def make_a_weight_infinite(patch: Patch) -> None:
    """The update of step 3 makes a bias of the last layer infinite."""
    step_dense = ComputeParts.step_dense

    def overflowing(self: ComputeParts, step: int) -> None:
        step_dense(self, step)
        if step == 3:
            list(self.model.parameters())[-1].detach().fill_(torch.inf)

    patch(ComputeParts, "step_dense", overflowing)


def save_slowly(seconds: float, more_s: float) -> Breakage:
    """A checkpoint takes so many seconds, where servers may take `more_s` longer than `train.timeout_s`, as for large
    tables; of rows on disk, which are read at a steady rate, as well as of those in memory."""

    def install(patch: Patch) -> None:
        read_snapshot, write_rows = DiskStore.read_snapshot, CheckpointWriter.write_rows

        def read_slowly(self: DiskStore, places: Places) -> NDArray[np.float32]:
            parts = []
            for part in np.array_split(np.asarray(places), 50):
                time.sleep(seconds * len(part) / self.shape[0])
                parts.append(read_snapshot(self, part))
            return np.concatenate(parts)

        def write_slowly(self: CheckpointWriter, *arguments: Any, **keywords: Any) -> FileInfo:
            if isinstance(arguments[2], np.ndarray):
                time.sleep(seconds)
            return write_rows(self, *arguments, **keywords)

        patch(DiskStore, "read_snapshot", read_slowly)
        patch(CheckpointWriter, "write_rows", write_slowly)
        patch(Run, "fill_timeout_s", lambda run, _: run.config.train.timeout_s + more_s)

    return install


FAULTS: dict[str, Breakage] = {
    "trainer fails in a step": fail_in_last_rank(TrainStep, "finish"),
    "mover fails in a fetch": fail_in_last_rank(RowWindow, "start_get"),
    "server runs out of memory": run_out_of_memory_in_a_server,
    "oracle fails": fail_in_the_oracle,
    "trainer falls silent": stop_the_last_trainer(5, lambda: float(os.environ["TEST_SILENCE_S"])),
    "trainer stands still": stop_the_last_trainer(10, lambda: 3600.0),
    "dense weights drift": drift_in_the_second_trainer,
    "a dense weight is infinite": make_a_weight_infinite,
    "checkpoints are slow": save_slowly(seconds=9.0, more_s=10.0),
}
