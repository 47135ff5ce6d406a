"""`bagpipe top` shows what each rank does, and which tell nothing any more."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from bagpipe_hpc.cli.commands import main
from bagpipe_hpc.cli.runs import watch
from bagpipe_hpc.errors import FileError
from bagpipe_hpc.tools.monitoring.metrics_server import metrics_server, metrics_text
from bagpipe_hpc.tools.monitoring.top import view
from tests.unit.test_errors import UNPRIVILEGED


def tell(output: Path, role: str, rank: int, age_s: float = 0.0, **fields: Any) -> None:
    """Write a rank's file, as it was some seconds ago."""
    status = {"role": role, "role_rank": rank, "host": "node1", "process": 42, "doing": ["plan"], "since_s": 0.5}
    status |= {"step": 7, "values": {}, "shares": {}, "spans_s": {}, "processor_s": 65.0, "resident_bytes": 2e8}
    path = output / "status" / f"{role}-{rank}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(status | {"every_s": 2.0} | fields), encoding="utf-8")
    then_s = time.time() - age_s
    os.utime(path, (then_s, then_s))


def test_ranks_stand_in_the_order_of_their_roles(tmp_path: Path) -> None:
    shares = {"plan": 0.25, "send": 0.5, "watch": 0.01, "other": 0.002}
    for role, rank in (("trainer", 10), ("trainer", 2), ("server", 0), ("oracle", 0)):
        tell(tmp_path, role, rank, values={"loss": 0.123456789} if rank == 2 else {}, shares=shares, since_s=75.0)
    head, empty, _, *ranks = view(tmp_path).lines
    assert head == f"{tmp_path}  step 7  loss 0.123457"
    assert empty == ""
    assert [line.split("  ")[0] for line in ranks] == ["oracle 0", "server 0", "trainer 2", "trainer 10"]
    assert "plan, for 1:15  send 50%, plan 25%, watch 1%" in ranks[0]
    assert ranks[0].endswith("200 MB")


def test_the_step_is_that_of_the_trainers(tmp_path: Path) -> None:
    """The oracle has planned further, and a server counts none."""
    for role, step in (("oracle", 66), ("server", 0), ("trainer", 7)):
        tell(tmp_path, role, 0, step=step)
    assert view(tmp_path).lines[0] == f"{tmp_path}  step 7"


def test_a_rank_that_tells_nothing_any_more_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it has said that it has ended, or tells seldom."""
    tell(tmp_path, "oracle", 0, age_s=3600.0, doing=["ended"])
    tell(tmp_path, "trainer", 0, age_s=20.0, every_s=60.0)
    assert main(["top", str(tmp_path), "--once"]) == 0
    tell(tmp_path, "server", 0, age_s=20.0)
    assert main(["top", str(tmp_path), "--once"]) == 1
    told = capsys.readouterr().out
    assert re.search(r"0:2\d ago STALE", told)
    assert told.endswith("stale: server 0: stopped, killed, or cut off from this file system\n")


def test_where_all_are_stale_it_may_be_the_clock(tmp_path: Path) -> None:
    """Of this host, which may be ahead of the file system's by more than ranks are given."""
    tell(tmp_path, "oracle", 0, age_s=3600.0, doing=["ended"])
    for rank in (0, 1):
        tell(tmp_path, "trainer", rank, age_s=120.0)
    assert view(tmp_path).lines[-1].endswith("or, as it is all of them, this host's clock is ahead")


def test_files_that_somebody_has_edited_command_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(
        tmp_path, "oracle", 0, doing="x", shares=[1], values={"a\x1b[2J": None}, step=None, host="\x1b[31m", process="p"
    )
    assert main(["top", str(tmp_path), "--once"]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400, {"loss": 10**400}, "\ud800"])
def test_numbers_that_are_none_are_passed_over(
    tmp_path: Path, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    for field in ("role_rank", "process", "step", "since_s", "every_s", "processor_s", "resident_bytes", "values"):
        fields: dict[str, Any] = {"time_s": value, "host": "\ud800", field: value}
        tell(tmp_path, "oracle", 0, **fields)
        assert main(["top", str(tmp_path), "--once"]) == 0
        assert "oracle 0" in capsys.readouterr().out
        metrics_text(tmp_path).encode()


def test_closed_streams_change_no_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(tmp_path, "oracle", 0)
    for output, code in ((tmp_path, 0), (tmp_path / "nowhere", 2)):
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, None)
        assert main(["top", str(output)]) == code
        sys.stdout.close()
        sys.stderr.close()


def test_a_clock_that_is_ahead_is_told(tmp_path: Path) -> None:
    """By the files alone, a rank that is gone could not be told from one that lives."""
    tell(tmp_path, "oracle", 0, age_s=-3600.0)
    os.mkfifo(tmp_path / "status" / "oracle-1.json")  # nobody writes to it
    assert view(tmp_path).lines[-1].startswith("clock ahead: oracle 0: ")


def test_a_watch_goes_on_while_a_run_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start that goes on removes the files of the one before; its own come a little later."""
    tell(tmp_path, "oracle", 0)
    between = iter([lambda: shutil.rmtree(tmp_path / "status"), lambda: tell(tmp_path, "oracle", 0, host="node2")])

    def sleep(_: float) -> None:
        if (change := next(between, None)) is None:
            raise KeyboardInterrupt
        change()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(watch.time, "sleep", sleep)
    assert main(["top", str(tmp_path)]) == 0
    first, second, third = capsys.readouterr().out.split("\x1b[H\x1b[J")[1:]
    assert "node1" in first
    assert second == f"{tmp_path}: no rank tells there what it does: name the folder of train.output\n"
    assert "node2" in third


def test_where_no_rank_tells_it_is_said_why(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"name the folder of train\.output"):
        view(tmp_path)
    (tmp_path / "config.toml").touch()
    with pytest.raises(FileError, match=r"have not begun, it is a run of one rank, .*, or train\.status_every_s is 0"):
        view(tmp_path)


def test_a_server_on_loopback_answers_with_the_metrics(tmp_path: Path) -> None:
    """Of ranks that go on and whose files are sound; each metric is described once."""
    for rank in (0, 1):
        tell(tmp_path, "trainer", rank, time_s=1.5, values={"loss": 0.25, "auc": None}, spans_s={"fetch": 2.0})
    tell(tmp_path, "server", 0, doing=["ended"])
    tell(tmp_path, "oracle", 0, time_s=1.5, values="x")
    with metrics_server(tmp_path, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        with urlopen(f"{address}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        with pytest.raises(HTTPError, match="404") as refused:
            urlopen(address, timeout=30)
        refused.value.close()
        server.shutdown()
        thread.join(30)
    assert server.server_address[0] == "127.0.0.1"
    losses = [line for line in lines if 'name="loss"' in line]
    run = f'run="{tmp_path.name}",output="{tmp_path}"'
    assert losses == [
        f'bagpipe_value{{{run},role="trainer",rank="{rank}",host="node1",name="loss"}} 0.25' for rank in (0, 1)
    ]
    assert len([line for line in lines if line.startswith("# TYPE bagpipe_value ")]) == 1
    assert not [line for line in lines if "None" in line]
    assert not [line for line in lines if 'role="server"' in line or 'role="oracle"' in line]


def test_a_client_that_goes_away_leaves_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with metrics_server(tmp_path, 0) as server:
        for error in (BrokenPipeError(), OSError("else")):
            try:
                raise error
            except OSError:
                server.handle_error(None, ("127.0.0.1", 1))  # type: ignore[arg-type]
    told = capsys.readouterr().err
    assert "BrokenPipeError" not in told
    assert "else" in told


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with metrics_server(tmp_path, 0) as server, pytest.raises(FileError, match="use another port"):
        metrics_server(tmp_path, server.server_port)
    with pytest.raises(FileError, match="top: serve = 99999"):
        metrics_server(tmp_path, 99999)


@pytest.mark.skipif(bool(UNPRIVILEGED) and shutil.which("setpriv") is None, reason="root without setpriv (util-linux)")
@pytest.mark.parametrize("closed", ["status", "status/oracle-0.json"])
def test_what_may_not_be_read_is_named(tmp_path: Path, closed: str) -> None:
    """As of a run of another user, whose files are closed to others."""
    tell(tmp_path, "oracle", 0)
    (tmp_path / closed).chmod(0)
    command = [*UNPRIVILEGED, sys.executable, "-m", "bagpipe_hpc", "top", "--once", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (tmp_path / closed).chmod(0o755)
    assert ended.returncode == 2
    assert f"{tmp_path}/{closed}: Permission denied" in ended.stderr
