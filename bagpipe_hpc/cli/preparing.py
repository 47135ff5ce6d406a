"""`bagpipe prepare`, as one process or as the ranks that a launcher started."""

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from bagpipe_hpc.cli.outcome import EXIT_ERROR, EXIT_OK, is_first_rank, launched_ranks, print_error
from bagpipe_hpc.errors import BagpipeError, ConfigError

if TYPE_CHECKING:
    from data_prep.prepare_settings import PrepareSettings

_START_S = 180.0
"""Longest wait for the other ranks to start: interpreters come from a cold file system."""
_END_S = 60.0


def prepare(arguments: Namespace, progress: Callable[[str], None]) -> int:
    """Prepare; MPI is started where a launcher started several ranks. Collective over: these.

    Args:
        arguments: of the command.
        progress: is given lines, on the first rank.

    Returns:
        The exit code.

    Raises:
        BagpipeError: one process alone cannot prepare. Of several ranks the first one says why, here.
    """
    if launched_ranks() == 1:
        from data_prep.prepare import prepare_clicks

        prepare_clicks(arguments.input, arguments.output, _settings(arguments), progress=progress)
        return EXIT_OK
    try:
        settings = _settings(arguments)
    except BagpipeError as error:  # every rank finds the same
        if is_first_rank():
            print_error(error)
        return EXIT_ERROR

    from bagpipe_hpc.mpi.start.running import mpi_running

    with mpi_running(_START_S, _END_S):
        from bagpipe_hpc.mpi.start.world import world_size
        from data_prep.prepare import prepare_clicks
        from data_prep.ranks.launched import launched_team
        from data_prep.ranks.team import OtherRankError

        if world_size() == 1 and launched_ranks() not in (None, 1):
            raise ConfigError(
                f"the launcher started {launched_ranks()} processes, but MPI sees one: start them with the mpirun of "
                "the MPI that is in use, or with srun --mpi=TYPE (srun --mpi=list shows the types)"
            )
        try:
            with launched_team(progress) as team:
                prepare_clicks(arguments.input, arguments.output, settings, progress=progress, team=team)
        except OtherRankError:
            return EXIT_ERROR
        except BagpipeError as error:
            print_error(error)
            return EXIT_ERROR
    return EXIT_OK


def _settings(arguments: Namespace) -> "PrepareSettings":
    from data_prep.prepare_settings import PrepareSettings
    from data_prep.recorded import load_recorded
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
        load_recorded(earlier).refuse_contradictions(given)
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
