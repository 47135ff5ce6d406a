"""What `bagpipe plan` prints: a table of windows for each number of trainers, memory of ranks, settings to paste."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bagpipe_hpc.run.run import Run
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.forecast.advice import Advice
from bagpipe_hpc.tools.forecast.rank_memory import RankMemory
from bagpipe_hpc.tools.forecast.saving import Saved
from bagpipe_hpc.tools.forecast.sweep import Outlook
from bagpipe_hpc.tools.forecast.timing import Timing
from bagpipe_hpc.tools.planned_runs import run_decisions
from bagpipe_hpc.tools.policy_comparison.plot import Panels
from bagpipe_hpc.tools.policy_comparison.traffic import MOVED
from bagpipe_hpc.tools.report import Report
from bagpipe_hpc.tools.text_table import size_text

PIECES = ("tables", "caches", "dense", "planner", "evaluation", "samples", "plans", "rows")
"""Kinds of memory that ranks hold."""


@dataclass(frozen=True)
class Link:
    """What follows from plans where hosts have links of one bandwidth.

    Attributes:
        gbit_per_s: bandwidth, each way.
        server_nodes: server nodes in `timings`.
        timings: predicted times by trainers and window, except where segments are too short.
        chosen: the recommended window, by trainers.
        memory: memory of the ranks with that window, by trainers.
        advice: the recommendations.
    """

    gbit_per_s: float
    server_nodes: int
    timings: Mapping[tuple[int, int], Timing]
    chosen: Mapping[int, Outlook]
    memory: Mapping[int, RankMemory]
    advice: Sequence[Advice]


def tell_all(report: Report, run: Run, outlooks: Sequence[Outlook], links: Sequence[Link], dense_weights: int) -> None:
    """Put everything into a report."""
    config, is_exact = run.config, all(one.need.is_exact for one in outlooks)
    for trainers in dict.fromkeys(one.trainers for one in outlooks):
        own = [one for one in outlooks if one.trainers == trainers]
        report.table(
            f"T = {trainers}, rows {own[0].sharing}: rows a trainer and batch of {config.train.batch_size:,}",
            _headings(links),
            [_row(one, links) for one in own],
        )
    report.lines += ["", *_remarks(run, outlooks, links)]
    for link in links:
        report.lines += [f"recommended, with links of {link.gbit_per_s:g} Gbit/s:"]
        for one in link.advice:
            report.lines += [
                f"  {one.title}: {' '.join(one.settings) or 'nothing'}",
                *(f"    {why}" for why in one.reasons),
            ]
    for trainers, memory in links[0].memory.items():
        title = f"MB of each rank, T = {trainers}, S = {memory.servers}, L = {links[0].chosen[trainers].lookahead}"
        report.table(title, ("rank", "all", *PIECES), _memory_rows(memory))
    report.figures |= {
        "total_rows": run.total_rows,
        "steps": run.total_steps,
        "batch_size": config.train.batch_size,
        "record_bytes": [group.record.bytes for group in run.groups],
        "dense_weights": dense_weights,
        "is_exact": is_exact,
        "outlooks": [_figures(one, links) for one in outlooks],
        "recommended": [asdict(one) | {"gbit_per_s": link.gbit_per_s} for link in links for one in link.advice],
        "memory": [
            asdict(memory, dict_factory=_numbers) | {"trainers": trainers, "gbit_per_s": link.gbit_per_s}
            for link in links
            for trainers, memory in link.memory.items()
        ],
    }


def _numbers(attributes: list[tuple[str, Any]]) -> dict[str, Any]:
    """The entries that are numbers or contain numbers; the others are texts for messages."""
    return {name: value for name, value in attributes if not isinstance(value, bool | str)}


def tell_saved(report: Report, saved: Saved) -> None:
    """Say what was kept, and how a run uses it."""
    report.lines += [
        "",
        f"{saved.directory}: {counted(saved.plans, 'plan')} of {counted(saved.segments, 'segment')}, "
        f"{size_text(saved.bytes)}; train with {counted(saved.trainers, 'trainer')} and train.plans={saved.directory}",
    ]
    report.figures |= {"saved": asdict(saved) | {"directory": str(saved.directory)}}


def panels_of(outlooks: Sequence[Outlook]) -> Panels:
    """What is drawn: a panel for each number of trainers, a bar for each window."""
    panels: dict[str, list[tuple[str, Any]]] = {}
    for one in outlooks:
        panels.setdefault(f"T = {one.trainers}", []).append((f"L = {one.lookahead}", one.traffic))
    return panels


def _memory_rows(memory: RankMemory) -> list[list[str]]:
    def text(size: int) -> str:
        return f"{size / 1e6:,.1f}" if size else ""

    ranks = memory.pieces().items()
    return [[rank, text(sum(own.values())), *(text(own.get(kind, 0)) for kind in PIECES)] for rank, own in ranks]


def _headings(links: Sequence[Link]) -> list[str]:
    known = any(timing.prediction for link in links for timing in link.timings.values())
    of_time = ["ms", "hidden"] if known else ["ms bare", "us hides"]
    of_links = [f"{what} @{link.gbit_per_s:g}" for link in links for what in of_time]
    of_bytes = ["kB in", "out", "server in", "out", "oracle out"]
    return ["L", "hits", "peak rows", "cache", *MOVED.values(), *of_bytes, *of_links]


def _row(one: Outlook, links: Sequence[Link]) -> list[str]:
    traffic, need = one.traffic, one.need
    carried = (one.trainer_link, one.server_link(links[0].server_nodes))
    cache_bytes = sum(
        slots.total * group.record.bytes for slots, group in zip(need.groups, one.run.groups, strict=True)
    )
    return [
        str(one.lookahead),
        f"{traffic.hit_rate:.1%}",
        f"{need.total_rows:,}{'' if one.fits else ' !'}",
        size_text(cache_bytes),
        *(f"{traffic.rows[kind]:,.1f}" for kind in MOVED),
        *(f"{size / 1e3:,.1f}" for link in carried for size in (link.come, link.go)),
        f"{traffic.oracle_bytes / 1e3:,.1f}",
        *(text for link in links for text in _times(link.timings.get((one.trainers, one.lookahead)))),
    ]


def _times(timing: Timing | None) -> tuple[str, str]:
    if timing is None:
        return "-", "-"
    if timing.hidden is None:
        return f"{timing.bare_s * 1e3:.2f}", f"{timing.hiding_us:.2f}"
    return f"{timing.step_s * 1e3:.2f}", f"{timing.hidden:.1%}"


def _remarks(run: Run, outlooks: Sequence[Outlook], links: Sequence[Link]) -> list[str]:
    remarks = []
    if not all(one.need.is_exact for one in outlooks):
        remarks.append("--batches: peaks are those of the batches that were planned; later ones may need more rows")
    if not all(one.fits for one in outlooks):
        remarks.append(f"!: more than cache.rows = {run.config.cache.rows}: a run would cut the window")
    if len(run.groups) > 1:
        remarks.append("tables of several widths: bytes are counted, time is not predicted")
    elif any((one.trainers, one.lookahead) not in link.timings for one in outlooks for link in links):
        remarks.append("-: no segment is longer than twice the window, so that there is no steady state to predict")
    remarks += [f"policy.name = {run.config.policy.name!r}: {decision}" for decision in run_decisions(run)]
    return [*remarks, ""] if remarks else []


def _figures(one: Outlook, links: Sequence[Link]) -> dict[str, Any]:
    timings = {link.gbit_per_s: link.timings.get((one.trainers, one.lookahead)) for link in links}
    return {
        "trainers": one.trainers,
        "lookahead": one.lookahead,
        "group": one.need.window.group,
        "sharing": one.sharing,
        "peak_rows": one.need.total_rows,
        "shared_rows": one.need.shared_rows,
        "private_rows": one.need.private_rows,
        "fits": one.fits,
        "planner_bytes": one.need.planner_bytes,
        "traffic": asdict(one.traffic),
        "trainer_link_bytes": asdict(one.trainer_link),
        "server_link_bytes": asdict(one.server_link(links[0].server_nodes)),
        "timings": [
            asdict(timing) | {"gbit_per_s": gbit_per_s, "hidden": timing.hidden}
            for gbit_per_s, timing in timings.items()
            if timing
        ],
    }
