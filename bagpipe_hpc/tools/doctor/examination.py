"""Examines all hosts of a job together: what each has, whether they share a folder, how they reach each other."""

import importlib.metadata
import os
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bagpipe_hpc.cluster.host_memory import free_bytes, free_shared_bytes
from bagpipe_hpc.cluster.rank_facts import RankFacts
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.mpi.host_links import probe_links
from bagpipe_hpc.mpi.host_world import HostWorld
from bagpipe_hpc.tools.doctor.diagnosis import Diagnosis
from bagpipe_hpc.tools.doctor.findings import host_findings, launcher_findings, link_findings
from bagpipe_hpc.tools.doctor.host_facts import HostFacts
from bagpipe_hpc.tools.doctor.installation import Finding

_PACKAGES = ("torch", "numpy", "h5py", "mpi4py", "horovod")
_LIBRARIES = ("planner", "row_operations", "interaction", "layer_outputs", "output_gradient")
_TEST_BYTES = 16 << 20
_SEEN_WITHIN_S = 10.0


def examine(output: Path | None, timeout_s: float, *, look_for_gpus: bool) -> Diagnosis:
    """Examine all hosts. Collective over: all ranks.

    Args:
        output: folder that all ranks must share; made if it does not exist. None where none is written to.
        timeout_s: longest wait for another rank.
        look_for_gpus: whether this rank asks torch for GPUs, which takes a second and 200 MB.

    Returns:
        What was found, on every rank.

    Raises:
        WaitTimeoutError: a host did not answer.
    """
    with HostWorld(timeout_s) as world:
        speed, error, missing = _try_folder(output, world) if output else (None, "", [])
        versions = world.gather_here(_versions(world.library) | {"thread level": world.thread_level})
        gpus = [names for names in world.gather_here(_gpus() if look_for_gpus else None) if names is not None]
        facts = world.gather_hosts(
            HostFacts(
                host=world.host,
                ranks=world.ranks_on_host,
                cores=world.cores,
                free_bytes=free_bytes(),
                shared_bytes=free_shared_bytes(),
                gpus=max(gpus, key=len, default=None),
                versions={name: version for name, version in versions[0].items() if name != "thread level"},
                thread_level=world.thread_level,
                not_built=tuple(name for name in _LIBRARIES if not shared_library.is_built(name)),
                write_bytes_per_s=speed,
                write_error=error,
                mixed=tuple(name for name in versions[0] if len({own[name] for own in versions}) > 1),
                installed_gpus=RankFacts.here().installed_gpus,
            )
        )
        found = []
        if world.leaders is not None and world.leaders.Get_size() > 1:
            found = probe_links(world.leaders, world.host_names, timeout_s)
        findings = [*host_findings(facts or []), *launcher_findings(world.size), *link_findings(found)]
        findings += [
            Finding(
                host, f"does not see what {', '.join(others)} wrote to {output}", "Name a folder that all hosts share"
            )
            for host, others in missing
            if others
        ]
        return world.share(Diagnosis(facts or [], found, findings))


def _try_folder(output: Path, world: HostWorld) -> tuple[float, str, Sequence[tuple[str, list[str]]]]:
    """See whether hosts can write to a folder, and see what others write there. Collective over: all ranks.

    Returns:
        On the first rank of a host, bytes per second of writing, and what went wrong; on the first of all, the hosts
        and for each those whose file it does not see.
    """
    speed, error = _try_to_write(output, world.host) if world.is_first_of_host else (0.0, "")
    try:
        world.meet("having written to the output folder")
        unseen = _unseen(output, world) if world.is_first_of_host and not error else []
        missing = world.gather_hosts((world.host, unseen))
        world.meet("having looked into the output folder")
    finally:
        if world.is_first_of_host and not error:
            _test_file(output, world.host).unlink(missing_ok=True)
    return speed, error, missing or []


def _versions(mpi: str) -> dict[str, str]:
    versions = {"Python": platform.python_version(), "MPI": mpi}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = ""
    return versions


def _gpus() -> tuple[str, ...]:
    try:
        import torch
    except ImportError:  # a finding reports it
        return ()
    return tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))


def _test_file(output: Path, host: str) -> Path:
    return output / f".bagpipe-doctor.{host}"


def _try_to_write(output: Path, host: str) -> tuple[float, str]:
    """Bytes per second of writing a new file, forced to the disk, and what went wrong; empty if nothing did.

    The file stays for the other hosts to see, but not what a disk has taken of it that is full now.
    """
    path = _test_file(output, host)
    start_s = time.perf_counter()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(bytes(_TEST_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return 0.0, str(error)
    return _TEST_BYTES / (time.perf_counter() - start_s), ""


def _unseen(output: Path, world: HostWorld) -> list[str]:
    """Hosts whose file does not become visible here."""
    deadline = time.monotonic() + _SEEN_WITHIN_S
    while True:
        unseen = [host for host in world.host_names if not _test_file(output, host).exists()]
        if not unseen or time.monotonic() > deadline:
            return unseen
        time.sleep(0.1)
