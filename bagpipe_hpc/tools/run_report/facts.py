"""Tables of a page: the runs at a glance, their events, and the settings in which they differ."""

from collections.abc import Sequence
from typing import Any

from bagpipe_hpc.config.file import to_document
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.run_report.bars import is_alone, trainer_count
from bagpipe_hpc.tools.run_report.figures import Table
from bagpipe_hpc.tools.run_report.run_files import Event, RunFiles, number

_MOST_FAULTS = 60
"""How many warnings of a run are shown, the latest."""
_MOST_EVENTS = 60
"""How many events of each kind of a run are shown, the latest."""
_KINDS = {"resumed": "resumes", "checkpoint": "checkpoints"}
_OF_NO_MEANING = ("train.output", "train.overwrite", "train.trace", "train.resume")
"""Settings that differ from run to run and say nothing about the run."""
_ABSENT = "-"


def at_a_glance(runs: Sequence[RunFiles]) -> Table:
    """A column for each run."""
    facts = [_glance(run) for run in runs]
    rows = [[name, *(of_run[name] for of_run in facts)] for name in facts[0]]
    shown = [row for row in rows if any(cell != _ABSENT for cell in row[1:])]
    return Table(["", *(run.name for run in runs)], shown)


def _glance(run: RunFiles) -> dict[str, str]:
    progress = (run.of("progress") or [{}])[-1]
    quality = (run.of("evaluation") or [{}])[-1]
    has_cache = not is_alone(run)
    return {
        "state": run.state,
        "steps": _text(progress.get("step"), "{:,.0f}"),  # the summary counts those since the last start
        "samples/s": _text(run.summary.get("samples_per_s", progress.get("samples_per_s")), "{:,.0f}"),
        "loss, last": _text(progress.get("loss"), "{:.5f}"),
        "AUC, last": _text(quality.get("auc"), "{:.5f}"),
        "log loss, last": _text(quality.get("log_loss"), "{:.5f}"),
        "hit rate": _text(run.summary.get("hit_rate", progress.get("hit_rate")), "{:.1%}") if has_cache else _ABSENT,
        "trainers": str(trainer_count(run) or _ABSENT),
        "servers": "none: one rank" if is_alone(run) else _text(run.summary.get("servers"), "{:.0f}"),
        "window L, group C": _window(run.summary),
        "cache, rows": _text(run.summary.get("cache_rows"), "{:,.0f}"),
        "cache, MB": _text(_scaled(run.summary.get("cache_bytes"), 1e-6), "{:,.1f}"),
        "dense weights": _text(run.summary.get("dense_weights"), "{:,.0f}"),
        "seconds": _text(run.summary.get("seconds", run.events[-1].get("time_s") if run.events else None), "{:,.1f}"),
        "hosts": ", ".join(sorted({str(rank.get("host")) for rank in run.ranks})) or _ABSENT,
        "taken up again": counted(len(run.of("resumed")), "time") if run.of("resumed") else _ABSENT,
    }


def resumes_and_checkpoints(runs: Sequence[RunFiles]) -> Table:
    """A row for each event, of each run those of each kind that came last."""
    rows, cut = [], []
    for run in runs:
        left_out = {kind: max(0, len(run.of(kind)) - _MOST_EVENTS) for kind in _KINDS}
        cut += [
            f"{run.name}: the latest {_MOST_EVENTS} of {_MOST_EVENTS + number} {_KINDS[kind]}"
            for kind, number in left_out.items()
            if number
        ]
        for event in run.events:
            if (kind := event["event"]) not in left_out:
                continue
            if left_out[kind]:
                left_out[kind] -= 1
            else:
                rows.append([run.name, str(event["step"]), kind, _told(event)])
    return Table(["run", "step", "what", "how"], rows, "; ".join(cut))


def _told(event: Event) -> str:
    if event["event"] == "resumed":
        changes = event.get("changes")
        changed = "; ".join(map(str, changes)) if isinstance(changes, list) and changes else "no setting changed"
        return f"from {event.get('directory')}: {changed}"
    base = event.get("base_step")
    what = "all rows" if base is None else f"rows updated since step {base}"
    size = _text(_scaled(event.get("bytes"), 1e-6), "{:,.1f}")
    stood, done = _text(event.get("seconds"), "{:.2f}"), _text(event.get("complete_after_s"), "{:.1f}")
    return f"{what}, {size} MB; training stood still for {stood} s, complete after {done} s"


def warnings(runs: Sequence[RunFiles]) -> Table:
    """Warnings and failures of the logs, the latest of each run."""
    rows = [[run.name, *fault] for run in runs for fault in run.faults[-_MOST_FAULTS:]]
    cut = [
        f"{run.name}: the latest {_MOST_FAULTS} of {len(run.faults)}" for run in runs if len(run.faults) > _MOST_FAULTS
    ]
    return Table(["run", "time", "rank", "level", "message"], rows, "; ".join(cut))


def differing_settings(runs: Sequence[RunFiles]) -> Table:
    """Settings in which runs differ; for a single run, those that are not at their defaults."""
    known = [run for run in runs if run.settings]
    columns = [(run.name, run.settings) for run in known]
    if len(known) == 1:
        columns.append(("default", _defaults()))
    keys = dict.fromkeys(key for _, settings in columns for key in settings)
    rows = []
    for key in keys:
        values = [_value(settings, key) for _, settings in columns]
        if len(set(values)) > 1 and key not in _OF_NO_MEANING:
            rows.append([key, *values])
    return Table(["setting", *(heading for heading, _ in columns)], rows)


def _defaults() -> dict[str, Any]:
    document = to_document(Config())
    return {f"{section}.{field}": value for section, fields in document.items() for field, value in fields.items()}


def _value(settings: dict[str, Any], key: str) -> str:
    if key not in settings:
        return _ABSENT
    value = settings[key]
    return str(value).lower() if isinstance(value, bool) else _plain(value)


def _plain(value: Any) -> str:
    text = repr(list(value)) if isinstance(value, tuple) else value if isinstance(value, str) and value else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _window(summary: dict[str, Any]) -> str:
    ahead, group = number(summary.get("lookahead_batches")), number(summary.get("group_batches"))
    return _ABSENT if ahead is None or group is None else f"{ahead:.0f}, {group:.0f}"


def _scaled(value: object, scale: float) -> float | None:
    found = number(value)
    return None if found is None else found * scale


def _text(value: object, form: str) -> str:
    found = number(value)
    return _ABSENT if found is None else form.format(found)
