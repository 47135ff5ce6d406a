"""The figures of a page: each a chart, its legend, the numbers behind it, and what it cannot show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bagpipe_hpc.tools.run_report.run_files import Event, RunFiles, number
from bagpipe_hpc.tools.run_report.svg import Line, Points, compact, line_chart, line_sample

_MOST_ROWS = 40
"""Most rows of the table behind a line chart."""


@dataclass(frozen=True)
class Table:
    """Numbers behind a figure: the first cell of each row names it.

    Attributes:
        headings: headings of the columns.
        rows: rows of texts, each with as many as there are headings.
        note: what is left out.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure of a page.

    Attributes:
        name: what it shows.
        meaning: how to read it.
        chart: SVG; empty where there is nothing to draw.
        legend: samples of lines or bars as SVG, and what they stand for.
        table: the numbers behind it.
        lacking: what it does not show, and why.
    """

    name: str
    meaning: str
    chart: str = ""
    legend: Sequence[tuple[str, str]] = ()
    table: Table | None = None
    lacking: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Measure:
    """What is drawn over the steps of runs.

    Attributes:
        name: name of the figure.
        meaning: how to read it.
        event: the kind of event that holds it.
        value: takes it out of such an event; None where the event lacks it.
        has_resumes: whether vertical lines show where runs were resumed.
    """

    name: str
    meaning: str
    event: str
    value: Callable[[Event], float | None]
    has_resumes: bool = False


def over_steps(runs: Sequence[RunFiles], measure: Measure) -> Figure:
    """A line for each run that has the measure."""
    lines, lacking = [], []
    for look, run in enumerate(runs):
        points = _points(run, measure)
        if points:
            lines.append(Line(run.name, points, look))
        else:
            lacking.append((run.name, f"no {measure.event} event tells of it"))
    if not lines:
        return Figure(measure.name, measure.meaning, lacking=together(lacking))
    marks = _resumes(runs) if measure.has_resumes else []
    described = "; ".join(_told(line) for line in lines)
    legend = [(line_sample(line.look), line.name) for line in lines]
    return Figure(
        measure.name,
        measure.meaning,
        line_chart(measure.name, f"Over the steps. {described}.", lines, "step", marks),
        legend,
        step_table(lines),
        together(lacking),
    )


def together(lacking: Sequence[tuple[str, str]]) -> list[str]:
    """What runs lack, in lines that join the runs with the same reason; from pairs of a run's name and a reason."""
    reasons = dict.fromkeys(why for _, why in lacking)
    return [f"{', '.join(name for name, of_run in lacking if of_run == why)}: {why}" for why in reasons]


def step_table(lines: Sequence[Line]) -> Table:
    """The points of lines, a column for each line; if there are many steps, some of them and the last."""
    values = [dict(line.points) for line in lines]
    steps = sorted({step for of_line in values for step in of_line})
    every = -(-len(steps) // _MOST_ROWS)
    shown = steps[::-1][::every][::-1] if steps else []
    rows = [[f"{step:.0f}", *(_cell(of_line.get(step)) for of_line in values)] for step in shown]
    note = f"One in {every} of the {len(steps)} steps that were told of; metrics.jsonl has all." if every > 1 else ""
    return Table(["step", *(line.name for line in lines)], rows, note)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.6g}"


def _points(run: RunFiles, measure: Measure) -> Points:
    found = ((event["step"], measure.value(event)) for event in run.of(measure.event))
    return [(float(step), value) for step, value in found if value is not None]


def _resumes(runs: Sequence[RunFiles]) -> list[float]:
    return sorted({float(event["step"]) for run in runs for event in run.of("resumed")})


def _told(line: Line) -> str:
    (first, begin), (last, end) = line.points[0], line.points[-1]
    return f"{line.name}: {compact(begin)} at step {first:.0f}, {compact(end)} at step {last:.0f}"


def of_field(name: str) -> Callable[[Event], float | None]:
    """Takes a field out of an event."""
    return lambda event: number(event.get(name))


def percent_of(name: str) -> Callable[[Event], float | None]:
    """Takes a share out of an event, in percent."""

    def value(event: Event) -> float | None:
        share = number(event.get(name))
        return None if share is None else 100.0 * share

    return value


LEARNING = (
    Measure(
        "Loss", "Mean cross-entropy of the training batches since the last point.", "progress", of_field("loss"), True
    ),
    Measure("AUC", "Of each evaluation on the test rows; the higher the better.", "evaluation", of_field("auc")),
    Measure(
        "Log loss", "Of each evaluation on the test rows; the lower the better.", "evaluation", of_field("log_loss")
    ),
)
SPEED = (
    Measure(
        "Samples per second",
        "Of global batches, between two points, without evaluations and checkpoints.",
        "progress",
        of_field("samples_per_s"),
        True,
    ),
    Measure(
        "Waiting for rows, %",
        "Share of the time in which compute of the first trainer stood still because its mover had not brought rows.",
        "progress",
        percent_of("wait_rows_share"),
    ),
)
ROWS = (
    Measure(
        "Hit rate, %", "Share of a batch's unique rows that were in caches already.", "progress", percent_of("hit_rate")
    ),
    Measure(
        "Rows in the caches",
        "Distinct rows that trainers hold after a step; copies for a batch are not counted.",
        "progress",
        of_field("resident_rows"),
    ),
)
