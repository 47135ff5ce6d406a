"""What a command found: tables for a reader, and one JSON line with the conditions for everything else."""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import refused
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.telemetry.results import strict_json
from bagpipe_hpc.terminal import is_shown
from bagpipe_hpc.tools.conditions import conditions
from bagpipe_hpc.tools.text_table import aligned


@dataclass
class Report:
    """Tables and figures of one command.

    Attributes:
        benchmark: the command's name.
        figures: content of the JSON line besides the conditions; the keys of numbers name their units.
        lines: the printed tables.
        files: texts of files that go with them, such as a drawing.
    """

    benchmark: str
    figures: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    files: dict[Path, str] = field(default_factory=dict)

    def table(self, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; all columns but the first are numbers."""
        self.lines += ["", title, *aligned([headings, *rows], right=range(1, len(headings)))]

    def finish(self, save: Path | None) -> None:
        """Print the tables, append the JSON line to `save`, whose folder must exist, and write `files`.

        The line is printed last as well, but not on a terminal, where it would push the tables out of sight. What one
        place cannot take, such as a pipe that nobody reads any more, the others still get.

        Raises:
            FileError: `save` or one of `files` cannot be written.
        """
        line = strict_json({"benchmark": self.benchmark} | conditions() | self.figures)
        printed = self.lines if is_shown() else [*self.lines, "", line]
        with ExitStack() as then:
            for path, text in self.files.items():
                then.callback(_write, path, text)
            if save is not None:
                then.callback(_append, save, line)
            print("\n".join(printed).lstrip("\n"), flush=True)


def _append(path: Path, line: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise refused(error, path) from error


def _write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    with atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def median(values: Sequence[float]) -> float:
    """Median of several runs, rounded to four significant digits for the JSON line."""
    return float(f"{statistics.median(values):.4g}")
