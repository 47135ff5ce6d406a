"""`bagpipe doctor` on emulated hosts: a healthy set-up, and one whose hosts do not share the output folder."""

import re
from pathlib import Path

from tests.cluster.emulation import require_emulation, run_on_hosts

LINKS = ("--bandwidth", "1gbit", "--latency", "500us")


def test_two_healthy_hosts(tmp_path: Path) -> None:
    require_emulation(*LINKS)
    ended = run_on_hosts("2,1", "bagpipe", "doctor", "--output", tmp_path / "out", links=LINKS, share=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("roles of a run with these ranks:\n  host1: server 0, trainer 0\n  host2: oracle\n")
    assert ended.stdout.rstrip().endswith("\nhealthy")
    (link,) = (line.split() for line in ended.stdout.splitlines() if line.startswith("host1 - host2"))
    latency_us, megabytes_per_s = float(link[3]), float(link[4])
    assert 450 < latency_us < 5000
    assert 40 < megabytes_per_s < 125
    assert list((tmp_path / "out").iterdir()) == []


def test_hosts_that_do_not_share_the_output(tmp_path: Path) -> None:
    """/tmp is each host's own."""
    require_emulation()
    ended = run_on_hosts("1,1", "bagpipe", "doctor", "--output", "/tmp/not-shared", share=tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "FAILED  host1: does not see what host2 wrote to /tmp/not-shared" in ended.stdout
    assert "Name a folder that all hosts share" in ended.stdout
    assert ended.stdout.rstrip().endswith("not healthy")


def test_a_host_that_is_cut_off_is_named_and_the_job_ends(tmp_path: Path) -> None:
    """No rank stays behind at MPI's end: the launcher would wait for it until its time limit, status 124."""
    require_emulation()
    written = tmp_path / ".bagpipe-doctor.host2"
    ended = run_on_hosts(
        "2,1",
        *("bagpipe", "doctor", "--output", tmp_path, "--timeout-s", "8"),
        share=tmp_path,
        timeout_s=90,
        beside=f"until [ -e {written} ]; do sleep 0.01; done; ip link set host2 down",
    )
    assert ended.returncode not in (0, 124, 137), ended.stdout + ended.stderr
    found = re.search(r"FAILED  (.+): no word of .+ within 8 s: a rank is stopped, the link is cut", ended.stderr)
    assert found, ended.stderr
    assert found[1] == "host2 (rank 2)"
