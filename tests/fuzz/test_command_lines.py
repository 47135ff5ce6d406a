"""Command lines of every command, drawn from what its parser takes and from what no parser should take."""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bagpipe_hpc.cli import commands
from bagpipe_hpc.cli.arguments.types import named_path, path_text
from tests.fuzz.hunting import few_and_many, hunt, require_clear

OUTPUTS = ("output", "save", "plot", "json", "statistics", "to", "logs", "tried")
"""Arguments that name what is written: only inside the folder of the test."""
AMOUNTS = ("rows", "nodes", "degree", "episodes", "draws", "fits", "clusters", "timeout_s", "seeds")
"""Arguments whose large values mean work for hours, or files that fill the disk."""
SMALL = ["1", "2", "3", "20", "0", "-1", "x", "", "1.5", "nan"]
NUMBERS = [*SMALL, "1000000", str(1 << 31), str(1 << 63), "9" * 30, "1e300", "1e-300", "inf", "٣", "1_0", " 1"]
INPUTS = [
    *("visits.toml", "clicks.toml", "graph.toml", "visits", "clicks", "graph", "run", "slip", "plan.npz", "counts.npz"),
    *(
        "visits.csv",
        "clicks.tsv",
        "raw/edges.tsv",
        "raw/nodes.csv",
        "run/checkpoints/step-00000014",
        "run/metrics.jsonl",
    ),
    *("visits/train-00000.h5", "visits/manifest.json", "absent", "absent/below", "", ".", "..", "*", "[", "a" * 300),
    *("\x1b[2J", "visits.csv/below", "/dev/zero", "/dev/null", "/proc/self/mem", "train.seed=1", "-x", "--"),
]
WRITTEN = ["new", "new.csv", "new.svg", "new.npz", "new.toml", "new.json", "new.tsv.gz", "new.parquet", "run", "visits"]
WRITTEN += [
    "visits.csv",
    "run/config.toml",
    "absent/new.csv",
    "visits.csv/new.csv",
    "",
    ".",
    "a" * 300 + ".csv",
]
OVERRIDES = [
    "train.seed=2",
    "train.seed=x",
    "data.path=clicks",
    "model.name=din",
    "x",
    "train.max_steps=1",
    "=",
    "train.=1",
]
TEXTS = [
    "",
    "x",
    "criteo",
    "sequences",
    "bagpipe",
    "none",
    "by_table",
    "fae policy.hot_rows=1",
    "label",
    "k=v",
    "{",
    "'",
]


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Of all commands."""
    [found] = [action for action in commands._parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found.choices)


def value_of(action: argparse.Action) -> st.SearchStrategy[str]:
    """A value of an argument, right or wrong."""
    if action.choices is not None:
        return st.sampled_from([*map(str, action.choices), "other", ""])
    if action.dest in OUTPUTS:
        return st.sampled_from(WRITTEN)
    if action.dest in ("overrides", "settings"):
        return st.sampled_from(OVERRIDES)
    if action.dest == "launch":
        return st.sampled_from(["false", "", "{", "{x}", "absent -n {ranks}", "'"])
    if action.type in (None, named_path, path_text):
        return st.sampled_from(TEXTS if action.type is None else INPUTS)
    return st.sampled_from(SMALL if action.dest in AMOUNTS else NUMBERS)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    name, parser = draw(st.sampled_from(sorted(parsers().items(), key=lambda pair: pair[0])))
    line: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.dest == "train":
            continue
        is_needed = action.required and action.nargs != "*"
        if not draw(st.sampled_from([True] * 19 + [False]) if is_needed else st.integers(0, 3).map(lambda k: k == 0)):
            continue
        most = 1 if action.nargs is None else 0 if action.nargs == 0 else 3
        values = [draw(value_of(action)) for _ in range(draw(st.integers(min(1, most), most)))]
        if not action.option_strings:
            line += values
        elif len(values) == 1 and draw(st.booleans()):
            line.append(f"{draw(st.sampled_from(action.option_strings))}={values[0]}")
        else:
            line += [draw(st.sampled_from(action.option_strings)), *values]
    if draw(st.integers(0, 9)) == 0:
        line.insert(
            draw(st.integers(0, len(line))), draw(st.sampled_from(["--absent", "-z", "--out", "", "--=", "\udcff"]))
        )
    return [name, *line]


@few_and_many(0, 60)
def test_command_lines(examples: int, sound: Path, tmp_path: Path) -> None:
    def check(line: Any) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as made:
            here = shutil.copytree(sound, Path(made) / "here")
            require_clear(here, [line], [], line)

    hunt(examples, command_lines(), check)
