"""The doctor names what is wrong, where, and the cure; a healthy set-up has no findings."""

from dataclasses import replace

import pytest

from bagpipe_hpc.mpi.host_links import LinkProbe
from bagpipe_hpc.tools.doctor import findings
from bagpipe_hpc.tools.doctor.diagnosis import Diagnosis
from bagpipe_hpc.tools.doctor.host_facts import HostFacts
from bagpipe_hpc.tools.doctor.installation import Finding

VERSIONS = {"Python": "3.11.7", "MPI": "MPICH 5.0.2", "torch": "2.13.0", "horovod": "0.28.1"}
HOST = HostFacts("node1", 2, 4, 8 << 30, 4 << 30, ("H100",), VERSIONS, "multiple", (), 5e8, "")
OTHER = replace(HOST, host="node2")
LINK = LinkProbe("node1", "node2", 6e-5, 1.1e9, 0.001, one_sided=True)


def test_a_healthy_set_up_has_no_findings() -> None:
    assert list(findings.host_findings([HOST, OTHER])) == []
    assert list(findings.link_findings([LINK])) == []
    report = Diagnosis([HOST, OTHER], [LINK]).report()
    assert report.endswith("healthy")
    assert "node1 - node2" in report
    assert "torch 2.13.0" in report


@pytest.mark.parametrize(
    ("change", "finding", "is_fatal"),
    [
        ({"versions": VERSIONS | {"torch": "2.12.0"}}, "node2: torch is 2.12.0, on node1 2.13.0. Give all hosts", True),
        ({"versions": VERSIONS | {"h5py": ""}}, "node2: h5py is not installed. Run bagpipe doctor there", True),
        ({"versions": VERSIONS | {"horovod": ""}}, "node2: horovod is not installed. Set train.dense_sums=auto", False),
        ({"thread_level": "funneled"}, "node2: MPI gives thread level funneled", True),
        ({"write_error": "disk full"}, "node2: cannot write to the output folder: disk full", True),
        ({"not_built": ("planner",)}, "node2: native code is not built: planner", False),
        ({"shared_bytes": 64 << 20}, "node2: /dev/shm has 64.0 MiB free", False),
        ({"cores": 1}, "node2: 2 ranks share 1 core", False),
        ({"mixed": ("torch", "thread level")}, "node2: its ranks differ in torch, thread level. Give all ranks", True),
        ({"gpus": (), "installed_gpus": 8}, "node2: the driver has 8 GPUs, torch sees none", False),
    ],
)
def test_a_host_that_differs_is_named(change: dict[str, object], finding: str, is_fatal: bool) -> None:
    (found,) = findings.host_findings([HOST, replace(OTHER, **change)])
    assert finding in str(found)
    assert found.is_fatal == is_fatal
    assert Diagnosis([HOST], [], [found]).is_healthy != is_fatal


@pytest.mark.parametrize(
    ("change", "finding", "is_fatal"),
    [
        ({"one_sided": False}, "one-sided calls give back other numbers", True),
        ({"clock_s": -30.0}, "clocks are 30.0 s apart", False),
    ],
)
def test_a_link_that_is_wrong_is_named(change: dict[str, object], finding: str, is_fatal: bool) -> None:
    (found,) = findings.link_findings([replace(LINK, **change)])
    assert f"node1 - node2: {finding}" in str(found)
    assert found.is_fatal == is_fatal


def test_a_slow_link_among_fast_ones_is_named() -> None:
    links = [LINK, replace(LINK, second="node3", bytes_per_s=1e8)]
    (found,) = findings.link_findings(links)
    assert "node1 - node3: 100 MB/s, where other links give 1100" in str(found)


def test_ranks_that_do_not_know_each_other_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in findings._LAUNCHER_SIZES:
        monkeypatch.delenv(name, raising=False)
    assert list(findings.launcher_findings(1)) == []
    monkeypatch.setenv("PMI_SIZE", "4")
    assert list(findings.launcher_findings(4)) == []
    (found,) = findings.launcher_findings(1)
    assert "the launcher started 4 ranks (PMI_SIZE), but MPI knows of one" in str(found)


def test_gpus_that_nobody_looked_for_are_not_missed() -> None:
    """A run's servers and oracle do without torch."""
    assert list(findings.host_findings([HOST, replace(OTHER, gpus=None, installed_gpus=8)])) == []


def test_a_summary_has_a_line_for_each_check() -> None:
    hosts = [HOST, replace(OTHER, gpus=None, free_bytes=2 << 30)]
    links = [LINK, replace(LINK, latency_s=9e-5, bytes_per_s=8e8, clock_s=-0.02)]
    warning = Finding("node2", "2 ranks share 1 core", "Ask for more", is_fatal=False)
    assert Diagnosis(hosts, links, [warning]).summary() == [
        "2 hosts, 4 ranks: alike in Python 3.11.7, MPI MPICH 5.0.2, torch 2.13.0, horovod 0.28.1",
        "MPI gives thread level multiple everywhere",
        "memory: 2.0 GiB or more free, /dev/shm 4.0 GiB or more",
        "GPUs: 1 or more on 1 host",
        "output folder: shared, written with 500 MB/s or more",
        "links: 2 between hosts, one-sided calls work, 90 us or less, 800 MB/s or more",
        "clocks: 20 ms apart at most",
        "warning  node2: 2 ranks share 1 core. Ask for more",
    ]
