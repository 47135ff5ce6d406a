"""What is wrong with hosts, links and the launcher, each with its cure. Pure, but for the launcher's variables."""

import os
from collections.abc import Iterator, Sequence

from bagpipe_hpc.mpi.host_links import LinkProbe
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.doctor.host_facts import HostFacts
from bagpipe_hpc.tools.doctor.installation import HOROVOD_CURE, Finding
from bagpipe_hpc.tools.text_table import size_text

_LAUNCHER_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_FEWEST_SHARED_BYTES = 1 << 30
_MOST_CLOCK_S = 1.0


def host_findings(facts: Sequence[HostFacts]) -> Iterator[Finding]:
    """What is wrong on hosts by themselves, and where one differs from the first."""
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


def launcher_findings(size: int) -> Iterator[Finding]:
    """Whether the launcher has started more ranks than MPI knows of, which are `size`."""
    for name in _LAUNCHER_SIZES:
        promised = os.environ.get(name, "")
        if promised.isdigit() and int(promised) > 1 and size == 1:
            what = f"the launcher started {promised} ranks ({name}), but MPI knows of one"
            cure = (
                "Start it with the mpirun of mpi4py's MPI, or with srun and the --mpi that it speaks (srun --mpi=list)"
            )
            yield Finding("all hosts", what, cure)
            return


def link_findings(links: Sequence[LinkProbe]) -> Iterator[Finding]:
    """What is wrong between pairs of hosts."""
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
