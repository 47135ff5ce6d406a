"""What the doctor found, in tables for a reader and in lines for a log."""

from dataclasses import dataclass, field

from bagpipe_hpc.mpi.host_links import LinkProbe
from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.doctor.host_facts import HostFacts
from bagpipe_hpc.tools.doctor.installation import Finding
from bagpipe_hpc.tools.text_table import aligned, size_text


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
                "" if host.write_bytes_per_s is None else f"{host.write_bytes_per_s / 1e6:.0f}",
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
        ]
        if speeds := [host.write_bytes_per_s for host in self.hosts if host.write_bytes_per_s is not None]:
            lines.append(f"output folder: shared, written with {min(speeds) / 1e6:.0f} MB/s or more")
        if self.links:
            lines += [
                f"links: {len(self.links)} between hosts, one-sided calls work, "
                f"{max(link.latency_s for link in self.links) * 1e6:.0f} us or less, "
                f"{min(link.bytes_per_s for link in self.links) / 1e6:.0f} MB/s or more",
                f"clocks: {max(abs(link.clock_s) for link in self.links) * 1e3:.0f} ms apart at most",
            ]
        return lines + [str(finding) for finding in self.findings]
