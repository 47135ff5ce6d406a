"""The examples of `docs/extending.md`, taken out of the page: tests train with what a reader would copy.

A part of the page stands under a heading of the second level, `## Row optimizer`. Each of its blocks of `python` begins
with a comment that names its file, `# my_rows.py`; its blocks of `toml` are sections of a configuration.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.config.values import toml_value

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
DOORS = ("Model", "Row optimizer", "Dense optimizer", "Source format", "Placement", "Policy")
"""The parts of the page that hold an example each."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Example:
    """The code of one part of the page.

    Attributes:
        folder: where its modules were written.
        toml: its sections of a configuration.
    """

    folder: Path
    toml: str

    @property
    def overrides(self) -> list[str]:
        """The settings of its TOML, each as an override: `optimizer.rows="my_rows:Momentum"`."""
        sections = tomllib.loads(self.toml)
        return [f"{name}.{key}={toml_value(value)}" for name, part in sections.items() for key, value in part.items()]

    @property
    def environment(self) -> dict[str, str]:
        """With it ranks and other processes find the modules: `run_ranks(..., env=example.environment)`."""
        others = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join([str(self.folder), *([others] if others else [])])}

    @contextmanager
    def importable(self) -> Iterator[None]:
        """During the body this process finds the modules; afterwards it has forgotten them."""
        sys.path.insert(0, str(self.folder))
        try:
            yield
        finally:
            sys.path.remove(str(self.folder))
            for path in self.folder.glob("*.py"):
                sys.modules.pop(path.stem, None)


def write_example(heading: str, folder: Path, page: Path = PAGE) -> Example:
    """Take the example of one part out of the page.

    Args:
        heading: of the part, such as `Row optimizer`.
        folder: where its modules are written.
        page: the page.
    """
    blocks = _BLOCK.findall(part_of_page(heading, page))
    modules = [code for language, code in blocks if language == "python"]
    assert modules, f"{page}: no code under '## {heading}'"
    for code in modules:
        name = _FILE_NAME.match(code)
        assert name, f"{page}: a block under '## {heading}' does not begin with the name of its file"
        (folder / name[1]).write_text(code, encoding="utf-8")
    return Example(folder, "\n".join(text for language, text in blocks if language == "toml"))


def part_of_page(heading: str, page: Path = PAGE) -> str:
    """The text between a heading of the second level and the next one."""
    parts = re.split(r"^## (.+)$", _without_headings_in_code(page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert heading in found, f"{page}: no heading '## {heading}' among {', '.join(found)}"
    return found[heading]


def _without_headings_in_code(text: str) -> str:
    """The page, where no line of a block of code is taken for a heading: comments `## ...` get one sign more."""
    return _BLOCK.sub(lambda block: block[0].replace("\n## ", "\n### "), text)
