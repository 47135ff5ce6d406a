"""Each rank says what it does in a file of its own, which grows old when it cannot any more."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.telemetry.prometheus import prometheus_name
from bagpipe_hpc.telemetry.status import StatusWriter
from bagpipe_hpc.telemetry.status_file import read_statuses
from bagpipe_hpc.telemetry.trace import Trace

LIMIT_S = 30.0


def writer(
    trace: Trace, folder: Path, role: Role = Role.TRAINER, prometheus: Path | None = None, output: Path = Path("/first")
) -> StatusWriter:
    return StatusWriter(role, 1, "node1", trace, 0.01, folder, prometheus, output)


def await_that(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def told(folder: Path) -> dict[str, object]:
    found = list(read_statuses(folder))
    return found[0][1] if found else {}


def test_a_file_says_what_is_under_way_and_for_how_long(tmp_path: Path) -> None:
    trace = Trace(enabled=False)
    folder = tmp_path / "new" / "status"
    with writer(trace, folder):
        await_that(lambda: told(folder).get("doing") == ["moving on"])
        with trace.span("wait for rows"), trace.span("inner"):
            trace.step, trace.values["loss"] = 7, 0.5
            await_that(lambda: told(folder).get("doing") == ["inner"] and told(folder)["since_s"] > 0)
        await_that(lambda: told(folder).get("doing") == ["moving on"])
        status = told(folder)
    assert (status["role"], status["role_rank"], status["host"], status["step"]) == ("trainer", 1, "node1", 7)
    assert status["values"] == {"loss": 0.5}
    assert set(status["spans_s"]) == {"wait for rows", "inner"}
    assert told(folder)["doing"] == ["ended"]
    assert [path.name for path in folder.iterdir()] == ["trainer-1.json"]


def test_threads_are_told_side_by_side(tmp_path: Path) -> None:
    trace = Trace(enabled=False)
    begun, ends = threading.Event(), threading.Event()

    def plan() -> None:
        with trace.span("plan"):
            begun.set()
            ends.wait(LIMIT_S)

    thread = threading.Thread(target=plan)
    thread.start()
    begun.wait(LIMIT_S)
    with trace.span("send"):
        assert trace.under_way()[0] == ["plan", "send"]
    assert writer(trace, tmp_path, Role.ORACLE).now().doing == ["plan"]
    ends.set()
    thread.join()
    assert writer(trace, tmp_path, Role.ORACLE).now().doing == ["reading"]


def test_shares_are_of_the_time_since_the_last_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("bagpipe_hpc.telemetry.status.time.monotonic", lambda: now_s)
    trace = Trace(enabled=False)
    own = writer(trace, tmp_path)
    trace.add("fetch", 0.0, 1.0, "mover")
    now_s = 104.0
    assert own.now().shares == {"fetch": 0.25}
    trace.add("fetch", 0.0, 1.0, "mover")
    now_s = 106.0
    assert own.now().shares == {"fetch": 0.5}


def test_a_span_that_fails_is_no_longer_under_way() -> None:
    trace = Trace(enabled=False)
    with pytest.raises(KeyError), trace.span("step"):
        raise KeyError
    assert trace.under_way() == ([], 0.0)


def fails_when(is_so: Callable[[], bool], own: StatusWriter) -> None:
    with own:
        await_that(is_so)
        raise KeyError


def test_after_an_error_the_last_file_stays_as_it_is(tmp_path: Path) -> None:
    """It does not say that the rank has ended, and so becomes stale."""
    own = writer(Trace(enabled=False), tmp_path, prometheus=tmp_path / "prom")
    with pytest.raises(KeyError):
        fails_when(lambda: len(list((tmp_path / "prom").glob("*.prom"))) == 1, own)
    assert told(tmp_path)["doing"] == ["moving on"]
    assert len(list((tmp_path / "prom").iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "status").write_text("in the way")
    with writer(Trace(enabled=False), tmp_path / "status") as own:
        own._thread.join(LIMIT_S)
        assert not own._thread.is_alive()
    (message,) = caplog.messages
    assert message.endswith("no more is told of what this rank does")


def test_damaged_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "oracle-0.json").write_text("{", encoding="utf-8")
    (tmp_path / "server-0.json").write_text("[1]", encoding="utf-8")
    (tmp_path / "trainer-0.json").write_text(json.dumps({"role": "trainer"}), encoding="utf-8")
    assert [status for _, status in read_statuses(tmp_path)] == [{"role": "trainer"}]


def test_prometheus_gets_a_file_while_the_rank_runs(tmp_path: Path) -> None:
    """With one meaning and type a metric, and labels that hold anything."""
    trace = Trace(enabled=False)
    trace.values |= {"loss": 0.25}
    trace.add('a "span"\\', 0.0, 1.5, "x")
    path = tmp_path / "prom" / prometheus_name("trainer-1", Path("/first"))
    assert path.name.startswith("bagpipe-first-")
    with writer(trace, tmp_path / "status", prometheus=path.parent):
        await_that(path.exists)
        lines = path.read_text(encoding="utf-8").splitlines()
    assert not path.exists()
    rank = 'run="first",output="/first",role="trainer",rank="1",host="node1"'
    assert f'bagpipe_value{{{rank},name="loss"}} 0.25' in lines
    assert f'bagpipe_span_seconds_total{{{rank},span="a \\"span\\"\\\\"}} 1.5' in lines
    names = [line.split("{")[0] for line in lines if not line.startswith("#")]
    for kind in ("HELP", "TYPE"):
        described = [line.split()[2] for line in lines if line.startswith(f"# {kind} ")]
        assert described == list(dict.fromkeys(names))
    assert all(
        (line.split()[3] == "counter") == line.split()[2].endswith("_total") for line in lines if "# TYPE" in line
    )


def test_runs_of_one_name_have_files_and_series_of_their_own(tmp_path: Path) -> None:
    """Also where the name is as long as a file's may be."""
    outputs = [tmp_path / part / name for part in ("a", "b") for name in ("run", "é" * 127)]
    with ExitStack() as running:
        for number, output in enumerate(outputs):
            own = tmp_path / "status" / str(number)
            running.enter_context(writer(Trace(enabled=False), own, prometheus=tmp_path / "prom", output=output))
        await_that(lambda: len(list((tmp_path / "prom").glob("*.prom"))) == len(outputs))
        files = list((tmp_path / "prom").glob("*.prom"))
        series = [line.rpartition(" ")[0] for path in files for line in path.read_text().splitlines() if line[0] != "#"]
    assert len(set(series)) == len(series) == 4 * len(outputs)
