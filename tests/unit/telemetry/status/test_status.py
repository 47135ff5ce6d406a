"""Each rank says what it does in a file of its own, which grows old when it cannot any more."""

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from bagpipe_hpc.cluster.role_layout import Role
from bagpipe_hpc.errors import WaitTimeoutError
from bagpipe_hpc.telemetry.status import status as status_module
from bagpipe_hpc.telemetry.status.prometheus import prometheus_name
from bagpipe_hpc.telemetry.status.status import StatusWriter, naming_silent_ranks
from bagpipe_hpc.telemetry.status.status_file import read_statuses, who_is_silent
from bagpipe_hpc.telemetry.trace import Trace

LIMIT_S = 30.0
ALL_TELL = "; all 3 ranks still tell what they do: it is the network, or one is busy (`bagpipe top`)"


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
    monkeypatch.setattr("bagpipe_hpc.telemetry.status.status.time.monotonic", lambda: now_s)
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


def told_before(folder: Path, seconds: dict[str, float], **more: object) -> Path:
    """Files of ranks, each written so many seconds before now."""
    for name, ago_s in seconds.items():
        role, number = name.split()
        status = {"role": role, "role_rank": int(number), "host": "node7", "every_s": 2.0, **more}
        path = folder / f"{role}-{number}.json"
        path.write_text(json.dumps(status), encoding="utf-8")
        os.utime(path, (1e9 - ago_s, 1e9 - ago_s))
    return folder


@pytest.mark.parametrize(
    ("seconds", "silent"),
    [
        ({"oracle 0": 0, "server 0": 149, "trainer 0": 0}, ""),
        ({"oracle 0": 0, "server 0": 151, "trainer 0": 0}, "server 0 on node7 for 151 s"),
        ({"oracle 0": 2, "trainer 0": 300, "trainer 1": 0.5}, "trainer 0 on node7 for 300 s"),
    ],
)
def test_ranks_are_silent_that_did_not_write_for_half_of_a_wait(
    seconds: dict[str, float], silent: str, tmp_path: Path
) -> None:
    found = who_is_silent(told_before(tmp_path, seconds), 300.0)
    assert found == (f"; of 3 ranks these have been silent: {silent}" if silent else ALL_TELL)


def test_of_a_short_wait_ranks_are_silent_that_left_out_two_files(tmp_path: Path) -> None:
    seconds = {"oracle 0": 0, "trainer 0": 3.5, "trainer 1": 4.5}
    assert who_is_silent(told_before(tmp_path, seconds), 1.0).endswith(": trainer 1 on node7 for 4 s")


def test_eight_silent_ranks_are_named(tmp_path: Path) -> None:
    seconds = {"oracle 0": 0} | {f"trainer {number}": 500 for number in range(10)}
    found = who_is_silent(told_before(tmp_path, seconds), 300.0)
    assert found.startswith("; of 11 ranks these have been silent: trainer 0 on node7 for 500 s, trainer 1 on ")
    assert found.endswith(", trainer 7 on node7 for 500 s, 2 more")


def test_who_has_ended_is_not_silent(tmp_path: Path) -> None:
    told_before(tmp_path, {"server 0": 500}, doing=["ended"])
    assert who_is_silent(tmp_path, 300.0) == ""
    assert who_is_silent(told_before(tmp_path, {"oracle 0": 0, "trainer 0": 0}), 300.0) == ALL_TELL.replace("3", "2")


def test_damaged_numbers_name_nobody_by_mistake(tmp_path: Path) -> None:
    told_before(tmp_path, {"oracle 0": 0, "server 0": 1, "trainer 0": 2}, every_s="often")
    assert who_is_silent(tmp_path, 300.0) == ALL_TELL


def test_an_error_of_a_wait_names_silent_ranks(tmp_path: Path) -> None:
    (tmp_path / "status").mkdir()
    told_before(tmp_path / "status", {"oracle 0": 0, "trainer 0": 31})
    waited = "waited 30 s for rows; of 2 ranks these have been silent: trainer 0 on node7 for 31 s"
    with pytest.raises(WaitTimeoutError, match=waited), naming_silent_ranks(tmp_path, 30.0):
        raise WaitTimeoutError("waited 30 s for rows")


def test_a_file_system_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(status_module, "who_is_silent", lambda *_: answered.wait(LIMIT_S) and "")
    monkeypatch.setattr(status_module, "_LONGEST_READ_S", 0.05)
    with (
        pytest.raises(WaitTimeoutError, match=r"^waited; \S+status could not be read within 0 s$"),
        naming_silent_ranks(tmp_path, 30.0),
    ):
        raise WaitTimeoutError("waited")
    answered.set()


@pytest.mark.parametrize("folder", [None, Path("/nowhere")])
def test_without_files_an_error_stays_as_it_is(folder: Path | None) -> None:
    with pytest.raises(WaitTimeoutError, match=r"^waited$"), naming_silent_ranks(folder, 30.0):
        raise WaitTimeoutError("waited")


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
