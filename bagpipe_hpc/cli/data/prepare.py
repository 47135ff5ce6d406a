"""`bagpipe prepare`, as one process or as the ranks that a launcher started."""

from argparse import Namespace
from typing import TYPE_CHECKING

from bagpipe_hpc.cli.arguments.parser import CommandParser, add_input
from bagpipe_hpc.cli.arguments.types import count, fraction, named_path, path_text, positive
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.outcome import is_first_rank, is_torn, launched_ranks, print_error
from bagpipe_hpc.cli.streams import tell
from bagpipe_hpc.config.doors import SOURCE_FORMATS
from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.exit_codes import EXIT_ERROR, EXIT_OK

if TYPE_CHECKING:
    from data_prep.prepare_settings import PrepareSettings

_START_S = 180.0
"""Longest wait for the other ranks to start: a cold file system is slow to load the interpreters."""
_END_S = 60.0
_DEFAULT_MIN_COUNT = 2
"""Not given to argparse as the default, which then overlooks a clash of exclusive options where one has that value."""


def _add_arguments(parser: CommandParser) -> None:
    formats = f"format of the input: {', '.join(SOURCE_FORMATS.entries)}, or package.module:Class (default: criteo)"
    described = parser.add_mutually_exclusive_group()
    described.add_argument("--format", metavar="NAME", help=formats)
    described.add_argument(
        "--schema",
        type=path_text,
        metavar="FILE.toml",
        help="describes the columns of any CSV, TSV or Parquet; `bagpipe schema` helps",
    )
    parser.add_argument(
        "--format-option", action="append", default=[], metavar="KEY=VALUE", help="a setting of the format's own"
    )
    add_input(parser, "files or glob patterns, in time order")
    parser.add_argument("--output", type=named_path, required=True, metavar="DIR", help="shard directory to write")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument(
        "--min-count", type=positive, metavar="N", help=f"rarer values share a row (default: {_DEFAULT_MIN_COUNT})"
    )
    sizes.add_argument(
        "--max-rows-per-table", type=positive, metavar="N", help="hash the values of larger tables into N rows"
    )
    parser.add_argument(
        "--unseen-buckets",
        type=count,
        metavar="N",
        help="rows of a table that rarer and later values share (default: 0)",
    )
    later = parser.add_mutually_exclusive_group()
    later.add_argument(
        "--like", type=named_path, metavar="DIR", help="prepare later rows with DIR's format, settings and ids"
    )
    later.add_argument("--grow", type=named_path, metavar="DIR", help="as --like, but new values get ids of their own")
    parser.add_argument(
        "--evict-unused",
        type=positive,
        metavar="N",
        help="with --grow: values that none of the last N training rows uses lose their ids",
    )
    parser.add_argument(
        "--rows-per-shard", type=positive, default=1 << 20, metavar="N", help="rows of a shard (default: 1048576)"
    )
    parser.add_argument(
        "--test-fraction",
        type=fraction,
        metavar="F",
        help="last part of the rows, the test split (default: 0.1; with --like all of them)",
    )
    parser.add_argument("--test-files", type=positive, metavar="N", help="make the last N input files the test split")
    parser.add_argument(
        "--test-half", choices=["first", "second"], help="take only this half of the rows of --test-files"
    )
    parser.add_argument(
        "--compression", choices=["lzf", "gzip", "none"], default="lzf", help="compression of shards (default: lzf)"
    )
    parser.add_argument("--chunk-checksums", action="store_true", help="let HDF5 check every chunk that it reads")
    parser.add_argument(
        "--skip-bad-rows", type=count, default=0, metavar="N", help="skip up to N malformed rows (default: 0)"
    )
    parser.add_argument(
        "--backend",
        choices=["auto", "native", "reference"],
        default="auto",
        help="native code, its reference in Python, or (auto) native code where it was built (default: auto)",
    )


def _prepare(arguments: Namespace) -> int:
    """Prepare; starts MPI where a launcher started several ranks. Collective over: these ranks.

    An error of a single process is raised; of several ranks, one prints it here.
    """
    if launched_ranks() == 1:
        from data_prep.prepare import prepare_clicks

        prepare_clicks(arguments.input, arguments.output, _settings(arguments), progress=tell)
        return EXIT_OK
    try:
        settings = _settings(arguments)
    except BagpipeError as error:  # every rank finds the same
        if is_first_rank():
            print_error(error)
        return EXIT_ERROR

    from bagpipe_hpc.mpi.start.running import mpi_running

    with mpi_running(_START_S, _END_S):
        if is_torn():
            return EXIT_ERROR

        from data_prep.prepare import prepare_clicks
        from data_prep.ranks.launched import launched_team
        from data_prep.ranks.team import OtherRankError

        try:
            with launched_team(tell) as team:
                prepare_clicks(arguments.input, arguments.output, settings, progress=tell, team=team)
        except OtherRankError:
            return EXIT_ERROR
        except BagpipeError as error:
            print_error(error)
            return EXIT_ERROR
    return EXIT_OK


def _settings(arguments: Namespace) -> "PrepareSettings":
    from data_prep.prepare_settings import PrepareSettings
    from data_prep.recorded import load_method
    from data_prep.schema.document import load_schema, to_document

    schema = None if arguments.schema is None else to_document(load_schema(arguments.schema))
    of_rows = {
        "source_format": arguments.format if schema is None else "schema",
        "schema": schema,
        "format_options": tuple(arguments.format_option) or None,
        "min_count": arguments.min_count,
        "max_rows_per_table": arguments.max_rows_per_table,
        "unseen_buckets": arguments.unseen_buckets,
    }
    given = {name: value for name, value in of_rows.items() if value is not None}
    if (earlier := arguments.like or arguments.grow) is not None:
        load_method(earlier).refuse_contradictions(given)
    return PrepareSettings(
        **given,
        like=arguments.like,
        grow=arguments.grow,
        evict_unused=arguments.evict_unused,
        rows_per_shard=arguments.rows_per_shard,
        test_fraction=arguments.test_fraction,
        test_files=arguments.test_files,
        test_half=arguments.test_half,
        compression=arguments.compression,
        chunk_checksums=arguments.chunk_checksums,
        skip_bad_rows=arguments.skip_bad_rows,
        backend=arguments.backend,
    )


PREPARE = Command(
    "prepare",
    "turn raw clicks into checksummed shards for training",
    _add_arguments,
    _prepare,
    ": the same command goes on from the shards that are complete",
)
