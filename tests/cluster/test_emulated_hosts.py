"""Emulated hosts are apart from each other, joined by links as slow as asked for, and leave nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import psutil
import pytest

from tests.cluster.emulation import EMULATED_HOSTS, REFUSED, require_emulation, run_on_hosts


def report_of_ranks(folder: Path, ranks: str, program: str, links: tuple[str, ...] = ()) -> list[dict]:
    """What each rank wrote: `program` fills the dictionary `report`."""
    script = folder / "program.py"
    script.write_text(
        "import json, os, sys\nfrom pathlib import Path\nfrom mpi4py import MPI\n"
        "comm = MPI.COMM_WORLD\nrank = comm.Get_rank()\nreport = {}\n"
        + textwrap.dedent(program)
        + f"\nPath({str(folder)!r}, f'rank{{rank}}.json').write_text(json.dumps(report))\n"
    )
    ended = run_on_hosts(ranks, sys.executable, script, links=links, share=folder)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    count = sum(int(part) for part in ranks.split(","))
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(count)]


def test_ranks_of_one_host_share_what_hosts_do_not(tmp_path):
    require_emulation()
    reports = report_of_ranks(
        tmp_path,
        "2,1",
        """
        import socket
        for folder in ("/dev/shm", "/tmp"):
            Path(folder, f"of_rank{rank}").touch()
        comm.Barrier()
        report["host"] = socket.gethostname()
        report["shm"] = sorted(path.name for path in Path("/dev/shm").glob("of_rank*"))
        report["tmp"] = sorted(path.name for path in Path("/tmp").glob("of_rank*"))
        report["first_process"] = Path("/proc/1/comm").read_text().strip()
        report["devices"] = sorted(path.name for path in Path("/sys/class/net").iterdir())
        """,
    )
    assert [report["host"] for report in reports] == ["host1", "host1", "host2"]
    for place in ("shm", "tmp"):
        assert [report[place] for report in reports] == [["of_rank0", "of_rank1"]] * 2 + [["of_rank2"]]
    for report in reports:
        assert report["first_process"] == "sleep"
        assert report["devices"] == ["eth0", "lo"]


def test_long_sums_over_a_grid_of_hosts_are_those_of_one_host(tmp_path):
    """In two pieces between ranks 2 and 3, which have a host each, and in one between the others, who share one."""
    require_emulation()
    reports = report_of_ranks(
        tmp_path,
        "2,1,1",
        """
        import numpy as np
        from bagpipe_hpc.mpi import reduction
        from bagpipe_hpc.mpi.reduction import GradientReducer, SumComms
        from bagpipe_hpc.mpi.start.hosts import spans_hosts

        pieces, shares_of = [], reduction.sum_shares
        reduction.sum_shares = lambda *given: pieces.append(given[-1]) or shares_of(*given)
        first, *above = SumComms.split(comm, (2, 2))
        parts = [np.random.default_rng(seed).standard_normal((1 << 18, 1)).astype(np.float32) for seed in range(4)]
        total = GradientReducer(*first, above=above).start(parts[rank]).wait("a sum")
        report["pieces"] = pieces
        report["spans_hosts"] = [spans_hosts(first.adding), spans_hosts(comm)]
        report["is_sum"] = bool((total == (parts[0] + parts[1]) + (parts[2] + parts[3])).all())
        """,
    )
    assert [report["pieces"] for report in reports] == [[1, 1]] * 2 + [[2, 1]] * 2
    assert [report["spans_hosts"] for report in reports] == [[False, True]] * 2 + [[True, True]] * 2
    assert all(report["is_sum"] for report in reports)


@pytest.mark.parametrize("links", [("--bandwidth", "100mbit"), ("--bandwidth", "100mbit", "--latency", "5ms")])
def test_links_are_as_slow_as_asked_for(tmp_path, links):
    require_emulation(*links)
    reports = report_of_ranks(
        tmp_path,
        "1,1",
        """
        import time
        import numpy as np
        def seconds(message):
            comm.Barrier()
            start = time.perf_counter()
            (comm.Send if rank == 0 else comm.Recv)(message, 1 - rank)
            (comm.Recv if rank == 0 else comm.Send)(np.empty(1), 1 - rank)
            return time.perf_counter() - start
        seconds(np.empty(1))
        report["round_trip_s"] = min(seconds(np.empty(1)) for _ in range(5))
        report["message_s"] = min(seconds(np.empty(250_000)) for _ in range(3))
        """,
        links,
    )
    latency_s = 0.005 if "--latency" in links else 0.0
    wire_s = 2_000_000 * 8 / 100e6
    # Nothing is faster than the link; how much slower a busy machine makes it is not for a test to say.
    assert reports[0]["round_trip_s"] > 2 * latency_s
    assert reports[0]["message_s"] > 0.95 * wire_s + latency_s
    assert reports[0]["message_s"] < 20 * wire_s


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_ended(end):
    require_emulation()
    mark = f"MARK={uuid.uuid4()}"
    script = 'trap "" INT TERM; env "$0" sleep 300 & echo started; wait'
    with subprocess.Popen(
        ["env", "--default-signal=INT", str(EMULATED_HOSTS), "--ranks", "1,1", "bash", "-c", script, mark],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | dict([mark.split("=")]),
        start_new_session=True,
    ) as cluster:
        assert cluster.stdout is not None
        assert cluster.stdout.readline() == "started\n"
        assert len(marked(mark)) > 3
        cluster.send_signal(end)
        assert cluster.wait(20) == {"SIGINT": 130, "SIGTERM": 143, "SIGKILL": -9}[end.name]
    deadline = time.monotonic() + 20
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(mark) == []


def marked(mark: str) -> list[int]:
    """Processes with `mark` in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in environment:
            found.append(process.pid)
    return found


def test_status_of_the_command_is_passed_on():
    require_emulation()
    assert subprocess.run([EMULATED_HOSTS, "--ranks", "1", "bash", "-c", "exit 7"], check=False).returncode == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["true"], "--ranks '': give the ranks of each host"),
        (["--ranks", "2,0", "true"], "--ranks '2,0'"),
        (["--ranks", "1", "--bandwidth", "fast", "true"], "--bandwidth 'fast': use a rate"),
        (["--ranks", "1", "--latency", "3", "true"], "--latency '3': use a time"),
        (["--ranks", "1", "--share", "/no/such/folder", "true"], "--share /no/such/folder: no such folder"),
        (["--ranks", "1"], "no command given"),
        (["--hosts", "1"], "unknown option --hosts"),
        (["--ranks"], "--ranks needs a value"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    refused = subprocess.run([EMULATED_HOSTS, *arguments], capture_output=True, text=True, check=False)
    assert refused.returncode == REFUSED
    assert message in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to do without")
def test_others_than_root_are_told():
    refused = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "bash", "-s", "--", "--ranks", "1", "true"],
        input=EMULATED_HOSTS.read_text(),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert refused.returncode == REFUSED
    assert "needs root" in refused.stderr
