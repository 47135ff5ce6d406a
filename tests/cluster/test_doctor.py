"""`bagpipe doctor` on emulated hosts: a healthy set-up, and one whose hosts do not share the output folder."""

from pathlib import Path

from tests.cluster.emulation import require_emulation, run_on_hosts

LINKS = ("--bandwidth", "1gbit", "--latency", "500us")


def test_two_healthy_hosts(tmp_path: Path) -> None:
    require_emulation(*LINKS)
    ended = run_on_hosts("2,1", "bagpipe", "doctor", "--output", tmp_path / "out", links=LINKS, share=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
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
