"""The page: HTML that needs nothing else, neither a network nor a script."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from bagpipe_hpc import __version__
from bagpipe_hpc.terminal import printable
from bagpipe_hpc.tools.run_report.bars import row_figures, step_figures
from bagpipe_hpc.tools.run_report.facts import at_a_glance, differing_settings, resumes_and_checkpoints, warnings
from bagpipe_hpc.tools.run_report.figures import LEARNING, ROWS, SPEED, Figure, Table, over_steps
from bagpipe_hpc.tools.run_report.run_files import RunFiles
from bagpipe_hpc.tools.run_report.svg import line_sample, patterns

MARK = "<!-- bagpipe report -->"
"""The line after the document type, by which a report is recognised: a report may replace only such a file."""


def report_page(runs: Sequence[RunFiles], made: str) -> str:
    """The page about some runs.

    Args:
        runs: one or more.
        made: when it was made, in words.
    """
    title = f"Run {runs[0].name}" if len(runs) == 1 else f"{len(runs)} runs: {', '.join(run.name for run in runs)}"
    style = (files("bagpipe_hpc.tools.run_report") / "page.css").read_text(encoding="utf-8")
    what = "differ" if len(runs) > 1 else "are not at their defaults"
    sections = [
        _section("At a glance", _table(at_a_glance(runs), looks=len(runs) > 1) + _lacking(runs)),
        _section("Learning", _figures([over_steps(runs, measure) for measure in LEARNING])),
        _section("Speed", _figures([*(over_steps(runs, measure) for measure in SPEED), *step_figures(runs)])),
        _section("Rows", _figures([*(over_steps(runs, measure) for measure in ROWS), *row_figures(runs)])),
        _section("Resumes and checkpoints", _told(resumes_and_checkpoints(runs), "None is told of.")),
        _section("Warnings and failures", _told(warnings(runs), "The logs have none.")),
        _section(f"Settings that {what}", _told(differing_settings(runs), "There are none.")),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            MARK,
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_text(title)}</title>",
            f"<style>\n{style}</style></head><body>",
            patterns(),
            f"<header><h1>{_text(title)}</h1><p>Made by bagpipe {_text(__version__)}, {_text(made)}.</p></header>",
            f"<main>\n{''.join(sections)}</main>",
            "</body></html>",
            "",
        ]
    )


def _text(text: str) -> str:
    return escape(printable(text, is_layout_kept=False))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{_text(title)}</h2>\n{content}\n</section>\n"


def _figures(figures: Sequence[Figure]) -> str:
    return f'<div class="figures">{"".join(map(_figure, figures))}</div>'


def _figure(figure: Figure) -> str:
    items = "".join(f"<li>{sample}{_text(name)}</li>" for sample, name in figure.legend)
    legend = f'<ul class="legend">{items}</ul>' if items else ""
    behind = f"<details><summary>Numbers</summary>{_table(figure.table)}</details>" if figure.table else ""
    lacking = "".join(f'<p class="lacking">Not shown: {_text(what)}.</p>' for what in figure.lacking)
    return (
        f"<figure><figcaption><h3>{_text(figure.name)}</h3><p>{_text(figure.meaning)}</p></figcaption>"
        f"{figure.chart}{legend}{lacking}{behind}</figure>\n"
    )


def _table(table: Table, *, looks: bool = False) -> str:
    """A table; with `looks` each run's name has a sample of its line beside it."""
    heads = [
        f'<th scope="col">{line_sample(at - 1) if looks and at else ""}{_text(heading)}</th>'
        for at, heading in enumerate(table.headings)
    ]
    rows = [
        f'<tr><th scope="row">{_text(first)}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in cells)}</tr>'
        for first, *cells in table.rows
    ]
    note = f"<p>{_text(table.note)}</p>" if table.note else ""
    body = f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="table"><table>{body}</table></div>{note}'


def _told(table: Table, if_none: str) -> str:
    return _table(table) if table.rows else f"<p>{_text(if_none)}</p>"


def _lacking(runs: Sequence[RunFiles]) -> str:
    items = [f"<li>{_text(run.name)}: {_text(what)}</li>" for run in runs for what in run.lacking]
    return f'<p>Not there, so not shown:</p><ul class="lacking">{"".join(items)}</ul>' if items else ""
