"""What a command of `bagpipe` is."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from bagpipe_hpc.cli.arguments.parser import CommandParser


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        name: as it is typed.
        summary: what it does, for help.
        add_arguments: gives the command's parser its arguments.
        run: does the work, and returns the exit code.
        if_interrupted: what to do after Ctrl-C; follows the word `interrupted`.
    """

    name: str
    summary: str
    add_arguments: Callable[[CommandParser], None]
    run: Callable[[argparse.Namespace], int]
    if_interrupted: str = ""

    def add_to(self, commands: "argparse._SubParsersAction[CommandParser]") -> None:
        """Add it to the commands that there are."""
        description = f"{self.summary[0].upper()}{self.summary[1:]}."
        parser = commands.add_parser(self.name, help=self.summary, description=description)
        self.add_arguments(parser)
        parser.set_defaults(command=self)
