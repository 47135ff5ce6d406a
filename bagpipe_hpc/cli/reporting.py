"""`bagpipe report`: a page about one run or several."""

from argparse import Namespace
from pathlib import Path

from bagpipe_hpc.cli.argument_types import named_path
from bagpipe_hpc.cli.command_parser import CommandParser
from bagpipe_hpc.terminal import printable

_DEFAULT = Path("report.html")


def add_report(parser: CommandParser) -> None:
    """Give the command its arguments."""
    parser.add_argument("runs", type=named_path, nargs="+", metavar="RUN", help="output folders; runs may still go on")
    parser.add_argument(
        "-o", "--output", type=named_path, default=_DEFAULT, metavar="FILE.html", help=f"the page (default: {_DEFAULT})"
    )


def report(arguments: Namespace) -> int:
    """Write the page.

    Returns:
        The exit code.

    Raises:
        FileError: a folder is not that of a run, or the page cannot be written.
    """
    from bagpipe_hpc.tools.run_report.report import write_report

    write_report(arguments.runs, arguments.output)
    print(printable(str(arguments.output)))
    return 0
