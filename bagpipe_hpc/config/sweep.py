"""Runs of a parameter sweep: every combination of the values that settings are to take. Standard library only.

A setting is given as an override whose value lists several, `train.seed=1,2,3`. The runs are the cartesian product,
numbered from 0 with the last setting changing fastest, so that a task of a Slurm array can ask for its own.
"""

import itertools
import math
import operator
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError

_OUTPUT = "train.output"
_MOST_RUNS = 100_000
"""Each is checked, at some 1,000 a second."""
_MOST_NAME_BYTES = 255
"""Longest name of a file, on nearly every file system."""

# Quotes and brackets open only where a value may begin: the apostrophe of `data.path=anna's` opens nothing.
_TOKEN = re.compile(
    r"""(?P<string>(?<![^\s,=\[{])(?:"(?:\\.|[^"\\])*"|'[^']*'))|(?P<open>(?<![^\s,=\[{])[\[{])|(?P<close>[\]}])|.""",
    re.DOTALL,
)


def sweep_runs(path: Path, settings: Sequence[str]) -> list[list[str]]:
    """The overrides of each run, checked as `bagpipe train` will check them.

    Args:
        path: TOML file that all runs share.
        settings: `section.field=value,value`, each as in an override; commas within lists, tables and strings in quotes
            do not separate values.

    Returns:
        For each run its overrides, in the order of `settings`, with `train.output` last: a folder of its own below the
        one that `settings` or the file names, called after the values that differ from run to run.

    Raises:
        ConfigError: a name or a value is wrong in some run, two runs would write into the same folder, or there are
            too many.
    """
    swept = _swept(settings)
    return [_checked(path, swept, number, overrides) for number, overrides in enumerate(itertools.product(*swept))]


def sweep_run(path: Path, settings: Sequence[str], number: int) -> list[str]:
    """The overrides of one run, as `sweep_runs` gives them, for a task that shall start soon.

    Checked are this run and those that differ from it in one setting. So each name and each value is seen once, but not
    each combination.

    Raises:
        ConfigError: there is no such run, and as for `sweep_runs`.
    """
    swept = _swept(settings)
    combinations = list(itertools.product(*swept))
    if number >= len(combinations):
        raise ConfigError(f"--task {number}: the sweep has {len(combinations)} runs, 0 to {len(combinations) - 1}")
    for other, overrides in enumerate(combinations):
        if sum(map(operator.ne, overrides, combinations[number])) == 1:
            _checked(path, swept, other, overrides)
    return _checked(path, swept, number, combinations[number])


def split_values(written: str) -> list[str]:
    """The values of `1,2` or `[64, 16],[8]`, each as it is written."""
    values, depth = [""], 0
    for token in _TOKEN.finditer(written):
        if token[0] == "," and depth == 0:
            values.append("")
            continue
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth = max(0, depth - 1)
        values[-1] += token[0]
    return [value.strip() for value in values]


def _swept(settings: Sequence[str]) -> list[list[str]]:
    """For each setting one override for each value that it is to take.

    Raises:
        ConfigError: there are too many runs, or two would write into the same folder.
    """
    swept = [_choices(setting) for setting in settings]
    if (wanted := math.prod(map(len, swept))) > _MOST_RUNS:
        raise ConfigError(f"the sweep has {wanted:,} runs, {_MOST_RUNS:,} at most: leave values out, or sweep twice")
    for choices in swept:
        if len(choices) > 1 and _key(choices[0]) == _OUTPUT:
            raise ConfigError(f"{_OUTPUT} takes one folder, below which every run gets its own (a comma needs quotes)")
        name, runs = Counter(map(_name, choices)).most_common(1)[0]
        if runs > 1:
            raise ConfigError(
                f"{_key(choices[0])}: runs with {runs} of its values would write to one folder, {name}: leave out "
                "values that are given twice, and values that differ in special characters alone"
            )
    return swept


def _checked(path: Path, swept: Sequence[Sequence[str]], number: int, overrides: Sequence[str]) -> list[str]:
    """The overrides of a run with its own folder.

    Raises:
        ConfigError: a name or a value is wrong; the message names the run.
    """
    differing = [override for override, choices in zip(overrides, swept, strict=True) if len(choices) > 1]
    try:
        output = _own_output(load_config(path, overrides).train.output, differing)
        run = [*(override for override in overrides if _key(override) != _OUTPUT), f"{_OUTPUT}={output}"]
        if (told := load_config(path, run).train.output) != output:
            raise ConfigError(f"{_OUTPUT} = {output!r}: an override would name {told!r}; name another folder")
    except ConfigError as error:
        raise ConfigError(f"run {number} ({' '.join(overrides)}): {error}") from None
    return run


def _choices(setting: str) -> list[str]:
    """One override for each value that a setting is to take."""
    if "\n" in setting:
        raise ConfigError(f"{setting!r}: holds a line break, which divides overrides; write the value on one line")
    key, equals, written = setting.partition("=")
    return [f"{key}{equals}{value}" for value in split_values(written)]


def _own_output(base: str, differing: Sequence[str]) -> str:
    """The folder of a run: below `base`, unless there is only one run and so nothing to tell apart.

    Raises:
        ConfigError: no file system takes such a name, or it does not fit on the one line of an override.
    """
    if "\n" in base:
        raise ConfigError(f"{_OUTPUT} = {base!r}: holds a line break, which divides overrides; name another folder")
    name = ",".join(map(_name, differing))
    if len(os.fsencode(name)) > _MOST_NAME_BYTES:
        raise ConfigError(
            f"its folder would be called {name:.60}..., {len(os.fsencode(name))} bytes of {_MOST_NAME_BYTES} that a "
            "name may have: sweep fewer settings at once, or put long values into files of their own"
        )
    return str(Path(base) / name) if differing else base


def _name(override: str) -> str:
    """`model.top_mlp=[64, 16]` as a part of a folder's name: `model.top_mlp=64-16`."""
    value = re.sub(r"[^\w.+-]+", "-", override.partition("=")[2]).strip("-")
    return f"{_key(override)}={value}"


def _key(override: str) -> str:
    return override.partition("=")[0].strip()
