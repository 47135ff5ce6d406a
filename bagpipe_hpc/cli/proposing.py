"""`bagpipe schema`: proposes what the columns of a file are."""

from argparse import Namespace

from bagpipe_hpc.cli.outcome import EXIT_OK


def propose(arguments: Namespace) -> int:
    """Print the schema, to be kept in a file and looked at."""
    from data_prep.schema.proposal import propose_schema

    print(propose_schema(arguments.file), end="")
    return EXIT_OK
