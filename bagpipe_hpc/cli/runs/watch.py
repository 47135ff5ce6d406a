"""`bagpipe top` and `report`: what each rank of a run does now, and what runs have done."""

import sys
import time
from argparse import Namespace
from pathlib import Path

from bagpipe_hpc.cli.arguments.parser import CommandParser
from bagpipe_hpc.cli.arguments.types import named_path, positive, seconds
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.errors import FileError
from bagpipe_hpc.exit_codes import EXIT_DIFFERENT, EXIT_OK
from bagpipe_hpc.terminal import printable, takes_codes

_CLEAR = "\x1b[H\x1b[J"
"""Terminal codes: move the cursor to the top left corner, and clear from there on."""
_DEFAULT_PAGE = Path("report.html")


def _add_top(parser: CommandParser) -> None:
    parser.add_argument("output", type=named_path, metavar="OUTPUT", help="folder of the run")
    parser.add_argument("--every", type=seconds, default=2.0, metavar="S", help="seconds between updates (default: 2)")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--once", action="store_true", help="look once; exits with 1 where a rank no longer reports")
    shown.add_argument(
        "--serve", type=positive, metavar="PORT", help="answer a Prometheus of this host at 127.0.0.1:PORT/metrics"
    )


def _top(arguments: Namespace) -> int:
    """Show the ranks again and again until Ctrl-C; once where stdout is no terminal, which says if a rank is stale."""
    from bagpipe_hpc.tools.monitoring.top import view

    if arguments.serve:
        return _serve(arguments.output, arguments.serve)
    if arguments.once or not sys.stdout.isatty():
        found = view(arguments.output)
        print(*map(printable, found.lines), sep="\n")
        return EXIT_DIFFERENT if found.stale else EXIT_OK
    lines = view(arguments.output).lines  # says what is wrong, if no rank tells anything
    try:
        while True:
            print((_CLEAR if takes_codes() else "\n") + "\n".join(map(printable, lines)), flush=True)
            time.sleep(arguments.every)
            try:
                lines = view(arguments.output).lines
            except FileError as error:  # a start that goes on removes the files of the one before
                lines = [str(error)]
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


def _add_report(parser: CommandParser) -> None:
    parser.add_argument("runs", type=named_path, nargs="+", metavar="RUN", help="output folders; runs may still go on")
    parser.add_argument(
        *("-o", "--output"),
        type=named_path,
        default=_DEFAULT_PAGE,
        metavar="FILE.html",
        help=f"the page (default: {_DEFAULT_PAGE})",
    )


def _report(arguments: Namespace) -> int:
    from bagpipe_hpc.tools.run_report.report import write_report

    write_report(arguments.runs, arguments.output)
    print(printable(str(arguments.output)))
    return EXIT_OK


TOP = Command("top", "show what each rank of a run does now", _add_top, _top)
REPORT = Command("report", "write a page about one run or several, side by side", _add_report, _report)
