"""`scripts/run_ranks.sh` as a user meets it: on a terminal, with Ctrl-C, with a wrong number of ranks."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bagpipe_hpc.terminal import COLUMNS_VARIABLE, STDOUT_VARIABLE
from tests.ranks import RUN_RANKS, rank_environment, require_launcher

CTRL_C = b"\x03"
LIMIT_S = 60.0
PRINT_TERMINAL = ("printenv", COLUMNS_VARIABLE, STDOUT_VARIABLE)


def on_terminal(
    *arguments: str, columns: int = 100, is_time_for_ctrl_c: Callable[[], bool] = lambda: False
) -> tuple[int, str]:
    """Run the script on a terminal of its own; exit status and what the terminal shows."""
    require_launcher()
    environment = rank_environment({"RANKS_TIMEOUT_S": str(LIMIT_S)})
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell's background jobs ignore
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(RUN_RANKS, [str(RUN_RANKS), *arguments], environment)
    os.set_blocking(terminal, False)
    shown, deadline, is_asked = b"", time.monotonic() + LIMIT_S, False
    while time.monotonic() < deadline:
        try:
            part = os.read(terminal, 65536)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # the last process has left the terminal
            break
        else:
            shown += part
            if not part:
                break
        if not is_asked and is_time_for_ctrl_c():
            is_asked = True
            os.write(terminal, CTRL_C)
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown.decode(errors="replace")


@pytest.mark.parametrize("ranks", ["x", "0", "-2", "3x", "", "1.5"])
def test_what_is_no_number_of_ranks_is_refused(ranks: str) -> None:
    """Launchers take it for a single rank, or for the command."""
    ended = subprocess.run([RUN_RANKS, ranks, "true"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "is no number of ranks; write run_ranks.sh N COMMAND" in ended.stderr


def test_ranks_are_told_that_there_is_a_terminal_and_how_wide_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert on_terminal("1", "bash", "-c", f"{' '.join(PRINT_TERMINAL)} || true", columns=60) == (0, "1\r\n")
    monkeypatch.setenv("TERM", "xterm")
    for columns in (60, 120):
        status, shown = on_terminal("1", "bash", "-c", " ".join(PRINT_TERMINAL), columns=columns)
        assert status == 0
        assert shown.split() == [str(columns), "1"]


def test_no_terminal_has_no_width(run_ranks: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Nor one that an outer script was told of."""
    # MPICH's launcher may die of SIGPIPE where a rank ends before it has been told all.
    command = f"sleep 0.5; {' '.join(PRINT_TERMINAL)} || echo none"
    ended = run_ranks(1, "bash", "-c", command, env={COLUMNS_VARIABLE: "60", STDOUT_VARIABLE: "1"})
    assert (ended.returncode, ended.stdout) == (0, "none\n")


@pytest.mark.parametrize(("ranks", "counted", "trains"), [("1", "1 rank", False), ("2", "2 ranks", True)])
def test_ctrl_c_says_what_happens_and_how_to_go_on(tmp_path: Path, ranks: str, counted: str, *, trains: bool) -> None:
    words = ["bagpipe", "train", "run.toml"] if trains else ["x"]
    script = 'touch "$0/started"; sleep 1000'
    status, shown = on_terminal(
        ranks, "bash", "-c", script, str(tmp_path), *words, is_time_for_ctrl_c=(tmp_path / "started").exists
    )
    assert status == 130
    assert f"run_ranks: interrupted: ending {counted}\r\n" in shown
    assert ("the same command with train.resume=auto goes on from the newest" in shown) == trains


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_ranks_run_where_a_daemon_has_closed_the_streams(closed: str, tmp_path: Path) -> None:
    require_launcher()
    touch = ["bash", "-c", f'exec "$@" {closed}', "bash", RUN_RANKS, "1", "touch", tmp_path / "done"]
    environment = rank_environment({"RANKS_TIMEOUT_S": str(LIMIT_S)})
    ended = subprocess.run(touch, env=environment, check=False, stdout=subprocess.DEVNULL)
    assert (ended.returncode, (tmp_path / "done").exists()) == (0, True)


def test_a_launcher_that_nobody_hears_is_told(tmp_path: Path) -> None:
    """MPICH's ends, and the ranks with it, where the reader of its stdout has seen enough."""
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/usr/bin/env bash\nshift 2; exec "$@"\n')
    launcher.chmod(0o755)
    piped = ["bash", "-c", '"$@" | head -1; echo "status ${PIPESTATUS[0]}"', "bash", RUN_RANKS, "2", "yes"]
    environment = rank_environment({"RANKS_TIMEOUT_S": str(LIMIT_S), "MPIRUN": str(launcher)})
    ended = subprocess.run(piped, env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == ["y", "status 141"]
    assert ended.stderr == (
        "run_ranks: standard output was closed, as by 'head': the launcher ended, and with it 2 ranks; use a file\n"
    )


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_ranks_end_where_nobody_hears_that_they_do(sent: signal.Signals, status: int, tmp_path: Path) -> None:
    """As behind a pipe whose reader the same Ctrl-C has ended, or where the terminal is gone."""
    require_launcher()
    number = tmp_path / "rank"
    script = 'echo $$ >"$0.begun"; mv "$0.begun" "$0"; exec sleep 1000'
    environment = rank_environment({"RANKS_TIMEOUT_S": str(LIMIT_S), "RANKS_KILL_AFTER_S": "5"})
    reader, writer = os.pipe()
    command = [RUN_RANKS, "1", "bash", "-c", script, number, "train"]
    ranks = subprocess.Popen(command, env=environment, stdout=writer, stderr=writer)
    os.close(reader)
    os.close(writer)
    wait_for(number.exists)
    ranks.send_signal(sent)
    assert ranks.wait(LIMIT_S) == status
    rank = Path("/proc", number.read_text().strip())
    wait_for(lambda: not rank.exists() or rank.joinpath("stat").read_text().split()[2] == "Z")


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_script_may_be_called_by_a_link(tmp_path: Path) -> None:
    require_launcher()
    (tmp_path / "ranks").symlink_to(RUN_RANKS)
    environment = rank_environment({"RANKS_TIMEOUT_S": str(LIMIT_S)})
    assert subprocess.run([tmp_path / "ranks", "1", "true"], env=environment, check=False).returncode == 0
