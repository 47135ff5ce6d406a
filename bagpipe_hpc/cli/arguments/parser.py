"""The argument parser of each command."""

import argparse
import sys
from typing import Any, NoReturn

from bagpipe_hpc.cli.arguments.order import positionals_first
from bagpipe_hpc.cli.arguments.types import named_path, path_text
from bagpipe_hpc.cli.outcome import is_first_rank
from bagpipe_hpc.exit_codes import EXIT_ERROR
from bagpipe_hpc.terminal import printable


class CommandParser(argparse.ArgumentParser):
    """Prints a usage error on the first rank only: a launcher gives all ranks the same arguments."""

    _takes_overrides = False

    def add_overrides(self, name: str, nargs: str, metavar: str, meaning: str) -> None:
        """Let overrides stand anywhere among the arguments."""
        self._takes_overrides = True
        self.add_argument(name, nargs=nargs, metavar=metavar, help=meaning)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, which calls this for the arguments of a command, too."""
        if self._takes_overrides:
            args = positionals_first(self._actions, args)
        return super().parse_known_args(args, namespace)

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse's, but an error of the stream is raised, not ignored."""
        stream = file or sys.stderr
        stream.write(message)
        stream.flush()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end the process."""
        if is_first_rank():
            super().error(printable(message))
        self.exit(EXIT_ERROR)


def add_config(parser: CommandParser, overrides: str = "replace single settings") -> None:
    """Add the arguments that name a run's settings, for commands that use them as `bagpipe train` does.

    Args:
        parser: the command's parser.
        overrides: help text of the overrides.
    """
    parser.add_argument("config", type=named_path, metavar="CONFIG.toml", help="settings, as for bagpipe train")
    parser.add_overrides("overrides", "*", "section.field=value", overrides)


def add_checkpoint(parser: CommandParser) -> None:
    """Add the arguments that name a checkpoint."""
    parser.add_argument(
        "checkpoint", type=named_path, metavar="CHECKPOINT", help="its folder, or a run's output folder for the newest"
    )
    parser.add_argument("--best", action="store_true", help="of an output folder, take the best checkpoint")


def add_input(parser: CommandParser, meaning: str) -> None:
    """Add the argument that names files of rows; it may be given several times."""
    parser.add_argument(
        "--input", type=path_text, nargs="+", action="extend", required=True, metavar="FILE", help=meaning
    )
