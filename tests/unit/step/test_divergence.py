"""The first number that is not finite ends a run by name: at once, or, where that is deferred, when it is asked for."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bagpipe_hpc.cache.row_cache import NO_ROW, RowCache
from bagpipe_hpc.errors import DivergenceError
from bagpipe_hpc.kernels.dense.finite import finite_kernel
from bagpipe_hpc.kernels.dense.finite_notes import finite_notes
from bagpipe_hpc.kernels.rows.pooling import PoolLayout
from bagpipe_hpc.kernels.rows.row_operations import row_operations
from bagpipe_hpc.rows.groups import table_groups
from bagpipe_hpc.rows.optimizers.contract import StateColumns
from bagpipe_hpc.rows.partition import Tables
from bagpipe_hpc.rows.record import RowRecord
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.step.compute import divergence_advice
from bagpipe_hpc.step.divergence import DivergenceWatch, note_kinds
from bagpipe_hpc.step.ready_batch import LookUps
from bagpipe_hpc.step.slice_bags import DeviceBags
from tests.unit.checkpoint_samples import sample_records, write_checkpoint

CPU = torch.device("cpu")
TABLES = (5, 3, 8)
WIDTH = 4
deferring = pytest.mark.parametrize("defers", [False, True], ids=["at once", "deferred"])


class Watched:
    """A model, its optimizer and a cache in whose slots 0 to 9 lie the rows 12 to 3, watched."""

    def __init__(
        self, output: Path, *, defers: bool = False, dense: str = "SGD", trains: bool = True, frozen: int = 0
    ) -> None:
        tables = tuple(SimpleNamespace(name=f"C{number}") for number in range(1, 4))
        config: Any = SimpleNamespace(train=SimpleNamespace(output=str(output), row_sums="float32"))
        manifest: Any = SimpleNamespace(tables=tables, table_rows=TABLES)
        run = Run(config, manifest, (), trains=trains)
        tables = Tables(TABLES, tuple(table.name for table in manifest.tables))
        (group,) = table_groups(tables, [WIDTH] * len(TABLES))
        record = RowRecord(WIDTH, (StateColumns("sum", per_weight=False),), False)
        self.cache = RowCache(10, record, row_operations("auto", CPU), CPU)
        rows = np.arange(12, 2, -1)
        self.slots = torch.arange(10, dtype=torch.int32)
        self.cache.scatter(self.slots, np.ones((10, record.width), np.float32), rows)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
        for weight in self.model[:frozen].parameters():
            weight.requires_grad_(False)
        self.optimizer = getattr(torch.optim, dense)(self.model.parameters(), lr=0.1)
        self.defers = defers
        kernel, notes = finite_kernel("auto", CPU), finite_notes("auto", CPU, note_kinds(1)) if defers else None
        self.watch = DivergenceWatch(
            [self.cache],
            self.model,
            self.optimizer,
            kernel,
            notes,
            row_names=[group.row_name],
            advice=partial(divergence_advice, run),
        )

    def step(self, step: int, loss: float = 0.5, look_ups: float = 1.0, dense: float = 1.0) -> None:
        """See a whole step with such gradients; rows and weights stay as they are."""
        gradients = torch.ones(20, WIDTH)
        gradients[7] = look_ups
        positions = torch.arange(20, dtype=torch.int32) % 10
        for weight in self.model.parameters():
            weight.grad = torch.full_like(weight, dense) if weight.requires_grad else None
        look_ups = LookUps(self.slots, positions, None, None)
        self.watch.see_loss(step, torch.tensor(loss), {WIDTH: gradients}, [look_ups])
        self.watch.see_rows(step, self.slots[:5])
        self.watch.see_rows(step, self.slots[5:])
        self.watch.see_rows(step, self.slots[:0])
        self.watch.see_dense(step)

    def sound(self) -> None:
        for step in (1, 2):
            self.step(step)
        self.watch.require_finite()

    def end(self, **step: float) -> str:
        """The message in which steps 3 and 4 end."""
        with pytest.raises(DivergenceError) as error:  # noqa: PT012 - either the step raises or the question after it
            self.step(3, **step)
            assert self.defers
            self.step(4, loss=float("nan"))
            self.watch.require_finite()
        return str(error.value)


def test_a_layer_behind_frozen_ones_is_named(tmp_path: Path) -> None:
    run = Watched(tmp_path, frozen=1)
    run.sound()
    assert "the first such gradients are of layer 1.weight" in run.end(loss=float("nan"), dense=float("nan"))


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_is_named_with_the_first_gradients(tmp_path: Path, loss: float) -> None:
    run = Watched(tmp_path)
    run.sound()
    found = run.end(loss=loss, look_ups=float("nan"), dense=float("nan"))
    expected = f"step 3: the loss is {loss}, and the first such gradients are of table C2, row 0 and layer 0.weight"
    assert expected in found
    assert run.end(loss=loss).startswith(
        f"the model has diverged in step 3: the loss is {loss}. There is no checkpoint"
    )


def test_a_deferred_loss_is_named(tmp_path: Path) -> None:
    run = Watched(tmp_path, defers=True)
    run.sound()
    assert "in step 3: the loss is not finite; the gradient of layer 0.weight is not" in run.end(
        loss=float("nan"), dense=float("nan")
    )


@deferring
@pytest.mark.parametrize(("slot", "name"), [(0, "C3, row 4"), (4, "C3, row 0"), (5, "C2, row 2"), (9, "C1, row 3")])
@pytest.mark.parametrize("part", ["weights", "state"])
def test_an_updated_row_is_named(tmp_path: Path, defers: bool, slot: int, name: str, part: str) -> None:
    run = Watched(tmp_path, defers=defers)
    run.sound()
    (run.cache.weights if part == "weights" else run.cache.state[0])[slot, -1] = -torch.inf
    assert f"in step 3: table {name} is not finite after its update" in run.end()


@pytest.mark.parametrize(
    ("bag", "name"),
    [(0, "table C3, row 4"), (2, "table C2, row 1"), (3, "table C3, row 1"), (1, "")],
    ids=["first", "after an empty one", "last", "empty"],
)
def test_a_bag_of_a_wrong_gradient_is_named_by_its_first_row(tmp_path: Path, bag: int, name: str) -> None:
    """Bags of 2, 0, 3 and 1 look-ups; nothing is looked up for the gradient of an empty one."""
    run = Watched(tmp_path)
    positions = torch.tensor([0, 7, 6, 0, 9, 3], dtype=torch.int32)
    starts = torch.tensor([0, 2, 2, 5, 6], dtype=torch.int32)
    outputs = torch.tensor([0, 0, 2, 2, 2, 3], dtype=torch.int32)
    bags = DeviceBags(PoolLayout(starts, outputs, None), (), ())
    gradients = torch.ones(4, WIDTH)
    gradients[bag, 1] = torch.nan
    for weight in run.model.parameters():
        weight.grad = torch.ones_like(weight)
    with pytest.raises(DivergenceError) as error:
        run.watch.see_loss(3, torch.tensor(torch.nan), {WIDTH: gradients}, [LookUps(run.slots, positions, bags, None)])
    told = f"the loss is nan, and the first such gradients are of {name}." if name else "the loss is nan. There"
    assert told in str(error.value)


def test_a_wrong_gradient_is_named_by_the_first_row_that_lives_here(tmp_path: Path) -> None:
    """Slots 5 to 8 have copies of rows of other trainers, who know their numbers."""
    run = Watched(tmp_path)
    run.cache.scatter(run.slots[5:9], np.ones((4, WIDTH + 1), np.float32), np.full(4, NO_ROW))
    for weight in run.model.parameters():
        weight.grad = torch.ones_like(weight)
    for positions, told in (([5, 8, 9, 1], "of table C1, row 3."), ([6, 7, 5], "the loss is nan. There")):
        look_ups = LookUps(run.slots, torch.tensor(positions, dtype=torch.int32), None, None)
        gradients = torch.full((len(positions), WIDTH), torch.nan)
        with pytest.raises(DivergenceError) as error:
            run.watch.see_loss(3, torch.tensor(torch.nan), {WIDTH: gradients}, [look_ups])
        assert told in str(error.value)


class TwoWidths:
    """Tables C1 and C3 with rows of one width, and C2, whose slot k holds row 2 - k, with those of another, watched."""

    def __init__(self, *, defers: bool) -> None:
        groups = table_groups(Tables(TABLES, ("C1", "C2", "C3")), [WIDTH, 2, WIDTH])
        self.caches = []
        for group in groups:
            cache = RowCache(group.total_rows, RowRecord(group.width, (), False), row_operations("auto", CPU), CPU)
            slots = torch.arange(group.total_rows, dtype=torch.int32)
            rows = np.arange(group.total_rows)[::-1].copy()
            cache.scatter(slots, np.ones((group.total_rows, group.width), np.float32), rows)
            self.caches.append(cache)
        model = torch.nn.Linear(3, 1)
        self.watch = DivergenceWatch(
            self.caches,
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            finite_kernel("auto", CPU),
            finite_notes("auto", CPU, note_kinds(2)) if defers else None,
            row_names=[group.row_name for group in groups],
            advice=str,
        )
        self.slots = torch.arange(3, dtype=torch.int32)


def test_a_gradient_of_another_width_is_named() -> None:
    both = TwoWidths(defers=False)
    look_ups = [LookUps(both.slots, torch.tensor([0, 2, 1], dtype=torch.int32), None, None)] * 2
    gradients = {WIDTH: torch.ones(3, WIDTH), 2: torch.ones(3, 2)}
    both.watch.see_loss(1, torch.tensor(0.5), gradients, look_ups)
    gradients[2][1] = torch.inf  # of look-up 1, which reads slot 2
    with pytest.raises(DivergenceError, match="loss is nan, and the first such gradients are of table C2, row 0"):
        both.watch.see_loss(2, torch.tensor(torch.nan), gradients, look_ups)


@deferring
def test_an_updated_row_of_another_width_is_named(defers: bool) -> None:
    both = TwoWidths(defers=defers)
    both.caches[1].weights[2] = torch.nan
    both.watch.see_rows(1, both.slots[:2], group=1)
    both.watch.see_rows(2, both.slots, group=0)
    with pytest.raises(DivergenceError, match="step 2: table C2, row 0 is not finite after"):  # noqa: PT012 - either
        both.watch.see_rows(2, both.slots, group=1)
        both.watch.require_finite()


@deferring
def test_a_dense_gradient_and_a_dense_weight_are_named(tmp_path: Path, defers: bool) -> None:
    run = Watched(tmp_path, defers=defers)
    run.sound()
    assert "in step 3: the gradient of layer 0.weight is not finite" in run.end(dense=float("inf"))
    run = Watched(tmp_path, defers=defers)
    run.sound()
    with torch.no_grad():
        run.model[1].bias.fill_(torch.inf)
    assert "in step 3: layer 1.bias is not finite after its update" in run.end()


def test_the_dense_optimizers_state_is_looked_at_before_it_is_saved(tmp_path: Path) -> None:
    """The square of a large gradient overflows: the weight stays as it is, for good."""
    run = Watched(tmp_path, dense="Adam")
    run.step(1, dense=1e30)
    run.optimizer.step()
    run.watch.see_dense(1)
    with pytest.raises(DivergenceError, match=r"step 1: layer 0\.weight is not finite: 'exp_avg_sq' of the dense opt"):
        run.watch.require_finite_state(1)


def test_finite_predictions_alone_are_evaluated(tmp_path: Path) -> None:
    watch = Watched(tmp_path).watch
    watch.require_finite_predictions(8, np.asarray([0.5, -90.0], np.float32))
    with pytest.raises(DivergenceError, match="step 8: 2 of 3 predictions are not finite"):
        watch.require_finite_predictions(8, np.asarray([np.nan, 0.5, np.inf], np.float32))


def test_who_scores_a_checkpoint_is_not_sent_to_another(tmp_path: Path) -> None:
    """What lies where a training would write by default is of no concern."""
    write_checkpoint(tmp_path, sample_records(TABLES, WIDTH + 1), TABLES, step=100)
    watch = Watched(tmp_path, trains=False).watch
    with pytest.raises(DivergenceError, match="All weights are finite: look for numbers in the rows") as error:
        watch.require_finite_predictions(8, np.asarray([np.nan], np.float32))
    assert "checkpoint" not in str(error.value)
    assert "anew" not in str(error.value)


def test_the_last_good_checkpoint_is_named(tmp_path: Path) -> None:
    for step in (100, 200):
        write_checkpoint(tmp_path, sample_records(TABLES, WIDTH + 1), TABLES, step=step)
    assert f"The last good checkpoint is {tmp_path}/checkpoints/step-00000200; start anew" in Watched(tmp_path).end(
        loss=float("nan")
    )
