"""Print the settings for one rank to repeat a run: reference_settings.py RUN/config.toml [section.field=value ...].

They are the given ones, a line each, and what the run itself has chosen: its device, and its linear layers.
"""

import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

SETTLED = ("kernels.linear", "train.device")


def reference_settings(config: Path, given: Iterable[str]) -> Iterator[str]:
    """The lines to print; a given `auto` is replaced by what the run has chosen."""
    recorded = tomllib.loads(config.read_text(encoding="utf-8"))
    named = set()
    for text in given:
        key, _, value = (part.strip() for part in text.partition("="))
        if key in SETTLED and value.strip("\"'") == "auto":
            continue
        named.add(key)
        yield text
    for key in SETTLED:
        section, _, name = key.partition(".")
        if key not in named:
            yield f"{key}={recorded[section][name]}"


if __name__ == "__main__":
    print("\n".join(reference_settings(Path(sys.argv[1]), sys.argv[2:])))
