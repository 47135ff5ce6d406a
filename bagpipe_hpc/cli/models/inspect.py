"""`bagpipe inspect` describes a folder and measures the look-ups of shards; `compare` compares two checkpoints."""

import os
import sys
from argparse import Namespace
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path

from bagpipe_hpc.cli.arguments.parser import CommandParser
from bagpipe_hpc.cli.arguments.types import named_path, positive, tolerance
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.exit_codes import EXIT_DIFFERENT, EXIT_OK
from bagpipe_hpc.terminal import printable

_BATCH_SIZE = 2048
"""The default of `train.batch_size`."""


def _add_inspect(parser: CommandParser) -> None:
    meaning = "a folder of shards, a checkpoint, or a run's output folder for its newest"
    parser.add_argument("path", type=named_path, metavar="PATH", help=meaning)
    parser.add_argument("--verify", action="store_true", help="read every file and check its checksum")
    parser.add_argument(
        "--look-ups", action="store_true", help="read the ids of shards: skew, missing values, reuse of rows by batches"
    )
    parser.add_argument(
        "--batch-size", type=positive, metavar="N", help=f"samples of a batch, for --look-ups (default: {_BATCH_SIZE})"
    )
    parser.add_argument("--plot", type=named_path, metavar="FILE.svg", help="draw what --look-ups finds")
    parser.add_argument("--json", type=named_path, metavar="FILE", help="write what --look-ups finds")
    parser.add_argument(
        "--statistics",
        type=named_path,
        metavar="FILE.npz",
        help="count the look-ups of each row of the training split, for placements by statistics",
    )


def _inspect(arguments: Namespace) -> int:
    """Describe the folder on the terminal; the exit code says whether files are damaged or absent."""
    from bagpipe_hpc.tools.inspection.describe import describe

    measures = arguments.look_ups or arguments.batch_size or arguments.plot or arguments.json
    if measures or arguments.statistics:
        _check_outputs(arguments)
    description = describe(arguments.path, verify=arguments.verify)
    _say(arguments, description.text)
    for fault in description.faults:
        print(printable(f"bagpipe: {fault}"), file=sys.stderr)
    if description.faults:
        return EXIT_DIFFERENT
    if measures:
        _measure(arguments)
    if arguments.statistics:
        _count(arguments)
    return EXIT_OK


def _say(arguments: Namespace, *lines: str) -> None:
    """Print lines. Files that are asked for are written even if the reader of stdout, such as `head`, has gone."""
    writes_files = arguments.plot or arguments.json or arguments.statistics
    with suppress(BrokenPipeError) if writes_files else nullcontext():
        print(*map(printable, lines), sep="\n", flush=True)


def _count(arguments: Namespace) -> None:
    from bagpipe_hpc.storage.shards.manifest import load_manifest
    from bagpipe_hpc.tools.inspection.access_counts import save_statistics

    found = save_statistics(arguments.path, load_manifest(arguments.path), arguments.statistics)
    used = sum(table.used for table in found.tables.values())
    look_ups = sum(table.look_ups for table in found.tables.values())
    _say(arguments, "", f"{found.source}: {look_ups} look-ups of {used} rows")


def _measure(arguments: Namespace) -> None:
    from bagpipe_hpc.storage.shards.manifest import load_manifest
    from bagpipe_hpc.tools.inspection.look_up_plot import save_plot
    from bagpipe_hpc.tools.inspection.look_up_text import look_up_lines
    from bagpipe_hpc.tools.inspection.look_ups import measure_look_ups

    found = measure_look_ups(arguments.path, load_manifest(arguments.path), arguments.batch_size or _BATCH_SIZE)
    with ExitStack() as then:
        if arguments.json:
            then.callback(found.save, arguments.json)
        if arguments.plot:
            then.callback(save_plot, found, arguments.plot)
        _say(arguments, "", *look_up_lines(found))


def _check_outputs(arguments: Namespace) -> None:
    """Refuse what could not be measured or written, before anything is read."""
    from bagpipe_hpc.storage.checkpoints.folder import is_checkpoint
    from bagpipe_hpc.storage.shards.manifest import load_manifest

    if arguments.plot and arguments.plot.suffix != ".svg":
        raise ConfigError(f"inspect: plot = {str(arguments.plot)!r}: is drawn as SVG; use a name that ends in .svg")
    if arguments.statistics and arguments.statistics.suffix != ".npz":
        raise ConfigError(
            f"inspect: statistics = {str(arguments.statistics)!r}: use a name that ends in .npz, as NumPy's files do"
        )
    outputs = {"plot": arguments.plot, "json": arguments.json, "statistics": arguments.statistics}
    named: dict[Path, str] = {}
    for name, path in outputs.items():
        if path is None:
            continue
        if (other := named.setdefault(path.absolute(), name)) != name:
            raise ConfigError(f"inspect: {other} = {str(path)!r}: is the file of --{name} as well; name two files")
        if os.path.lexists(path):
            raise ConfigError(f"inspect: {name} = {str(path)!r}: is there already; remove it, or use another name")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise ConfigError(
                f"inspect: {name} = {str(path)!r}: its folder does not exist or cannot be written to; make it, or "
                "check its permissions"
            )
    if is_checkpoint(arguments.path):
        raise ConfigError(f"inspect: {arguments.path} is a checkpoint; --look-ups are those of a shard directory")
    load_manifest(arguments.path)


def _add_compare(parser: CommandParser) -> None:
    for name, metavar in (("first", "A"), ("second", "B")):
        meaning = "a checkpoint, or a run's output folder for its newest"
        parser.add_argument(name, type=named_path, metavar=metavar, help=meaning)
    parser.add_argument(
        "--tolerance", type=tolerance, default=0.0, metavar="X", help="largest difference allowed (default: 0)"
    )


def _compare(arguments: Namespace) -> int:
    from bagpipe_hpc.tools.inspection.compare import compare

    comparison = compare(arguments.first, arguments.second)
    print(printable(comparison.report()))
    return EXIT_OK if comparison.largest() <= arguments.tolerance else EXIT_DIFFERENT


INSPECT = Command("inspect", "describe a shard directory or a checkpoint", _add_inspect, _inspect)
COMPARE = Command("compare", "compare two checkpoints; exits with 1 where they differ", _add_compare, _compare)
