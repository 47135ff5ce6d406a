"""`bagpipe place`: makes a placement's plan beforehand, where finding one takes a while."""

from argparse import Namespace

from bagpipe_hpc.cli.argument_types import nodes
from bagpipe_hpc.cli.command_parser import CommandParser, add_config
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.terminal import printable


def add_place(parser: CommandParser) -> None:
    """Give the command its arguments."""
    add_config(parser)
    parser.add_argument("--servers", type=nodes, required=True, metavar="S", help="servers of the run")


def place(arguments: Namespace) -> int:
    """Make the plan, and say what it is.

    Returns:
        The exit code.

    Raises:
        BagpipeError: there is no plan, or it cannot be written.
    """
    config = load_config(arguments.config, arguments.overrides)
    from bagpipe_hpc.tools.placement.place import place_tables

    place_tables(config, arguments.servers, lambda line: print(printable(line), flush=True))
    return 0
