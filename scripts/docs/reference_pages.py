"""A hook of MkDocs: fills in parts of pages that are made from the code, so that they are never older than the code.

A line `<!-- from the code: commands -->` becomes every command with its arguments, from the parsers that read them;
`<!-- from the code: messages -->` every message of an error that a user may see.
"""

import argparse
from collections import defaultdict
from pathlib import Path

from error_messages import error_classes, messages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]


def in_a_cell(text: str) -> str:
    """Text, escaped for a cell of a table."""
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


def commands() -> str:
    """A part for each command: what it does, its usage, its arguments."""
    from bagpipe_hpc.cli.commands import _parser  # noqa: PLC0415

    parser = _parser()
    (choices,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    described = [action.dest for action in choices._choices_actions]
    lines = []
    for name in sorted(described):
        command = choices.choices[name]
        formatter = argparse.RawDescriptionHelpFormatter(command.prog, width=90)
        formatter.add_usage(command.usage, command._actions, command._mutually_exclusive_groups)
        usage = formatter.format_help().strip()
        lines += [f"## `bagpipe {name}`", "", command.description or "", "", "```text", usage, "```", ""]
        rows = [
            f"| `{in_a_cell(formatter._format_action_invocation(action))}` | {in_a_cell(action.help or '')} |"
            for action in command._actions
            if action.help is not argparse.SUPPRESS and action.dest != "help"
        ]
        if rows:
            lines += ["| argument | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def all_messages() -> str:
    """A part for each class of errors, with its messages in alphabetical order."""
    by_class: defaultdict[str, set[str]] = defaultdict(set)
    for message in messages(ROOT):
        by_class[message.error].add(message.text)
    lines = []
    for name, description in error_classes(ROOT).items():
        if name in by_class:
            lines += [f"### `{name}`", "", " ".join(description.split("\n\n")[0].split()), ""]
            lines += [f"* {in_a_cell(text)}" for text in sorted(by_class[name], key=lambda text: text.strip("… :'`=<"))]
            lines += [""]
    return "\n".join(lines)


PARTS = {"<!-- from the code: commands -->": commands, "<!-- from the code: messages -->": all_messages}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Replace each mark by its part."""
    for mark, part in PARTS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, part())
    return markdown
