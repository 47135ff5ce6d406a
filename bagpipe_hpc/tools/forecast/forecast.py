"""`bagpipe plan`: what a run would do, and recommended settings, before it starts (docs/plan.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.sections.train import MOVER
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.preparation.saved_plans import require_savable
from bagpipe_hpc.simulation.cluster import Cluster
from bagpipe_hpc.simulation.step_order import StepOrders
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.forecast.advice import Advice, Split, advise_nodes, advise_window, splits_of
from bagpipe_hpc.tools.forecast.pace import Tell
from bagpipe_hpc.tools.forecast.rank_memory import RankMemory
from bagpipe_hpc.tools.forecast.saving import require_folder, save_plans
from bagpipe_hpc.tools.forecast.sweep import Outlook, plan_all
from bagpipe_hpc.tools.forecast.telling import Link, panels_of, tell_all, tell_saved
from bagpipe_hpc.tools.forecast.timing import Timing, time_plans
from bagpipe_hpc.tools.planned_runs import plain_run, require_samples
from bagpipe_hpc.tools.policy_comparison.plot import plot_svg
from bagpipe_hpc.tools.report import Report
from bagpipe_hpc.tools.simulate.compute_time import ComputeTime

_USUAL_TRAINERS = (2,)
_PARTS_OF_WINDOW = (0, 0.25, 0.5, 1, 2, 4)
"""Multiples of `lookahead.batches` that are tried if no windows are given; 0 stands for a single batch."""


@dataclass(frozen=True)
class ForecastRequest:
    """What the command line asks for, in its units.

    Attributes:
        config: file of settings.
        overrides: settings that replace some of the file's.
        trainers: their numbers; None: those for which the nodes have room, or the usual one.
        lookahead: lengths of windows, in batches; None: the setting, and parts and multiples of it.
        batches: to plan of each segment; None for all.
        compute: how long a model computes.
        gbit_per_s: speeds of a node's link.
        latency_us: of a link, one way.
        oracle_us_per_sample: the oracle's time to read and plan a sample.
        server_nodes: nodes that hold servers; 0: all ranks on one node.
        nodes: numbers of nodes for which to recommend servers and trainers; None for none.
        trainers_per_node: most trainers on a node.
        node_gb: free memory of a node, in GB.
        save: folder for the plans; None: they are not kept.
        plot: file for a drawing; None for none.
    """

    config: Path
    overrides: Sequence[str]
    trainers: Sequence[int] | None
    lookahead: Sequence[int] | None
    batches: int | None
    compute: ComputeTime
    gbit_per_s: Sequence[float]
    latency_us: float
    oracle_us_per_sample: float
    server_nodes: int
    nodes: Sequence[int] | None
    trainers_per_node: int
    node_gb: float
    save: Path | None
    plot: Path | None

    def base_cluster(self) -> Cluster:
        """A cluster with the given speeds; its numbers of trainers and server nodes are replaced later."""
        per_sample_s, per_step_s = self.compute.seconds()
        return Cluster(
            trainers=1,
            compute_s_per_sample=per_sample_s,
            compute_s_per_step=per_step_s,
            trainers_per_host=self.trainers_per_node,
            latency_s=self.latency_us * 1e-6,
            plan_s_per_sample=self.oracle_us_per_sample * 1e-6,
        )

    def usual_trainers(self) -> tuple[int, ...]:
        """Trainers to try if none are given: for all given nodes but one, for half of them, for a quarter and so on."""
        if not self.nodes:
            return _USUAL_TRAINERS
        parts = {most >> part for most in self.nodes for part in range(1, most.bit_length())}
        all_but_one = {most - 1 for most in self.nodes} - {0}
        return tuple(number * self.trainers_per_node for number in {1} | parts | all_but_one)

    def lookaheads(self, config: Config) -> list[int]:
        """Windows to try."""
        asked = config.lookahead.batches
        if self.save:
            return [asked]
        return sorted(set(self.lookahead or [max(1, round(part * asked)) for part in _PARTS_OF_WINDOW]))


def forecast(request: ForecastRequest, tell: Tell) -> Report:
    """Plan a run in every way that is asked for, and report what follows.

    Args:
        request: what is asked for.
        tell: called now and then with a line about progress.

    Raises:
        BagpipeError: settings and data do not fit each other, or this host lacks the memory to plan.
    """
    base = request.base_cluster()
    if request.nodes and not base.compute_s_per_sample:
        raise ConfigError(
            "--nodes: how many trainers are best depends on how long they compute; name a measured run with "
            "--calibrate, or the time of a sample with --compute-us-per-sample"
        )
    config = load_config(request.config, request.overrides)
    trainers = sorted(set(request.trainers or request.usual_trainers()))
    require_samples(trainers, config, "--trainers" if request.trainers else "--nodes and --trainers-per-node")
    run = plain_run(config)
    if request.save:
        require_savable(run)
        require_folder(request.save)
    outlooks = plan_all(run, trainers, request.lookaheads(run.config), request.batches or 0, tell)
    orders = StepOrders.of(run.config, run.model_facts)
    train = run.config.train
    base = replace(
        base,
        dense_sums=train.dense_sums,
        has_sums_thread=train.sums_thread != MOVER,
        row_sum_bytes=train.row_sum_bytes,
    )
    judge = _Judge(request, base, outlooks, orders)
    report = Report("plan")
    report.figures |= {"config": str(request.config), "overrides": list(request.overrides)}
    links = [judge.link(gbit_per_s) for gbit_per_s in request.gbit_per_s]
    tell_all(report, run, outlooks, links, orders.by_horovod.dense_weights)
    if request.plot:
        report.files[request.plot] = plot_svg(panels_of(outlooks))
    if request.save:
        tell_saved(report, save_plans(outlooks[0], request.save, tell))
    return report


class _Judge:
    """Predicts times for what was planned, and chooses settings.

    Args:
        request: what is asked for.
        base: a cluster with the given speeds.
        outlooks: what was planned, by trainers, then windows.
        orders: when gradients leave within a step.
    """

    def __init__(self, request: ForecastRequest, base: Cluster, outlooks: list[Outlook], orders: StepOrders) -> None:
        self._request, self._base, self._orders = request, base, orders
        self._outlooks: dict[int, list[Outlook]] = {}
        for one in outlooks:
            self._outlooks.setdefault(one.trainers, []).append(one)

    def link(self, gbit_per_s: float) -> Link:
        """All that follows where hosts have links of this bandwidth."""
        speeds = replace(self._base, bytes_per_s=gbit_per_s * 1e9 / 8)
        server_nodes = self._request.server_nodes
        timings: dict[tuple[int, int], Timing] = {}
        advice: dict[int, Advice] = {}
        chosen: dict[int, Outlook] = {}
        for trainers, outlooks in self._outlooks.items():
            of_windows = {one.lookahead: self._timing(one, speeds, server_nodes) for one in outlooks if one.loads}
            timings |= {(trainers, lookahead): timing for lookahead, timing in of_windows.items()}
            best, advice[trainers] = advise_window(outlooks, of_windows)
            if best:
                chosen[trainers] = best
        servers = max(1, server_nodes)
        memory = {trainers: RankMemory.of(one, servers) for trainers, one in chosen.items()}
        of_nodes = [self._of_nodes(nodes, speeds, chosen, advice) for nodes in self._request.nodes or ()]
        return Link(gbit_per_s, server_nodes, timings, chosen, memory, (*advice.values(), *of_nodes))

    def _of_nodes(self, nodes: int, speeds: Cluster, chosen: dict[int, Outlook], advice: dict[int, Advice]) -> Advice:
        per_node = self._request.trainers_per_node
        ways = splits_of(nodes, list(chosen), per_node)
        splits = []
        for trainers, server_nodes in ways:
            one = chosen[trainers]
            if one.loads:
                prediction = self._timing(one, speeds, server_nodes).prediction
                assert prediction is not None, "with nodes comes a time of compute"
                memory = RankMemory.of(one, max(1, server_nodes))
                splits.append(Split(one, server_nodes, prediction.samples_per_s, memory))
        if ways and not splits:
            return Advice(counted(nodes, "node"), reasons=("no time of a step can be predicted (-)",), nodes=nodes)
        return advise_nodes(nodes, splits, advice, per_node, int(self._request.node_gb * 1e9))

    def _timing(self, one: Outlook, speeds: Cluster, server_nodes: int) -> Timing:
        cluster = replace(speeds, trainers=one.trainers, server_hosts=server_nodes)
        return time_plans(one.loads, one.need.window, cluster, one.run.groups[0].record, self._orders.on(cluster))
