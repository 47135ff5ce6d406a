"""`python -m benchmarks search`: which settings learn most from some clicks, by the end of the training rows alone.

Two tails are tested: the last fifth of the training rows, by a model of the rows before it, and the fifth before that,
by a model of what is left. Settings that are good on both are hardly made for either. Rows behind the training rows, on
which the result is to be judged, take no part.
"""

import argparse
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.plan.schedule import build_schedule, training_batch_sizes
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.tools.conditions import REPOSITORY
from bagpipe_hpc.tools.report import Report
from benchmarks.learning import over_seeds, score_cells, train
from data_prep.generate import generate_clicks
from data_prep.inputs.text_blocks import TextPosition, read_blocks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings

TRIES = REPOSITORY / "benchmarks" / "searches" / "criteo_sample.toml"
FIFTHS = {"last fifth": 5, "fifth before": 4}
"""The tails by name: fifths of the training rows up to the tail's end."""
_STEPS = "{steps}"
_GENERATED_ROWS = 20_000
_QUICK_TRIES = 2


@dataclass(frozen=True)
class Try:
    """What is tried: a way to prepare and settings to train with.

    Attributes:
        name: in the table.
        settings: overrides, as for `bagpipe train`, behind the shared ones; `{steps}` stands for the epoch's steps.
        format: source format, as `bagpipe prepare --format`.
        format_options: its own settings, `key=value` each.
        min_count: as `bagpipe prepare --min-count`.
    """

    name: str
    settings: tuple[str, ...] = ()
    format: str = "criteo"
    format_options: tuple[str, ...] = ()
    min_count: int = 2

    @property
    def shards(self) -> tuple[str, tuple[str, ...], int]:
        """What the shards depend on."""
        return self.format, self.format_options, self.min_count


def run(arguments: argparse.Namespace) -> Report:
    """Search; arguments: `clicks`, `rows`, `tries`, `only`, `seeds`, `quick`.

    Raises:
        ConfigError: the file of tries says what it should not, or lacks one that is asked for, or a run fails.
    """
    tries = _chosen(read_tries(arguments.tries), arguments.only)
    if arguments.quick and not arguments.only:
        del tries[_QUICK_TRIES:]
    seeds = range(1, (1 if arguments.quick else arguments.seeds) + 1)
    report = Report("search", {"tries": str(arguments.tries), "seeds": len(seeds), "results": []})
    table = []
    with tempfile.TemporaryDirectory() as folder:
        clicks = Clicks(arguments.clicks, arguments.rows, Path(folder))
        for one in tries:
            cells = [one.name]
            for tail, fifths in FIFTHS.items():
                settings = with_steps(one.settings, shards := clicks.shards(one, fifths))
                settings = [f"data.path={shards}", *settings]
                figures = over_seeds([train([*settings, f"train.seed={seed}"]) for seed in seeds])
                report.figures["results"].append({"name": one.name, "tail": tail, "settings": settings, **figures})
                cells += score_cells(figures)
            table.append(cells)
            print(" | ".join(cells), flush=True)
    headings = [f"{measure}, {tail}" for tail in FIFTHS for measure in ("AUC", "log loss")]
    report.table("One epoch", ["settings", *headings], table)
    return report


def read_tries(path: Path) -> list[Try]:
    """What a file of tries says: `[shared]` settings, and a `[[tries]]` each with the fields of `Try`.

    Raises:
        ConfigError: it says something else.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        shared = tuple(document.pop("shared", {}).pop("settings", ()))
        tries = [_try_of(entry, shared) for entry in document.pop("tries")]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"--tries {path}: {error!r}; see {TRIES} for how tries are written") from error
    names = [one.name for one in tries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if document or twice:
        raise ConfigError(f"--tries {path}: {', '.join([*document, *twice])}: unknown, or there twice")
    return tries


def _chosen(tries: list[Try], only: list[str] | None) -> list[Try]:
    """Those that are asked for, in their own order; None asks for all."""
    names = [one.name for one in tries]
    if unknown := [name for name in only or () if name not in names]:
        raise ConfigError(f"--only {unknown[0]!r}: is no try; use some of {', '.join(map(repr, names))}")
    return [one for one in tries if only is None or one.name in only]


def _try_of(entry: Mapping[str, Any], shared: tuple[str, ...]) -> Try:
    lists = {name: tuple(value) for name, value in entry.items() if isinstance(value, list)}
    own = Try(**{**entry, **lists})
    return Try(**{**vars(own), "settings": (*shared, *own.settings)})


def with_steps(settings: tuple[str, ...], shards: Path) -> list[str]:
    """The settings with the number of training steps where they say `{steps}`."""
    if not any(_STEPS in setting for setting in settings):
        return list(settings)
    with tempfile.NamedTemporaryFile(suffix=".toml") as empty:
        config = load_config(Path(empty.name), [setting.replace(_STEPS, "1") for setting in settings])
    schedule = tuple(build_schedule(config.train, load_manifest(shards).rows("train"), 0))
    return [setting.replace(_STEPS, str(len(training_batch_sizes(schedule)))) for setting in settings]


class Clicks:
    """The training rows as text, and the shards made of them so far.

    Args:
        clicks: the text; None generates some.
        rows: training rows, the first ones; 0 for all.
        folder: for texts and shards.
    """

    def __init__(self, clicks: Path | None, rows: int, folder: Path) -> None:
        self._folder = folder
        if clicks is None:
            clicks = folder / "generated.tsv"
            generate_clicks(_GENERATED_ROWS, clicks)
        lines = [
            line
            for block in read_blocks(clicks, TextPosition())
            for line in block.text.splitlines(keepends=True)
            if line.strip()
        ]
        self._lines = lines[: rows or None]
        self._shards: dict[Any, Path] = {}

    def shards(self, one: Try, fifths: int) -> Path:
        """The folder of shards for a tail that ends behind so many fifths of the rows, and is the last of them."""
        key = (*one.shards, fifths)
        if key not in self._shards:
            text = self._folder / f"head-{fifths}.tsv"
            if not text.exists():
                text.write_bytes(b"".join(self._lines[: len(self._lines) * fifths // 5]))
            output = self._folder / f"shards-{len(self._shards)}"
            settings = PrepareSettings(one.format, one.format_options, one.min_count, test_fraction=1 / fifths)
            prepare_clicks([str(text)], output, settings, lambda _: None)
            self._shards[key] = output
        return self._shards[key]
