"""Figures of sums and means: where a step goes by role, rows and bytes by class, load of the servers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from bagpipe_hpc.tools.run_report.figures import Figure, Table, together
from bagpipe_hpc.tools.run_report.run_files import RunFiles, number
from bagpipe_hpc.tools.run_report.svg import Bar, bar_chart, bar_sample, compact

_STEP = {
    "compute": "compute_ms",
    "waiting for rows": "wait_rows_ms",
    "waiting for sums": "wait_reductions_ms",
}
_BEHIND = {"fetching": "fetch", "writing back": "write back", "movers' barrier": "barrier"}
"""A mover's work behind compute, of which several things may be under way at once, by the names of spans."""
_ORACLE = {"planning": "plan", "sending plans, and waiting for trainers": "send"}
_CLASSES = {
    "fetched": "rows_fetched",
    "written back": "rows_written_back",
    "summed now": "reduced_now",
    "summed later": "reduced_later",
    "copied": "copied",
    "sent home": "sent_home",
}
_AT_SERVER = {"got": "rows_got", "put": "rows_put", "added": "rows_added"}
_MOST_BARS = 16
"""Most bars of a run in a figure."""

Rank = Mapping[str, Any]


def step_figures(runs: Sequence[RunFiles]) -> list[Figure]:
    """Where a step goes: of trainers' compute threads, of their movers, of the oracle, and of all processors."""
    return [
        _bars(
            "A step of each trainer",
            "Compute thread, mean over the run. Waiting is what the cache and the sums did not hide.",
            "ms a step",
            list(_STEP),
            runs,
            lambda run: _of_trainers(run, _STEP.values()),
            "neither summary.json nor a progress event has times of trainers",
        ),
        _bars(
            "A step of each mover",
            "What is under way behind compute; several may be at once, so it may be more than the step.",
            "ms a step",
            list(_BEHIND),
            runs,
            lambda run: _of_spans(run, "trainer", _BEHIND.values()),
            "resources.json, which a run writes at its end, has no times",
        ),
        _bars(
            "A step of the oracle",
            "It plans in one thread and sends in another, mostly ahead of the trainers.",
            "ms a step",
            list(_ORACLE),
            runs,
            lambda run: _of_spans(run, "oracle", _ORACLE.values()),
            "resources.json, which a run writes at its end, has no times",
        ),
        _bars(
            "Processor time of each rank",
            "All threads, start and end of the run included.",
            "seconds",
            ["processor time"],
            runs,
            lambda run: _of_ranks(run, "processor_s", 1.0),
            "resources.json, which a run writes at its end, is not there",
        ),
        _bars(
            "Memory of each rank",
            "Largest resident memory, pages that ranks share counted by each of them.",
            "MB",
            ["resident"],
            runs,
            lambda run: _of_ranks(run, "peak_bytes", 1e-6),
            "resources.json, which a run writes at its end, is not there",
        ),
    ]


def row_figures(runs: Sequence[RunFiles]) -> list[Figure]:
    """Rows and bytes by class, and what each server has to do."""
    return [
        _bars(
            "Rows by class",
            "Of a trainer for a step, mean over trainers and the run.",
            "rows a step",
            list(_CLASSES),
            runs,
            lambda run: _classes(run, lambda _, rows: rows),
            "neither summary.json nor a progress event has rows of trainers",
        ),
        _bars(
            "Bytes by class",
            "The same in kB: records to and from servers with their optimizer's state, gradients and copies without. "
            "A sum goes round as shares, there and back.",
            "kB a step",
            list(_CLASSES),
            runs,
            _bytes,
            "sizes of rows are not known, or no rows were told of",
        ),
        _bars(
            "Rows moved at each server",
            "By all trainers over the run, evaluations included.",
            "rows",
            list(_AT_SERVER),
            runs,
            lambda run: _of_servers(run, _AT_SERVER.values(), 1.0),
            "summary.json, which a run writes at its end, does not tell",
        ),
        _bars(
            "Bytes moved at each server",
            "The same rows with their optimizer's state.",
            "MB",
            ["moved"],
            runs,
            lambda run: _of_servers(run, ["bytes"], 1e-6),
            "summary.json, which a run writes at its end, does not tell",
        ),
    ]


def _bars(
    name: str,
    meaning: str,
    unit: str,
    kinds: Sequence[str],
    runs: Sequence[RunFiles],
    bars_of: Callable[[RunFiles], list[Bar]],
    if_none: str,
) -> Figure:
    """A figure with the bars of all runs, those of one run together; kinds that are 0 everywhere are left out."""
    bars, lacking = [], []
    for run in runs:
        of_run = bars_of(run)
        if not of_run:
            lacking.append((run.name, "a run on one rank has none" if is_alone(run) else if_none))
        bars += [Bar(bar.label, bar.parts, run.name if len(runs) > 1 else "") for bar in _few(of_run)]
    used = [kind for kind in range(len(kinds)) if any(bar.parts[kind] for bar in bars)]
    if not used:
        return Figure(name, meaning, lacking=together(lacking) or ["all of it is 0"])
    names = [kinds[kind] for kind in used]
    bars = [Bar(bar.label, [bar.parts[kind] for kind in used], bar.group) for bar in bars]
    titles = [f"{bar.group}: {bar.label}" if bar.group else bar.label for bar in bars]
    sums = [compact(sum(bar.parts)) for bar in bars]
    rows = [[title, *map(compact, bar.parts), of_bar] for title, bar, of_bar in zip(titles, bars, sums, strict=True)]
    ends = "; ".join(f"{title}: {of_bar}" for title, of_bar in zip(titles, sums, strict=True))
    described = f"Bars of {', '.join(names)}; {ends}"
    return Figure(
        name,
        meaning,
        bar_chart(name, f"{described} {unit}.", bars, unit),
        [(bar_sample(look), kind) for look, kind in enumerate(names)] if len(names) > 1 else [],
        Table(["", *names, *(["in all"] if len(names) > 1 else [])], rows if len(names) > 1 else [r[:2] for r in rows]),
        together(lacking),
    )


def _few(bars: Sequence[Bar]) -> Sequence[Bar]:
    """The bars; or, if there are too many, their mean and the bars with the smallest and the largest sum."""
    if len(bars) <= _MOST_BARS:
        return bars
    mean = [sum(parts) / len(bars) for parts in zip(*(bar.parts for bar in bars), strict=True)]
    ordered = sorted(bars, key=lambda bar: sum(bar.parts))
    return [
        Bar(f"mean of {len(bars)}", mean),
        Bar(f"least: {ordered[0].label}", ordered[0].parts),
        Bar(f"most: {ordered[-1].label}", ordered[-1].parts),
    ]


def is_alone(run: RunFiles) -> bool:
    """Whether a run is known to have had one rank: a reference."""
    return run.summary.get("servers") == 0


def trainer_count(run: RunFiles) -> int:
    """How many trainers a run has; 0 where its files do not say."""
    return len(_trainer_means(run)) or int(number(_last_interval(run).get("number")) or 0)


def _last_interval(run: RunFiles) -> Rank:
    """The values of the last interval, over all trainers together."""
    told = next((event.get("of_trainers") for event in run.of("progress")[::-1]), None)
    return told if isinstance(told, dict) else {}


def _trainer_means(run: RunFiles) -> list[Rank]:
    """Means per step of each trainer: over the whole run, or if it has not ended, the last interval that has them."""
    told = run.summary.get("trainers") or next((event.get("trainers") for event in run.of("progress")[::-1]), None)
    return [means for means in told if isinstance(means, dict)] if isinstance(told, list) else []


def _mean_of_interval(run: RunFiles) -> list[Rank]:
    """Means over all trainers, as a list of one; empty where the files say nothing."""
    mean = _last_interval(run).get("mean")
    return [mean] if isinstance(mean, dict) else []


def _of_trainers(run: RunFiles, keys: Collection[str]) -> list[Bar]:
    if each := _trainer_means(run):
        return [Bar(f"trainer {at}", _numbers(means, keys)) for at, means in enumerate(each)]
    return [Bar(f"mean of {trainer_count(run)}", _numbers(means, keys)) for means in _mean_of_interval(run)]


def _of_spans(run: RunFiles, role: str, names: Collection[str]) -> list[Bar]:
    steps = number(run.summary.get("steps")) or 0.0
    ranks = [rank for rank in run.ranks if rank.get("role") == role and isinstance(rank.get("spans_s"), dict)]
    if not steps:
        return []
    return [Bar(_name(rank), [1e3 * value / steps for value in _numbers(rank["spans_s"], names)]) for rank in ranks]


def _of_ranks(run: RunFiles, key: str, scale: float) -> list[Bar]:
    return [Bar(_name(rank), [scale * value for value in _numbers(rank, [key])]) for rank in run.ranks]


def _of_servers(run: RunFiles, keys: Collection[str], scale: float) -> list[Bar]:
    loads = run.summary.get("moved_at_servers")
    if not isinstance(loads, list):
        return []
    servers = [load for load in loads if isinstance(load, dict)]
    return [Bar(f"server {at}", [scale * value for value in _numbers(load, keys)]) for at, load in enumerate(servers)]


def _classes(run: RunFiles, measured: Callable[[str, float], float]) -> list[Bar]:
    trainers = _trainer_means(run) or _mean_of_interval(run)
    if not trainers:
        return []
    sums = (sum(values) for values in zip(*(_numbers(means, _CLASSES.values()) for means in trainers), strict=True))
    parts = [measured(name, total / len(trainers)) for name, total in zip(_CLASSES, sums, strict=True)]
    return [Bar("mean of trainers", parts)]


def _bytes(run: RunFiles) -> list[Bar]:
    sizes, trainers = run.row_bytes, trainer_count(run)
    sharing = run.settings.get("cache.sharing")
    if sizes is None or not trainers or sharing == "tiered":  # it is not known over how many trainers sums go
        return []
    has_homes = sharing == "home"
    goes_round = 0.0 if has_homes else 2.0 * (trainers - 1) / trainers  # with homes, what is summed was sent home
    of_class = {
        "fetched": sizes.record,
        "written back": sizes.record,
        "summed now": sizes.gradient * goes_round,
        "summed later": sizes.gradient * goes_round,
        "copied": sizes.copy,
        "sent home": sizes.gradient,
    }
    return _classes(run, lambda name, rows: rows * of_class[name] / 1e3)


def _numbers(values: Rank, keys: Collection[str]) -> list[float]:
    return [max(0.0, number(values.get(key)) or 0.0) for key in keys]


def _name(rank: Rank) -> str:
    return f"{rank.get('role')} {rank.get('role_rank')}"
