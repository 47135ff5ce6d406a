"""Makes the plan of a placement that has to search for it, and writes it where `tables.plan` says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bagpipe_hpc.config.doors import PLACEMENTS, SettingError
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.rows.access_statistics import read_statistics
from bagpipe_hpc.rows.placements.assignment import require_room, server_bytes, server_limit, whole_tables
from bagpipe_hpc.rows.placements.planned import PlannedTables, Request
from bagpipe_hpc.rows.placements.table_plan import write_plan
from bagpipe_hpc.run.run import Run
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.storage.output_errors import require_writable
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.terminal import counted

Say = Callable[[str], None]


def place_tables(config: Config, servers: int, say: Say, warn: Say) -> Path:
    """Search for a plan, and write it.

    Args:
        config: settings of the run; `tables.placement` names the placement that searches.
        servers: number of servers of the run.
        say: called with each line about what was found, once it is written.
        warn: called with a line about what is odd, before the search.

    Returns:
        The file that was written.

    Raises:
        BagpipeError: the placement needs no search, there is no plan, or its file exists or its folder does not.
        OSError: the file cannot be written in the end.
    """
    kind, settings = PLACEMENTS.implementation(config.tables.placement), config.tables.settings
    if not issubclass(kind, PlannedTables):
        raise SettingError(
            PLACEMENTS.key, config.tables.placement, "has no plan to be made: runs compute it; train at once"
        )
    if not settings.plan:
        raise SettingError("tables.plan", "", "name the file to write")
    if (path := Path(settings.plan)).exists():
        raise SettingError("tables.plan", str(path), "is there already; remove it, or use another name")
    if not path.parent.is_dir():
        raise SettingError("tables.plan", str(path), f"{path.parent} is no folder; make it, or name another")
    require_writable("tables.plan", str(path), path.parent)
    run = Run(config, load_manifest(Path(config.data.path)), ())
    groups = [replace(group.tables.tables, row_bytes=group.record.bytes) for group in run.groups]
    tables, statistics = whole_tables(groups), read_statistics(settings.statistics_path)
    if statistics.data != run.manifest.digest("train"):
        warn(f"{statistics.source}: counts other training rows than those of {config.data.path}")
    request = Request(tables, statistics, servers, config.train.batch_size)
    found = kind.search(request, settings)
    require_room(tables, found.holders, servers, server_limit(settings))
    with atomic_write(path) as partial, partial.open("wb") as file:
        method, data = config.tables.placement, statistics.data
        write_plan(
            file,
            method,
            data,
            servers,
            tables,
            found.holders,
            found.pinned,
            found.expected_ms,
            hosted=found.hosted,
            trainer_hosts=found.trainer_hosts,
        )
    for line in found.report:
        say(line)
    held = server_bytes(tables, found.holders, servers)
    unit, name = (1e9, "GB") if max(held) >= 1e9 else (1e6, "MB")
    sizes = ", ".join(f"{of_server / unit:.3f}" for of_server in held)
    say(f"{path}: {counted(len(tables), 'table')} on {counted(servers, 'server')} of {sizes} {name}")
    return path
