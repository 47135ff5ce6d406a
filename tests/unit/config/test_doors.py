"""What others add is found by name with its own settings, or refused by name with what there is."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bagpipe_hpc.config.doors import MODELS, Door, Entry, SettingError
from bagpipe_hpc.config.file import load_config, setting_types, to_toml
from bagpipe_hpc.config.schema import Config, ModelConfig
from bagpipe_hpc.errors import CapacityError, ConfigError

ADDED = '''
from dataclasses import dataclass, field, make_dataclass
from typing import ClassVar
from bagpipe_hpc.config.doors import SettingError

@dataclass(frozen=True)
class Widths:
    """Widths of a wide model."""

    wide: int = 8
    """Columns."""
    names: tuple[str, ...] = ("a",)
    """Names."""
    rates: tuple[float, ...] = (0.5,)
    """Rates."""

    def __post_init__(self):
        if self.wide < 1:
            raise SettingError("wide", self.wide, "use 1 or more")

class Wide:
    Settings = Widths

class Plain:
    pass

class Loose:
    class Settings:
        pass

@dataclass(frozen=True)
class NoDefault:
    wide: int

class Undecided:
    Settings = NoDefault

@dataclass(frozen=True)
class OddType:
    wide: bytes = b""

class Odd:
    Settings = OddType

class Thawed:
    @dataclass
    class Settings:
        wide: int = 8

class Shadow:
    @dataclass(frozen=True)
    class Settings:
        precision: str = "low"

class NotANumber:
    @dataclass(frozen=True)
    class Settings:
        wide: float = float("nan")

class Listed:
    @dataclass(frozen=True)
    class Settings:
        widths: tuple[int, ...] = field(default_factory=lambda: [1])

class Foreign:
    @dataclass(frozen=True)
    class Settings:
        größe: int = 8

class Strict:
    @dataclass(frozen=True)
    class Settings:
        wide: int = 8

        def __post_init__(self):
            if self.wide % 2:
                raise ValueError("an odd width")

class Undeclared:
    @dataclass(frozen=True)
    class Settings:
        wide: "Width" = 8

class TextStart:
    @dataclass(frozen=True)
    class Settings:
        initial_bound: ClassVar[str] = "0.01"

class WrongStart:
    @dataclass(frozen=True)
    class Settings:
        initial_bound: ClassVar[float] = -1.0

class SmallStart:
    @dataclass(frozen=True)
    class Settings:
        initial_bound: ClassVar[float] = 0.5

class Nowhere:
    Settings = make_dataclass("Widths", [("wide", int, 8)], frozen=True)
    Settings.__module__ = "elsewhere"

def function():
    pass
'''


BROKEN = {
    "misspelt": ("def (:", "importing misspelt fails: SyntaxError: invalid syntax (misspelt.py, line 1)"),
    "outdated": ("from os import not_there", "importing outdated fails: ImportError: cannot import name 'not_there'"),
    "failing": ("\nraise RuntimeError('boom')", "importing failing fails: RuntimeError: boom (failing.py, line 2)"),
    "peculiar": (
        "class OddError(Exception): pass\nraise OddError('mine')",
        "importing peculiar fails: OddError: mine (peculiar.py, line 2)",
    ),
    "leaving": ("import sys; sys.exit(3)", "importing leaving ends the program (3)"),
    "unnamed": ("raise ModuleNotFoundError('x')", "importing unnamed fails: ModuleNotFoundError: x"),
}
"""Modules that cannot be imported, and what is said of each."""


@pytest.fixture(autouse=True)
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of somebody else's on the path."""
    (tmp_path / "somebodys.py").write_text(ADDED, encoding="utf-8")
    (tmp_path / "broken.py").write_text("import a_package_that_is_not_there\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("somebodys", None)


def load(folder: Path, text: str, *overrides: str) -> Config:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, overrides)


def refusal(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, *overrides)
    return str(caught.value)


def test_a_short_name_and_a_path_are_found() -> None:
    assert MODELS.implementation("somebodys:Wide").__name__ == "Wide"
    door = Door("model.name", "model.", {"wide": Entry("somebodys:Wide", "somebodys:Widths")})
    assert door.implementation("wide") is door.implementation("somebodys:Wide")
    assert door.settings_class("wide") is door.settings_class("somebodys:Wide")


def test_own_settings_stand_beside_the_choice_and_come_back(tmp_path: Path) -> None:
    text = '[model]\nname = "somebodys:Wide"\nwide = 5\nrates = [1, 2.5]\nembedding_dim = 4'
    config = load(tmp_path, text)
    assert (config.model.settings.wide, config.model.settings.rates, config.model.embedding_dim) == (5, (1.0, 2.5), 4)
    assert load(tmp_path, to_toml(config)) == config


def test_an_override_chooses_whatever_the_file_says(tmp_path: Path) -> None:
    config = load(tmp_path, '[model]\nname = "dlrm"', "model.name=somebodys:Wide", "model.wide=3")
    assert config.model.settings.wide == 3
    assert "model.wide" in setting_types({"model.name": "somebodys:Wide"})
    assert "model.top_mlp" not in setting_types({"model.name": "somebodys:Plain"})


def test_a_model_may_say_how_rows_begin(tmp_path: Path) -> None:
    assert load(tmp_path, "", "model.name=somebodys:SmallStart").initial_bound == 0.5
    assert load(tmp_path, "[tables]\ninitial_bound = 0.1", "model.name=somebodys:SmallStart").initial_bound == 0.1
    assert load(tmp_path, "", "model.name=somebodys:Plain").initial_bound == 0.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "dlmr"', ["model.name = 'dlmr'", "use one of dlrm, ", ", din, graphsage, or package.module:Class"]),
        ('name = "nowhere:Model"', ["there is no module nowhere", "PYTHONPATH"]),
        ('name = "somebodys:Wider"', ["somebodys (", "somebodys.py) has no Wider"]),
        ('name = "broken:Wide"', ["broken imports a_package_that_is_not_there, which is not installed"]),
        ('name = "somebodys:Loose"', ["its Settings must be a frozen dataclass"]),
        ('name = "somebodys:Undecided"', ["its Settings must give wide a default"]),
        ('name = "somebodys:Odd"', ["give wide a type that"]),
        ('name = "somebodys:function"', ["function of somebodys (", "somebodys.py) is no class"]),
        ('name = ".somebodys:Wide"', ["model.name = '.somebodys:Wide': use one of dlrm"]),
        ('name = "somebodys:Thawed"', ["its Settings must be a frozen dataclass"]),
        ('name = "somebodys:Shadow"', ["would make a second model.precision"]),
        ('name = "somebodys:Shadow"\nprecision = "float32"', ["would make a second model.precision"]),
        ('name = "somebodys:NotANumber"', ["give wide the default nan: use a finite number"]),
        ('name = "somebodys:Listed"', ["give widths the default [1]: use a tuple of whole numbers"]),
        ('name = "somebodys:Foreign"', ["its Settings have größe: use letters of ASCII"]),
        ('name = "somebodys:Strict"\nwide = 3', ["refuse wide = 3: ValueError: an odd width (somebodys.py, line"]),
        ('name = "somebodys:Undeclared"', ["the types in its Settings cannot be read: NameError", "'Width'"]),
        ('name = "somebodys:Nowhere"', ["call themselves elsewhere.Widths, and are not found there"]),
        ('name = "somebodys:TextStart"', ["model.initial_bound = '0.01': its Settings must say a number"]),
        ('name = "somebodys:WrongStart"', ["model.initial_bound = -1.0: use 0 for 1/sqrt(rows of the table), or"]),
        ('name = "somebodys:Wide"\nwide = 0', ["model.wide = 0: use 1 or more"]),
        ('name = "somebodys:Wide"\nwide = 0.5', ["model.wide = 0.5: use a whole number"]),
        ('name = "somebodys:Wide"\ntop_mlp = [8]', ["no such setting", "has model.wide, model.names, model.rates"]),
        ('name = "somebodys:Plain"\nwide = 8', ["no such setting", "what model.name names has no settings"]),
        ("name = 5", ["model.name = 5: use a string in quotes"]),
    ],
)
def test_a_wrong_choice_is_refused_by_name(tmp_path: Path, text: str, said: list[str]) -> None:
    message = refusal(tmp_path, f"[model]\n{text}")
    assert "run.toml" in message
    for part in said:
        assert part in message


@pytest.mark.parametrize("name", BROKEN)
def test_a_module_that_cannot_be_imported_is_refused(name: str, tmp_path: Path) -> None:
    code, said = BROKEN[name]
    (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    importlib.invalidate_caches()
    message = refusal(tmp_path, f'[model]\nname = "{name}:Model"')
    assert message.startswith(f"{tmp_path / 'run.toml'}: model.name = '{name}:Model': {said}")


def test_a_wrong_override_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, "", "model.name=dlmr").startswith("override 'model.name=dlmr': model.name = 'dlmr'")


def test_the_settings_of_another_entry_are_a_defect() -> None:
    with pytest.raises(TypeError, match="no DLRMSettings"):
        ModelConfig(settings=MODELS.settings_class("somebodys:Wide")())
    with pytest.raises(SettingError, match="one of dlrm"):
        ModelConfig(name="dlmr")


def test_a_module_of_the_current_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by the command `bagpipe`, whose own folder is the one that Python puts first; installed packages win."""
    (tmp_path / "lies_here.py").write_text("class Model: ...")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    assert MODELS.implementation("lies_here:Model").__name__ == "Model"
    assert sys.path[-1] == ""
    del sys.modules["lies_here"]


def test_a_limit_that_an_entry_meets_is_not_its_fault() -> None:
    with pytest.raises(CapacityError, match=r"^no more threads"), MODELS.blaming("dlrm", "forward fails"):
        raise RuntimeError("can't start new thread")
