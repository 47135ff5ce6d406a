"""Settings of all names and values: taken, or refused with file or override, key, value and cure; runs with them."""

import shutil
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bagpipe_hpc.config.file import doors, load_config, setting_types, to_toml
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.config.values import toml_value
from bagpipe_hpc.errors import ConfigError
from tests.fuzz.hunting import few_and_many, hunt, require_clear

NUMBERS: list[Any] = [0, 1, 2, 3, 7, -1, 1 << 10, 1 << 20, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, 10**400]
NUMBERS += [0.5, -0.5, 1e-300, 1e-9, 3e38, 1e39, 1.7e308]
TEXTS = ["", "auto", "x", "none", "visits", "../x", "os:path", "json:dumps", "no_module:Thing", "a" * 300, "\x1b[2J"]
OTHERS: list[Any] = [True, False, [], [1], [0], [-1], [1 << 40], ["x"], [1.5, 2.5], {}, {"C1": 4}, {"history": 0}]
OTHERS += [{"item": 1 << 30}, {"x": "sum"}, {"lr": -1}, [1] * 100, [8, 8], [1 << 20, 1 << 20]]
WRITTEN = ["nan", "inf", "1e999", "", "=", "[", '"', "{", "{}", "1_000", "0x10", "1.", "01", "2024-01-01", "[[1]]"]
OF_WORK = ("train.epochs", "train.max_steps", "train.output", "data.path", "train.overwrite", "train.resume")
"""What says how much a run has to do, or where its files are."""


def all_keys() -> list[str]:
    """Of all settings, with those of every entry of every door."""
    keys = set(setting_types({}))
    for door in doors().values():
        for name in door.entries:
            keys |= set(setting_types({door.key: name}))
    return sorted(keys)


def choices() -> dict[str, list[str]]:
    """What doors have."""
    return {door.key: list(door.entries) for door in doors().values()}


KEYS = all_keys()
VALUES = (
    st.sampled_from([*NUMBERS, *TEXTS, *OTHERS]) | st.integers(-5, 5000) | st.floats(width=32) | st.text(max_size=4)
)


@st.composite
def settings_given(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A file and overrides."""
    entries = [
        f"{key} = {toml_value(draw(st.sampled_from(names)))}" for key, names in choices().items() if draw(st.booleans())
    ]
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True)):
        if key not in choices():
            value = draw(VALUES)
            written = toml_value(value) if isinstance(value, bool | int | float | str | list | dict) else ""
            entries.append(f"{key} = {draw(st.sampled_from([written, written, written, *WRITTEN]))}")
    overrides = [
        f"{draw(st.sampled_from(KEYS))}={draw(st.sampled_from(WRITTEN) | VALUES.map(_written))}"
        for _ in range(draw(st.integers(0, 2)))
    ]
    return "\n".join(draw(st.permutations(entries))), overrides


def _written(value: Any) -> str:
    return value if isinstance(value, str) else toml_value(value)


@few_and_many(50, 1000)
def test_settings_are_taken_or_refused(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "drawn.toml"
    sections = {section.name for section in fields(Config)}

    def check(drawn: tuple[str, list[str]]) -> None:
        text, overrides = drawn
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            config = load_config(path, overrides)
        except ConfigError as error:
            told = str(error)
            assert "drawn.toml" in told or "override" in told, told
            assert any(f"{section}" in told for section in sections) or "is not TOML" in told, told
            assert ";" in told or told.count(": ") >= 2, told
            assert len(told) < 5000, told
            return
        path.write_text(to_toml(config), encoding="utf-8")
        assert load_config(path) == config

    hunt(examples, settings_given(), check)


LARGE = st.sampled_from([0, 1, 2, 3, 1 << 10, 1 << 20, 1 << 31, 1 << 45, (1 << 63) - 1])
COMMANDS = [
    ["train", "visits.toml", "train.max_steps=2", "train.output=out"],
    ["simulate", "visits.toml", "--trainers=2", "--batches=2", "--compute-us-per-sample=1"],
    ["compare-policies", "visits.toml", "--trainers=2", "--batches=2", "--policies=bagpipe"],
    ["compare-placements", "clicks.toml", "--batches=2", "--placements=by_table"],
    ["train", "clicks.toml", "train.max_steps=2", "train.output=out"],
]


@st.composite
def extremes(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """A command, and settings whose values are of the right type, some of them large."""
    types: dict[str, Any] = setting_types({})
    entries = draw(st.lists(st.sampled_from(sorted(choices())), max_size=1))
    chosen = {key: draw(st.sampled_from(choices()[key])) for key in entries}
    types = setting_types(chosen)
    keys = [key for key in sorted(types) if key not in OF_WORK and key not in choices()]
    given = [f"{key}={value}" for key, value in chosen.items()]
    for key in draw(st.lists(st.sampled_from(keys), min_size=1, max_size=2, unique=True)):
        kind = types[key]
        by_kind = {
            int: LARGE,
            float: st.sampled_from([0.0, 1e-30, 1e-3, 0.5, 1.0, 2.0, 100.0, 1e9, 3e38]),
            bool: st.booleans(),
            str: st.sampled_from(["auto", "none", "x", "visits", "plan.npz", "native", "reference", "float32"]),
        }
        value = draw(by_kind.get(kind, st.sampled_from(OTHERS)))
        given.append(f"{key}={_written(value)}")
    return draw(st.sampled_from(COMMANDS)), given


@few_and_many(0, 25)
def test_runs_with_extreme_settings(examples: int, sound: Path, tmp_path: Path) -> None:
    def check(drawn: tuple[list[str], list[str]]) -> None:
        command, given = drawn
        with tempfile.TemporaryDirectory(dir=tmp_path) as made:
            here = shutil.copytree(sound, Path(made) / "here")
            require_clear(here, [[*command, *given]], [], given)

    hunt(examples, extremes(), check)
