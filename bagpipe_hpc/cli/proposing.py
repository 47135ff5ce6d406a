"""`bagpipe schema`: proposes what the columns of a file are."""

from argparse import Namespace

from bagpipe_hpc.cli.outcome import EXIT_OK
from bagpipe_hpc.cli.streams import write_for_programs


def propose(arguments: Namespace) -> int:
    """Print the schema, to be kept in a file and looked at."""
    from data_prep.schema.proposal.propose import propose_schema

    write_for_programs(propose_schema(arguments.file), "utf-8")
    return EXIT_OK
