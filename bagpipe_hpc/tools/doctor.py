"""`bagpipe doctor`: whether this set-up can train, host by host; it names each fault with its host and its cure.

Start it as a run is started, with at least one rank on each host: `srun -N 4 --ntasks-per-node=1 bagpipe doctor`. As a
single process it checks one host. A run with `train.preflight=true` does the same before anything else.
"""

import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bagpipe_hpc.cluster.host_memory import free_bytes, free_shared_bytes
from bagpipe_hpc.cluster.rank_facts import RankFacts
from bagpipe_hpc.cluster.role_layout import SMALLEST_WORLD
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.errors import BagpipeError, ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.mpi.host_links import LinkProbe, probe_links
from bagpipe_hpc.mpi.host_world import HostWorld
from bagpipe_hpc.mpi.start.places import find_places
from bagpipe_hpc.mpi.start.world import abort_job, world_rank, world_size
from bagpipe_hpc.terminal import counted, printable
from bagpipe_hpc.tools.inspection.text_table import aligned, size_text
from bagpipe_hpc.tools.installation import HOROVOD_CURE, Finding

EXIT_HEALTHY = 0
EXIT_BROKEN = 1

_PACKAGES = ("torch", "numpy", "h5py", "mpi4py", "horovod")
_LIBRARIES = ("planner", "row_operations", "interaction", "output_gradient")
_LAUNCHER_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_FEWEST_SHARED_BYTES = 1 << 30
_MOST_CLOCK_S = 1.0
_TEST_BYTES = 16 << 20
_SEEN_WITHIN_S = 10.0


@dataclass(frozen=True)
class HostFacts:
    """What the ranks of a host found out about it.

    Attributes:
        host: its name.
        ranks: number of ranks there.
        cores: cores that they may use, together.
        free_bytes: free memory.
        shared_bytes: free space in /dev/shm.
        gpus: names of GPUs that a rank sees; None where no rank has looked.
        versions: versions of Python, MPI and packages; empty for one that is absent.
        thread_level: thread level that MPI gives.
        not_built: native libraries that are missing.
        write_bytes_per_s: speed of writing to the output folder; 0 where writing failed.
        write_error: why writing failed.
        mixed: packages whose versions differ between ranks of the host.
        installed_gpus: number of GPUs that the driver has there.
    """

    host: str
    ranks: int
    cores: int
    free_bytes: int
    shared_bytes: int
    gpus: tuple[str, ...] | None
    versions: dict[str, str]
    thread_level: str
    not_built: tuple[str, ...]
    write_bytes_per_s: float
    write_error: str
    mixed: tuple[str, ...] = ()
    installed_gpus: int = 0


@dataclass
class Diagnosis:
    """What the doctor found.

    Attributes:
        hosts: facts of each host, in the order of their first ranks.
        links: the link of each pair of hosts.
        findings: what is wrong.
    """

    hosts: list[HostFacts] = field(default_factory=list)
    links: list[LinkProbe] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether a run can start."""
        return not any(finding.is_fatal for finding in self.findings)

    def report(self) -> str:
        """Tables of hosts and links, and what is wrong."""
        rows = [["host", "ranks", "cores", "free memory", "/dev/shm", "GPUs", "write MB/s"]]
        rows += [
            [
                host.host,
                str(host.ranks),
                str(host.cores),
                size_text(host.free_bytes),
                size_text(host.shared_bytes),
                ", ".join(host.gpus or ()) or "none",
                f"{host.write_bytes_per_s / 1e6:.0f}",
            ]
            for host in self.hosts
        ]
        lines = aligned(rows, right=(1, 2, 3, 4, 6))
        if self.hosts:
            versions = self.hosts[0].versions
            lines += ["", ", ".join(f"{name} {version or 'absent'}" for name, version in versions.items())]
        if self.links:
            rows = [["link", "latency us", "MB/s", "one-sided", "clock ms"]]
            rows += [
                [
                    f"{link.first} - {link.second}",
                    f"{link.latency_s * 1e6:.0f}",
                    f"{link.bytes_per_s / 1e6:.0f}",
                    "works" if link.one_sided else "WRONG",
                    f"{link.clock_s * 1e3:+.1f}",
                ]
                for link in self.links
            ]
            lines += ["", *aligned(rows, right=(1, 2, 4))]
        lines += ["", *(str(finding) for finding in self.findings)]
        lines.append("healthy" if self.is_healthy else "not healthy")
        return "\n".join(lines)

    def summary(self) -> list[str]:
        """A line for each check of a set-up that can train, and the warnings."""
        versions = self.hosts[0].versions
        gpus = [len(host.gpus) for host in self.hosts if host.gpus]
        lines = [
            f"{counted(len(self.hosts), 'host')}, {counted(sum(host.ranks for host in self.hosts), 'rank')}: alike in "
            + ", ".join(f"{name} {version}" for name, version in versions.items()),
            f"MPI gives thread level {self.hosts[0].thread_level} everywhere",
            f"memory: {size_text(min(host.free_bytes for host in self.hosts))} or more free, "
            f"/dev/shm {size_text(min(host.shared_bytes for host in self.hosts))} or more",
            f"GPUs: {min(gpus)} or more on {counted(len(gpus), 'host')}" if gpus else "GPUs: none",
            "output folder: shared, written with "
            f"{min(host.write_bytes_per_s for host in self.hosts) / 1e6:.0f} MB/s or more",
        ]
        if self.links:
            lines += [
                f"links: {len(self.links)} between hosts, one-sided calls work, "
                f"{max(link.latency_s for link in self.links) * 1e6:.0f} us or less, "
                f"{min(link.bytes_per_s for link in self.links) / 1e6:.0f} MB/s or more",
                f"clocks: {max(abs(link.clock_s) for link in self.links) * 1e3:.0f} ms apart at most",
            ]
        return lines + [str(finding) for finding in self.findings]


def examine(output: Path, timeout_s: float, *, look_for_gpus: bool) -> Diagnosis:
    """Examine all hosts. Collective over: all ranks.

    Args:
        output: folder that all ranks must share; made if it does not exist.
        timeout_s: longest wait for another rank.
        look_for_gpus: whether this rank asks torch for GPUs, which takes a second and 200 MB.

    Returns:
        What was found, on every rank.

    Raises:
        WaitTimeoutError: a host did not answer.
    """
    with HostWorld(timeout_s) as world:
        speed, error = _try_to_write(output, world.host) if world.is_first_of_host else (0.0, "")
        world.meet("having written to the output folder")
        unseen = _unseen(output, world) if world.is_first_of_host and not error else []
        versions = world.gather_here(_versions(world.library) | {"thread level": world.thread_level})
        gpus = [names for names in world.gather_here(_gpus() if look_for_gpus else None) if names is not None]
        facts = world.gather_hosts(
            HostFacts(
                world.host,
                world.ranks_on_host,
                world.cores,
                free_bytes(),
                free_shared_bytes(),
                max(gpus, key=len, default=None),
                {name: version for name, version in versions[0].items() if name != "thread level"},
                world.thread_level,
                tuple(name for name in _LIBRARIES if not shared_library.is_built(name)),
                speed,
                error,
                tuple(name for name in versions[0] if len({own[name] for own in versions}) > 1),
                RankFacts.here().installed_gpus,
            )
        )
        missing = world.gather_hosts((world.host, unseen))
        world.meet("having looked into the output folder")
        if world.is_first_of_host and not error:
            _test_file(output, world.host).unlink(missing_ok=True)
        found = []
        if world.leaders is not None and world.leaders.Get_size() > 1:
            found = probe_links(world.leaders, world.host_names, timeout_s)
        findings = [*_host_findings(facts or []), *_launcher_findings(world.size), *_link_findings(found)]
        findings += [
            Finding(
                host, f"does not see what {', '.join(others)} wrote to {output}", "Name a folder that all hosts share"
            )
            for host, others in missing or []
            if others
        ]
        return world.share(Diagnosis(facts or [], found, findings))


def _host_findings(facts: Sequence[HostFacts]) -> Iterator[Finding]:
    for host in facts:
        first = facts[0]
        for name, version in host.versions.items():
            if not version:
                is_needed = name != "horovod"
                cure = "Run bagpipe doctor there" if is_needed else HOROVOD_CURE
                yield Finding(host.host, f"{name} is not installed", cure, is_needed)
            elif version != first.versions[name]:
                cure = "Give all hosts the same environment"
                yield Finding(host.host, f"{name} is {version}, on {first.host} {first.versions[name]}", cure)
        if host.mixed:
            cure = "Give all ranks the same environment (PATH, modules)"
            yield Finding(host.host, f"its ranks differ in {', '.join(host.mixed)}", cure)
        if host.installed_gpus and host.gpus == ():
            cure = "Use a torch that was built for CUDA, and let CUDA_VISIBLE_DEVICES name some"
            what = f"the driver has {counted(host.installed_gpus, 'GPU')}, torch sees none"
            yield Finding(host.host, what, cure, False)
        if host.thread_level != "multiple":
            cure = "Use an MPI that was built with MPI_THREAD_MULTIPLE"
            yield Finding(host.host, f"MPI gives thread level {host.thread_level}", cure)
        if host.not_built:
            what = f"native code is not built: {', '.join(host.not_built)}"
            yield Finding(
                host.host, what, "Run make setup where g++ is on PATH; until then NumPy and torch do it", False
            )
        if host.shared_bytes < _FEWEST_SHARED_BYTES:
            cure = "Servers keep their tables there: mount -o remount,size=..., of a container --shm-size"
            yield Finding(host.host, f"/dev/shm has {size_text(host.shared_bytes)} free", cure, False)
        if host.cores < host.ranks:
            cure = "Ask for a core or two a rank (--cpus-per-task), and let the launcher bind none of them to one core"
            yield Finding(host.host, f"{counted(host.ranks, 'rank')} share {counted(host.cores, 'core')}", cure, False)
        if host.write_error:
            yield Finding(host.host, f"cannot write to the output folder: {host.write_error}", "Name another folder")


def _launcher_findings(size: int) -> Iterator[Finding]:
    for name in _LAUNCHER_SIZES:
        promised = os.environ.get(name, "")
        if promised.isdigit() and int(promised) > 1 and size == 1:
            what = f"the launcher started {promised} ranks ({name}), but MPI knows of one"
            cure = (
                "Start it with the mpirun of mpi4py's MPI, or with srun and the --mpi that it speaks (srun --mpi=list)"
            )
            yield Finding("all hosts", what, cure)
            return


def _link_findings(links: Sequence[LinkProbe]) -> Iterator[Finding]:
    fastest = max((link.bytes_per_s for link in links), default=0.0)
    for link in links:
        where = f"{link.first} - {link.second}"
        if not link.one_sided:
            cure = "Set roles.transfers = messages, and try another transport of MPI"
            yield Finding(where, "one-sided calls give back other numbers than were put", cure)
        if link.bytes_per_s < fastest / 3:
            what = f"{link.bytes_per_s / 1e6:.0f} MB/s, where other links give {fastest / 1e6:.0f}"
            yield Finding(where, what, "Look at the cable, the switch port or the interface that MPI chose", False)
        if abs(link.clock_s) > _MOST_CLOCK_S:
            yield Finding(where, f"clocks are {abs(link.clock_s):.1f} s apart", "Logs are hard to join: run NTP", False)


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
    """Bytes per second of writing a new file, forced to the disk, and what went wrong; empty if nothing did."""
    path = _test_file(output, host)
    start_s = time.perf_counter()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(bytes(_TEST_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
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


def diagnose(output: Path, timeout_s: float, lacking: Sequence[Finding] = ()) -> int:
    """The command: examine, and print on rank 0; returns the exit code, which says whether a run can start.

    Where a rank does not answer, the call does not return: the job is ended.

    Args:
        output: as for `examine`.
        timeout_s: as for `examine`.
        lacking: what was already found on this host (`tools.installation`).
    """
    try:
        diagnosis = examine(output, timeout_s, look_for_gpus=True)
    except BagpipeError as error:  # the others would wait at MPI's end for the rank that does not come
        abort_job(f"FAILED  {error}", EXIT_BROKEN)
    roles = _roles(timeout_s)
    if world_rank() > 0:
        return EXIT_HEALTHY
    if roles:
        print("\n".join(["roles of a run with these ranks:", *(f"  {line}" for line in roles)]), end="\n\n")
    known = {finding.what.partition(":")[0] for finding in diagnosis.findings}
    diagnosis.findings += [finding for finding in lacking if finding.what.partition(":")[0] not in known]
    print(printable(diagnosis.report()), flush=True)
    return EXIT_HEALTHY if diagnosis.is_healthy else EXIT_BROKEN


def _roles(timeout_s: float) -> list[str]:
    """How a run would place its roles here with default settings. Collective over: all ranks."""
    if world_size() < SMALLEST_WORLD:
        return []
    places, hosts = find_places(timeout_s, use_gpus=True)
    return Placement.choose(places, 0, "auto").describe(hosts)


def require_healthy(output: Path, timeout_s: float, *, look_for_gpus: bool) -> list[str]:
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
