"""`bagpipe doctor`: whether this set-up can train, host by host; what is wrong is named with its host and its cure.

Start it as a run is started, with a rank or more on each host: `srun -N 4 --ntasks-per-node=1 bagpipe doctor`. Alone it
checks what one host can know.
"""

import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bagpipe_hpc.errors import BagpipeError
from bagpipe_hpc.inspection.text_table import aligned, size_text
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.mpi.host_links import LinkProbe, probe_links
from bagpipe_hpc.mpi.host_world import HostWorld

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
class Finding:
    """Something that is wrong.

    Attributes:
        where: host, or hosts.
        what: is wrong there.
        cure: what to do.
        is_fatal: whether a run would fail; otherwise it would be slow or hard to read.
    """

    where: str
    what: str
    cure: str
    is_fatal: bool = True

    def __str__(self) -> str:
        return f"{'FAILED' if self.is_fatal else 'warning'}  {self.where}: {self.what}. {self.cure}"


@dataclass(frozen=True)
class HostFacts:
    """What a rank says of its host.

    Attributes:
        host: its name.
        ranks: ranks there.
        cores: cores that they may use, together.
        free_bytes: memory that is free.
        shared_bytes: free in /dev/shm.
        gpus: names of GPUs that ranks see.
        versions: of Python, MPI and packages; empty where one is absent.
        thread_level: that MPI gives.
        not_built: native libraries that are missing.
        write_bytes_per_s: to the output folder; 0 where that failed.
        write_error: why.
    """

    host: str
    ranks: int
    cores: int
    free_bytes: int
    shared_bytes: int
    gpus: tuple[str, ...]
    versions: dict[str, str]
    thread_level: str
    not_built: tuple[str, ...]
    write_bytes_per_s: float
    write_error: str


@dataclass
class Diagnosis:
    """What the doctor found, on rank 0.

    Attributes:
        hosts: facts of each host, in the order of their first ranks.
        links: of each pair.
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
                ", ".join(host.gpus) or "none",
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


def examine(output: Path, timeout_s: float) -> Diagnosis | None:
    """Examine all hosts. Collective over: all ranks.

    Args:
        output: folder that all ranks have to share, made where it is not there.
        timeout_s: longest wait for another rank.

    Returns:
        On rank 0 what was found, elsewhere None.

    Raises:
        WaitTimeoutError: a host did not answer.
    """
    with HostWorld(timeout_s) as world:
        speed, error = _try_to_write(output, world.host) if world.is_first_of_host else (0.0, "")
        world.meet("the hosts to write to the output folder")
        unseen = _unseen(output, world) if world.is_first_of_host else []
        facts = world.gather_hosts(
            HostFacts(
                world.host,
                world.ranks_on_host,
                world.cores,
                world.free_bytes,
                world.shared_bytes,
                _gpus(),
                _versions(world.library),
                world.thread_level,
                tuple(name for name in _LIBRARIES if not shared_library.is_built(name)),
                speed,
                error,
            )
        )
        missing = world.gather_hosts((world.host, unseen))
        world.meet("the hosts to look into the output folder")
        if world.is_first_of_host and not error:
            _test_file(output, world.host).unlink(missing_ok=True)
        found = []
        if world.leaders is not None and world.leaders.Get_size() > 1:
            found = probe_links(world.leaders, world.host_names, timeout_s)
        if facts is None or missing is None:
            return None
        findings = [*_host_findings(facts), *_launcher_findings(world.size), *_link_findings(found)]
        findings += [
            Finding(
                host, f"does not see what {', '.join(others)} wrote to {output}", "Name a folder that all hosts share"
            )
            for host, others in missing
            if others
        ]
        return Diagnosis(facts, found, findings)


def _host_findings(facts: Sequence[HostFacts]) -> Iterator[Finding]:
    first = facts[0]
    for host in facts:
        for name, version in host.versions.items():
            if not version:
                yield Finding(host.host, f"{name} is not installed", "Run make setup there")
            elif version != first.versions[name]:
                cure = "Give all hosts the same environment"
                yield Finding(host.host, f"{name} is {version}, on {first.host} {first.versions[name]}", cure)
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
            yield Finding(host.host, f"{host.ranks} ranks share {host.cores} cores", cure, False)
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
            cure = "Keep roles.transfers = messages, and try another transport of MPI"
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
    except ImportError:  # it is among the findings
        return ()
    return tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))


def _test_file(output: Path, host: str) -> Path:
    return output / f".bagpipe-doctor.{host}"


def _try_to_write(output: Path, host: str) -> tuple[float, str]:
    """Bytes per second to a new file, forced to the disk, and what went wrong."""
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
    """Hosts whose file does not come into sight here."""
    deadline = time.monotonic() + _SEEN_WITHIN_S
    while True:
        unseen = [host for host in world.host_names if not _test_file(output, host).exists()]
        if not unseen or time.monotonic() > deadline:
            return unseen
        time.sleep(0.1)


def diagnose(output: Path, timeout_s: float) -> int:
    """The command: examine, print on rank 0, and say with the exit code whether a run can start."""
    try:
        diagnosis = examine(output, timeout_s)
    except BagpipeError as error:
        print(f"FAILED  {error}", flush=True)
        return EXIT_BROKEN
    if diagnosis is None:
        return EXIT_HEALTHY
    print(diagnosis.report(), flush=True)
    return EXIT_HEALTHY if diagnosis.is_healthy else EXIT_BROKEN
