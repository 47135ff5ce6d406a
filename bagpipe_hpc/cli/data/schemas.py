"""`bagpipe schema` proposes what the columns of a file are, `bagpipe search-preprocessing` transforms of them."""

import argparse
from contextlib import ExitStack

from bagpipe_hpc.cli.arguments.parser import CommandParser, add_input
from bagpipe_hpc.cli.arguments.types import count, fraction, named_path, path_text, positive
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.streams import tell, write_for_programs
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.exit_codes import EXIT_OK
from bagpipe_hpc.terminal import counted, printable


def _add_schema(parser: CommandParser) -> None:
    parser.add_argument(
        "file", type=path_text, metavar="FILE", help="CSV, TSV (plain or compressed) or Parquet; its beginning is read"
    )


def _propose(arguments: argparse.Namespace) -> int:
    """Print the schema, to be kept in a file and looked at."""
    from data_prep.schema.proposal.propose import propose_schema

    write_for_programs(propose_schema(arguments.file), "utf-8")
    return EXIT_OK


def _add_search(parser: CommandParser) -> None:
    parser.add_argument(
        "--schema", type=path_text, required=True, metavar="FILE.toml", help="describes the columns of the files"
    )
    add_input(parser, "files or glob patterns, in time order, as for prepare")
    parser.add_argument("--output", type=named_path, required=True, metavar="FILE.toml", help="the schema to write")
    parser.add_argument("--tried", type=named_path, metavar="FILE.csv", help="write everything that was tried, too")
    parser.add_argument("--label", metavar="NAME", help="label to predict (default: the first)")
    parser.add_argument(
        "--rows", type=positive, default=20_000, metavar="N", help="search by the first N rows (default: 20000)"
    )
    parser.add_argument(
        "--test-fraction", type=fraction, default=0.1, metavar="F", help="as for prepare; never read (default: 0.1)"
    )
    parser.add_argument(
        "--validation-fraction",
        type=fraction,
        default=0.2,
        metavar="F",
        help="last part of these rows, on which models are scored (default: 0.2)",
    )
    parser.add_argument(
        "--score", choices=["log_loss", "auc"], default="log_loss", help="score to compare (default: log_loss)"
    )
    parser.add_argument("--clusters", type=positive, default=3, metavar="K", help="groups of columns (default: 3)")
    parser.add_argument("--episodes", type=positive, default=50, metavar="E", help="groupings to try (default: 50)")
    parser.add_argument(
        "--draws", type=positive, default=20, metavar="R", help="draws of pipelines for each grouping (default: 20)"
    )
    parser.add_argument("--fits", type=positive, metavar="N", help="the most models to fit (default: E times R)")
    parser.add_argument("--seed", type=count, default=1, metavar="S", help="same seed, same result (default: 1)")


def _search(arguments: argparse.Namespace) -> int:
    import torch

    from bagpipe_hpc.storage.output_errors import require_writable
    from data_prep.schema.document import load_schema
    from data_prep.search.preprocessing import report, search_preprocessing, write_found, write_tried
    from data_prep.search.sampled_rows import label_of, read_sample
    from data_prep.search.search import SearchSettings

    for flag, path in (("--output", arguments.output), ("--tried", arguments.tried)):
        if path is not None and path.exists():
            raise ConfigError(f"{flag} {path}: is there already; choose another file")
        if path is not None and not path.parent.is_dir():
            raise ConfigError(f"{flag} {path}: there is no folder {path.parent}; make it first")
        if path is not None:
            require_writable(flag, str(path), path.parent)
    if arguments.tried is not None and arguments.tried.resolve() == arguments.output.resolve():
        raise ConfigError(f"--tried {arguments.tried}: is --output as well; choose another file")
    torch.set_num_threads(1)  # the network is tiny: threads would only wait for each other
    schema = load_schema(arguments.schema)
    settings = SearchSettings(arguments.clusters, arguments.episodes, arguments.draws, arguments.fits, arguments.seed)
    rows = read_sample(
        arguments.input,
        schema,
        label_of(schema, arguments.label),
        arguments.rows,
        arguments.test_fraction,
        arguments.validation_fraction,
    )
    validation = len(rows.labels) - rows.train
    tell(f"{rows.train} rows for training, {validation} for validation, {counted(len(rows.columns), 'numeric column')}")
    found = search_preprocessing(schema, rows, settings, score=arguments.score)
    if found.clusters < arguments.clusters:
        told = (
            f"{counted(found.clusters, 'group')} at most instead of {arguments.clusters}, one for each column to search"
        )
        tell(f"note: {told}")
    with ExitStack() as then:  # whatever becomes of stdout
        then.callback(write_found, found, arguments.score, arguments.input, arguments.output)
        if arguments.tried is not None:
            then.callback(write_tried, found, arguments.score, arguments.tried)
        print(printable("\n".join(report(found, arguments.score))), flush=True)
    return EXIT_OK


SCHEMA = Command(
    "schema", "propose what the columns of a file are, as TOML for prepare --schema", _add_schema, _propose
)
SEARCH_PREPROCESSING = Command(
    "search-preprocessing",
    "find transforms of dense columns that predict best, as a schema for prepare",
    _add_search,
    _search,
)
