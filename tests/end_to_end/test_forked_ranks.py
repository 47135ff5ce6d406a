"""A fork is a rank like another one: what it is given, how it ends, and that it does not outlive its small program."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.fork_server import forked_rank, server_socket
from tests.forked_rank import FILES_OF_A_MESSAGE

PLANTED = """
import json, os, signal, sys, time
from pathlib import Path
what, *rest = sys.argv[1:]
if what == "tell":
    told = [__name__, rest, os.environ.get("PLANTED"), os.getcwd(), sys.stdin.read(), "torch" in sys.modules]
    told.append(os.nice(0))
    print(json.dumps(told))
    os.write(int(rest[0]), b"through a file of its own")
    print("to stderr", file=sys.stderr)
elif what == "exit":
    sys.exit(int(rest[0]))
elif what == "die":
    os.kill(os.getpid(), int(rest[0]))
else:
    Path(rest[0]).write_text(str(os.getpid()))
    time.sleep(100)
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command of a fork that runs a module of `PYTHONPATH`."""
    (tmp_path / "planted_rank.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return forked_rank("planted_rank")


def test_a_fork_has_all_that_its_launcher_gave(
    planted: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "here")
    reading, writing = os.pipe()
    niceness = min(os.nice(0) + 5, 19)
    command = ["nice", "-n", "5", *planted, "tell", str(writing), "two words"]
    ended = subprocess.run(
        command, input="asked", capture_output=True, text=True, check=False, pass_fds=[writing], cwd=tmp_path
    )
    os.close(writing)
    assert ended.returncode == 0, ended.stderr
    told = ["__main__", [str(writing), "two words"], "here", str(tmp_path), "asked", True, niceness]
    assert json.loads(ended.stdout) == told
    assert ended.stderr == "to stderr\n"
    assert os.read(reading, 100) == b"through a file of its own"
    os.close(reading)


def test_a_fork_may_have_more_files_than_a_message_carries(planted: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    more = [os.dup(writing) for _ in range(3 * FILES_OF_A_MESSAGE)]
    last = more[-1]
    ended = subprocess.run([*planted, "tell", str(last)], input="", capture_output=True, check=False, pass_fds=more)
    for file in (writing, *more):
        os.close(file)
    assert ended.returncode == 0, ended.stderr
    assert os.read(reading, 100) == b"through a file of its own"
    os.close(reading)


def test_the_server_goes_on_where_a_small_program_ends_too_soon(planted: tuple[str, ...]) -> None:
    for said in (b"", b"\0" * 4, (9).to_bytes(8, "big") + b"{"):
        with socket.socket(socket.AF_UNIX) as gone:
            gone.connect(str(server_socket()))
            gone.sendall(said)
    assert subprocess.run([*planted, "exit", "7"], check=False).returncode == 7


@pytest.mark.parametrize(
    ("end", "status"), [(("exit", "0"), 0), (("exit", "7"), 7), (("die", "9"), -9), (("die", "15"), -15)]
)
def test_it_ends_as_the_fork_does(planted: tuple[str, ...], end: tuple[str, str], status: int) -> None:
    assert subprocess.run([*planted, *end], check=False).returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_fork_does_not_outlive_it(planted: tuple[str, ...], number: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "process"
    program = subprocess.Popen([*planted, "sleep", str(path)])
    while not (path.exists() and path.read_text()):
        time.sleep(0.01)
    program.send_signal(number)
    assert program.wait() == -number
    process = Path("/proc", path.read_text())
    deadline = time.monotonic() + 20
    while process.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not process.exists()
