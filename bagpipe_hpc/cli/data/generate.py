"""`bagpipe generate`: synthetic clicks in a file."""

from argparse import Namespace

from bagpipe_hpc.cli.arguments.parser import CommandParser
from bagpipe_hpc.cli.arguments.types import count, named_path, path_text, positive, positive_number
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.exit_codes import EXIT_OK


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--rows", type=positive, required=True, metavar="N", help="rows to write")
    parser.add_argument(
        "--output", type=named_path, required=True, metavar="FILE", help="FILE.tsv, FILE.csv, or one ending in .gz"
    )
    described = parser.add_mutually_exclusive_group()
    described.add_argument(
        "--schema", type=path_text, metavar="FILE.toml", help="write rows of this schema; also to FILE.parquet"
    )
    described.add_argument(
        "--kind",
        choices=["criteo", "sequences"],
        help="the format: Criteo's, or users, items and histories with two labels (default: criteo)",
    )
    parser.add_argument("--seed", type=count, default=1, metavar="S", help="same seed, same rows (default: 1)")
    parser.add_argument(
        "--zipf", type=positive_number, default=1.05, metavar="A", help="skew of the categories (default: 1.05)"
    )
    parser.add_argument(
        "--ids-at-most",
        type=positive,
        metavar="N",
        help="cut tables to N ids each, criteo's from the Kaggle data's sizes (default: 339,000 ids in all)",
    )


def _generate(arguments: Namespace) -> int:
    from data_prep.generate import generate_clicks
    from data_prep.schema.document import load_schema

    generate_clicks(
        arguments.rows,
        arguments.output,
        seed=arguments.seed,
        zipf=arguments.zipf,
        ids_at_most=arguments.ids_at_most,
        kind=arguments.kind or "criteo",
        schema=None if arguments.schema is None else load_schema(arguments.schema),
    )
    return EXIT_OK


GENERATE = Command(
    "generate", "write synthetic clicks, to try everything without a download", _add_arguments, _generate
)
