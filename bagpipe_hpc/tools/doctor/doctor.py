"""`bagpipe doctor`: whether this set-up can train, host by host; it names each fault with its host and its cure.

Start it as a run is started, with at least one rank on each host: `srun -N 4 --ntasks-per-node=1 bagpipe doctor`. As a
single process it checks one host. A run with `train.preflight=true` does the same before anything else.
"""

from collections.abc import Sequence
from pathlib import Path

from bagpipe_hpc.cluster.role_layout import SMALLEST_WORLD
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.errors import BagpipeError, ConfigError
from bagpipe_hpc.exit_codes import EXIT_DIFFERENT, EXIT_OK
from bagpipe_hpc.mpi.start.places import find_places
from bagpipe_hpc.mpi.start.world import abort_job, world_rank, world_size
from bagpipe_hpc.terminal import printable
from bagpipe_hpc.tools.doctor.examination import examine
from bagpipe_hpc.tools.doctor.installation import Finding


def diagnose(output: Path, timeout_s: float, lacking: Sequence[Finding] = ()) -> int:
    """The command: examine, and print on rank 0; returns the exit code, which says whether a run can start.

    Where a rank does not answer, the call does not return: the job is ended.

    Args:
        output: as for `examine`.
        timeout_s: as for `examine`.
        lacking: what was already found on this host (`installation`).
    """
    try:
        diagnosis = examine(output, timeout_s, look_for_gpus=True)
    except BagpipeError as error:  # the others would wait at MPI's end for the rank that does not come
        abort_job(f"FAILED  {error}", EXIT_DIFFERENT)
    roles = _roles(timeout_s)
    if world_rank() > 0:
        return EXIT_OK
    if roles:
        print("\n".join(["roles of a run with these ranks:", *(f"  {line}" for line in roles)]), end="\n\n")
    known = {finding.what.partition(":")[0] for finding in diagnosis.findings}
    diagnosis.findings += [finding for finding in lacking if finding.what.partition(":")[0] not in known]
    print(printable(diagnosis.report()), flush=True)
    return EXIT_OK if diagnosis.is_healthy else EXIT_DIFFERENT


def _roles(timeout_s: float) -> list[str]:
    """How a run would place its roles here with default settings. Collective over: all ranks."""
    if world_size() < SMALLEST_WORLD:
        return []
    places, hosts = find_places(timeout_s, use_gpus=True)
    return Placement.choose(places, 0, "auto").describe(hosts)


def require_healthy(output: Path | None, timeout_s: float, *, look_for_gpus: bool) -> list[str]:
    """Examine before a run starts; arguments as for `examine`. Collective over: all ranks.

    Returns:
        A line for each check.

    Raises:
        ConfigError: the run would fail; raised on every rank, with host and cure.
        WaitTimeoutError: a host did not answer.
    """
    diagnosis = examine(output, timeout_s, look_for_gpus=look_for_gpus)
    fatal = [f"{finding.where}: {finding.what}. {finding.cure}" for finding in diagnosis.findings if finding.is_fatal]
    if fatal:
        raise ConfigError("train.preflight: " + "; ".join(fatal))
    return diagnosis.summary()
