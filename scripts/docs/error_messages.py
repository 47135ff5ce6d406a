"""Reads every error message that a user may see out of the source: the text of `raise ConfigError(f"...")`."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("bagpipe_hpc", "data_prep")
WORD = re.compile(r"[A-Za-z]{2,}")
FEWEST_WORDS = 3
"""Texts with fewer words only say how a message is put together, such as `…: …`."""


@dataclass(frozen=True)
class Message:
    """A message.

    Attributes:
        error: class of its error.
        text: its text; `…` stands for what is filled in.
        file: path of its source file, from the root of the repository.
    """

    error: str
    text: str
    file: str


def error_classes(root: Path) -> dict[str, str]:
    """The classes below `BagpipeError`, with their descriptions, by their names in `bagpipe_hpc/errors.py`."""
    tree = ast.parse((root / "bagpipe_hpc" / "errors.py").read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = ast.get_docstring(node) or ""
    return found


def messages(root: Path) -> Iterator[Message]:
    """All messages of these errors, file by file."""
    names = set(error_classes(root))
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                    for text in {_text(argument) for argument in node.args}:
                        if len(WORD.findall(text)) >= FEWEST_WORDS:
                            yield Message(node.func.id, text, path.relative_to(root).as_posix())


def _text(node: ast.expr) -> str:
    """The text of an expression, as far as the source has it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body):
            return _text(body)
    return "…"
