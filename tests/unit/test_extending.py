"""`docs/extending.md` has a part for each door, and the harness writes down what stands there."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from tests.extending import DOORS, Example, part_of_page, write_example

PAGE = """# A page

## One door
Prose.

```python
# one_rule.py
## not a heading
VALUE = 3
```

```toml
[train]
seed = 7
output = "some where"
```

```python
# another_rule.py
from one_rule import VALUE
```

## Another door

```python
VALUE = 4
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_every_door_has_its_part() -> None:
    assert all(part_of_page(door) for door in DOORS)


def test_an_example_can_be_imported_and_is_forgotten(page: Path, tmp_path: Path) -> None:
    found = write_example("One door", tmp_path, page)
    with found.importable():
        assert importlib.import_module("another_rule").VALUE == 3
    assert {"one_rule", "another_rule"}.isdisjoint(sys.modules)
    assert str(tmp_path) not in sys.path


def test_settings_of_an_example_are_overrides(page: Path, tmp_path: Path) -> None:
    found = write_example("One door", tmp_path, page)
    (tmp_path / "run.toml").write_text("[train]\nseed = 1\n")
    train = load_config(tmp_path / "run.toml", found.overrides).train
    assert (train.seed, train.output) == (7, "some where")


def test_ranks_find_an_example_first(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = write_example("One door", tmp_path, page)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert found.environment == {"PYTHONPATH": str(tmp_path)}
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert found.environment == {"PYTHONPATH": f"{tmp_path}{os.pathsep}elsewhere"}


def test_a_page_without_the_example_is_noticed(page: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no heading '## A third door' among One door, Another door"):
        write_example("A third door", tmp_path, page)
    with pytest.raises(AssertionError, match="does not begin with the name of its file"):
        write_example("Another door", tmp_path, page)


@pytest.mark.parametrize("door", [door for door in DOORS if "```python" in part_of_page(door)])
def test_an_example_is_short_and_whole(door: str, example: Callable[[str], Example]) -> None:
    """Its modules import by themselves, and each fits on a screen."""
    for path in example(door).folder.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 60
        importlib.import_module(path.stem)
