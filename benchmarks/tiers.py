"""`python -m benchmarks tiers`: rows between trainers, within a host and to other hosts, by where hot rows are held.

The same look-ups are planned with one home a row, with hot rows at every trainer beside that (FlexShard's tier A), and
with all three tiers. Nothing is trained: rows are counted in plans, and runs move those.

Legend: `T` trainers on `H` hosts of as many each.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.plan.batch_plan import BatchPlan
from bagpipe_hpc.planning.segment_planner import plan_segment
from bagpipe_hpc.preparation.prepare import prepare_run
from bagpipe_hpc.preparation.window_choice import choose_window
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.inspection.access_counts import save_statistics
from bagpipe_hpc.tools.placement.place import place_tables
from bagpipe_hpc.tools.report import Report
from benchmarks.jobs.workload import WORKLOADS
from benchmarks.step.benchmark import FOLDER

WAYS: dict[str, list[str] | None] = {
    "one home a row": None,
    "tiers A and C": ["tables.once_a_host=false"],
    "tiers A, B and C": ["tables.once_a_host=true"],
}
"""Settings of the plan of rows; None: there is none."""
_GENERATED_STEPS = 20


@dataclass(frozen=True)
class Counted:
    """Rows that a trainer sends for a batch, a mean over trainers and batches.

    Attributes:
        within: to others of its host: copies, gradients, and shares of sums that all trainers make.
        between: to other hosts: the same, and what goes from host to host of sums of rows that are held once a host.
        fetched: that it gets from servers.
    """

    within: float
    between: float
    fetched: float


def run(arguments: argparse.Namespace) -> Report:
    """Count; see `command` for the arguments."""
    report = Report("tiers")
    workload = WORKLOADS["quickstart"]
    shards = arguments.shards or workload.shards(FOLDER, _GENERATED_STEPS, arguments.batch_size)
    settings = [f"data.path={shards}", f"train.batch_size={arguments.batch_size}", "train.epochs=1"]
    settings += [f"lookahead.batches={arguments.lookahead}", "lookahead.group=0", "data.verify=quick"]
    cells = {
        way: count_way(workload.config_file, settings, more, arguments.trainers, arguments.hosts, arguments.fast_gb)
        for way, more in WAYS.items()
    }
    report.figures |= {"shards": arguments.shards is not None, "trainers": arguments.trainers}
    report.figures |= {"hosts": arguments.hosts, "fast_gb": arguments.fast_gb}
    report.figures |= {"cells": {way: vars(cell) for way, cell in cells.items()}}
    report.table(
        f"rows that a trainer sends for a batch of {arguments.batch_size:,}, T = {arguments.trainers}, "
        f"H = {arguments.hosts}, {arguments.fast_gb} GB of hot rows each",
        ["", "within its host", "to other hosts", "fetched"],
        [[way, *(f"{value:,.0f}" for value in vars(cell).values())] for way, cell in cells.items()],
    )
    return report


def count_way(
    config_file: Path, settings: Sequence[str], more: Sequence[str] | None, trainers: int, hosts: int, fast_gb: float
) -> Counted:
    """Plan all training batches of a run.

    Args:
        config_file: of the run.
        settings: further ones of all ways.
        more: those of the plan of rows; None where rows have one home.
        trainers: number T.
        hosts: number H.
        fast_gb: `tables.fast_gb`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        own = [*settings, "cache.sharing=home"]
        if more is not None:
            statistics, plan = Path(scratch, "accesses.npz"), Path(scratch, "plan.npz")
            shards = Path(load_config(config_file, settings).data.path)
            save_statistics(shards, load_manifest(shards), statistics)
            own = [*settings, "cache.sharing=tiered", "tables.placement=flexshard", *more]
            own += [f"tables.statistics={statistics}", f"tables.plan={plan}", f"tables.fast_gb={fast_gb}"]
            own += [f"tables.trainers={trainers}", f"tables.trainer_hosts={hosts}"]
            place_tables(load_config(config_file, own), 1, lambda _: None, lambda _: None)
            own += ["policy.name=pinned", f"policy.plan={plan}"]
        run = prepare_run(load_config(config_file, own))
        policy, need = run.policy(trainers), choose_window(run, trainers)
        planner = policy.planner(need.window, need.groups)
        (segment,) = (segment for segment in run.schedule if segment.is_training)
        batches = run.batches(segment)
        return counted_in(list(plan_segment(planner, batches, policy.start_slicing())), hosts)


def counted_in(plans: Sequence[BatchPlan], hosts: int) -> Counted:
    """The means over the plans of a segment; its closing plan comes last and sends nothing."""
    trainers = len(plans[0].trainers)
    host_of = np.arange(trainers) * hosts // trainers
    rows = np.zeros(3)
    for plan in plans:
        summed = plan.shared.now_slots.size + plan.shared.later_slots.size
        for host, part in zip(host_of.tolist(), plan.trainers, strict=True):
            rows[2] += plan.shared.fetch_rows.size + part.fetch_rows.size
            if (exchange := part.exchanged) is None:
                continue
            is_here = host_of == host
            here, elsewhere = int(is_here.sum()) - 1, int((~is_here).sum())
            rows[:2] += 2 * summed / trainers * np.array([here, elsewhere])  # a share to each, and back a share of sums
            counts = exchange.counts
            sent = counts.now_to + counts.later_to + counts.next_to + counts.rest_to
            neighbours = (host > 0) + (host + 1 < hosts)  # a sum goes on to the next host, and its total back
            over_hosts = neighbours * (exchange.hosted.now_rows + exchange.hosted.later_rows)
            rows[:2] += sent[is_here].sum(), sent[~is_here].sum() + over_hosts
    return Counted(*(rows / (trainers * (len(plans) - 1))).tolist())
