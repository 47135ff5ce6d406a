"""How commands have to end, whatever they are given: with the result, or with one message that names what is wrong."""

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.fork_server import forked_rank
from tests.ranks import rank_environment

MORE_BYTES = 6 << 30
"""Of address space, most of which is never touched: libraries and threads reserve plenty."""
LONGEST_S = 120.0
"""Of a request, which takes a second on quiet cores."""
_USAGE = ("argument", "required", "invalid choice", "unrecognized", "expected", "not allowed with", "ambiguous")


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        arguments: of `bagpipe`.
        code: its exit code; None where it ended in an exception, was killed, or did not end in time.
        said: all that it printed.
        cpu_s: seconds of processor time.
    """

    arguments: tuple[str, ...]
    code: int | None
    said: str
    cpu_s: float = 0.0

    @property
    def errors(self) -> list[str]:
        """The messages that begin with the program's name."""
        return [line for line in self.said.splitlines() if re.match(r"bagpipe[a-z -]*: error: ", line)]


def run_limited(folder: Path, commands: Sequence[Sequence[str]]) -> list[Ended]:
    """Run commands one after the other in a fork with a limit of memory and time; the last one may have died."""
    request = folder / f"request-{uuid4().hex}.json"
    request.write_text(json.dumps({"commands": commands, "more_bytes": MORE_BYTES}), encoding="utf-8")
    command = [*forked_rank("tests.fuzz.limited"), str(request)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, cwd=folder, env=rank_environment()
    )
    try:
        out, error = process.communicate(timeout=LONGEST_S)
        why = f"it died with status {process.returncode}\n{error}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        why = f"it did not end within {LONGEST_S} s\n{error}"
    request.unlink()
    ended = [Ended(tuple(given), **json.loads(line)) for given, line in zip(commands, out.splitlines(), strict=False)]
    if len(ended) < len(commands):
        ended.append(Ended(tuple(commands[len(ended)]), None, why))
    return ended


def fault_of(ended: Ended, names: Sequence[str] = ()) -> str | None:
    """What is wrong with how a command ended; None if nothing is.

    Args:
        ended: the command.
        names: words one of which a refusal has to have: the file, the field or the argument that is wrong.
    """
    if ended.code is None or "Traceback (most recent call last)" in ended.said:
        return "it ended in a traceback, was killed, or did not end"
    if "Warning:" in ended.said:
        return "it let a warning of a library through"
    if ended.code not in (0, 1, 2):
        return f"its exit code is {ended.code}"
    if ended.code != 2:
        return None
    if len(ended.errors) != 1:
        return f"it says {len(ended.errors)} messages"
    [message] = ended.errors
    if names and not any(name in message for name in names):
        return "its message names neither file nor field"
    is_unknown = message.startswith("bagpipe: error: unrecognized arguments: ")  # of which an empty one shows nothing
    is_usage = is_unknown or (not message.startswith("bagpipe: error") and any(word in message for word in _USAGE))
    if not is_usage and not re.search(r"[;:,(] ?\S", message.partition("error: ")[2]):
        return "its message names no cure"
    return None
