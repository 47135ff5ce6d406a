"""`bagpipe top`: what each rank of a run does now."""

import sys
import time
from argparse import Namespace
from pathlib import Path

from bagpipe_hpc.cli.argument_types import named_path, positive, seconds
from bagpipe_hpc.cli.command_parser import CommandParser
from bagpipe_hpc.cli.outcome import EXIT_DIFFERENT, EXIT_OK
from bagpipe_hpc.terminal import printable

_CLEAR = "\x1b[H\x1b[J"
"""Terminal codes: move the cursor to the top left corner, and clear from there on."""


def add_top(parser: CommandParser) -> None:
    """Give the command its arguments."""
    parser.add_argument("output", type=named_path, metavar="OUTPUT", help="folder of the run")
    parser.add_argument("--every", type=seconds, default=2.0, metavar="S", help="seconds between updates (default: 2)")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--once", action="store_true", help="look once; exits with 1 where a rank no longer reports")
    shown.add_argument(
        "--serve", type=positive, metavar="PORT", help="answer a Prometheus of this host at 127.0.0.1:PORT/metrics"
    )


def top(arguments: Namespace) -> int:
    """Show the ranks again and again until Ctrl-C; once where stdout is no terminal.

    Returns:
        The exit code; where it looks once, `EXIT_DIFFERENT` if a rank is stale.

    Raises:
        FileError: no rank reports there, or the port is taken.
    """
    from bagpipe_hpc.tools.monitoring.top import view

    if arguments.serve:
        return _serve(arguments.output, arguments.serve)
    if arguments.once or not sys.stdout.isatty():
        found = view(arguments.output)
        print(*map(printable, found.lines), sep="\n")
        return EXIT_DIFFERENT if found.stale else EXIT_OK
    try:
        while True:
            lines = view(arguments.output).lines
            print(_CLEAR + "\n".join(map(printable, lines)), flush=True)
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        return EXIT_OK


def _serve(output: Path, port: int) -> int:
    from bagpipe_hpc.tools.monitoring.metrics_server import metrics_server
    from bagpipe_hpc.tools.monitoring.top import view

    view(output)  # says what is wrong, if no rank tells anything
    with metrics_server(output, port) as server:
        print(f"http://127.0.0.1:{port}/metrics", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return EXIT_OK
    return EXIT_OK
