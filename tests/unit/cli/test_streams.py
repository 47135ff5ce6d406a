"""A stream that is closed or full changes no more than it must: an exit code, one message, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = "stdout: No space left on device; make room, or name another place\n"
WITHOUT_BUFFER = {**os.environ, "PYTHONUNBUFFERED": "1"}
OF_ASCII = {**os.environ, "PYTHONIOENCODING": "ascii"}  # as in an old locale
WITH_BUFFER = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def bagpipe(redirected: str, *arguments: str, environment: dict[str, str] = WITH_BUFFER) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command whose streams a shell redirects."""
    command = ["bash", "-c", f'exec "$@" {redirected}', "bash", sys.executable, "-m", "bagpipe_hpc", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("environment", [WITH_BUFFER, WITHOUT_BUFFER], ids=["buffer", "no buffer"])
@pytest.mark.parametrize("command", ["keys", "--help"])
def test_a_full_disk_of_stdout_is_an_error(command: str, environment: dict[str, str]) -> None:
    assert bagpipe(">/dev/full", command, environment=environment) == (2, "", f"bagpipe: error: {FULL}")


def test_a_watch_ends_where_its_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "oracle-0.json").write_text('{"role": "oracle"}', encoding="utf-8")
    assert bagpipe(">/dev/full", "top", str(tmp_path)) == (2, "", f"bagpipe: error: {FULL}")


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-", ">/dev/full 2>/dev/full"])
def test_an_error_that_cannot_be_said_is_an_error_still(redirected: str, tmp_path: Path) -> None:
    assert bagpipe(redirected, "inspect", str(tmp_path / "absent")) == (2, "", "")


def test_work_goes_on_where_nobody_reads_stderr() -> None:
    code, said, _ = bagpipe("2> >(true)", "sweep", "configs/quickstart.toml", "train.seed=1,2")
    assert (code, len(said.splitlines())) == (0, 2)
    code, said, _ = bagpipe("2> >(exec 0<&-; sleep 0.2)", "inspect", "/absent")
    assert (code, said) == (2, "")


def test_work_goes_on_where_stderr_is_full() -> None:
    code, said, _ = bagpipe("2>/dev/full", "sweep", "configs/quickstart.toml", "train.seed=1,2")
    assert (code, len(said.splitlines())) == (0, 2)


def test_letters_that_a_locale_lacks_are_written_in_another_way() -> None:
    code, said, _ = bagpipe("", "sweep", "configs/quickstart.toml", "data.path=ü,b", environment=OF_ASCII)
    assert (code, said.splitlines()[0].endswith(r"data.path=\xfc'")) == (0, True), said
    sweep = ("sweep", "--task", "0", "configs/quickstart.toml", "data.path=ü,b")
    assert bagpipe("", *sweep, environment=OF_ASCII)[1].splitlines()[0] == "data.path=ü", "a script reads it"


def test_a_schema_is_utf8_in_every_locale(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("label,größe\n" + "1,2\n0,5\n" * 20, encoding="utf-8")
    written = tmp_path / "schema.toml"
    assert bagpipe(f">{written}", "schema", str(rows), environment=OF_ASCII)[0] == 0
    assert "größe" in written.read_text(encoding="utf-8")


OPENS_A_FILE = """
from bagpipe_hpc.cli.streams import safe_streams
with safe_streams(): held = open("held", "w"); print(held.fileno() > 2)
"""


def test_no_file_takes_the_number_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    """As from a daemon that closes all three: what a library said on stderr would be written into a shard."""
    command = ["bash", "-c", 'exec "$@" <&- 2>&-', "bash", sys.executable, "-c", OPENS_A_FILE]
    assert subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, check=True, timeout=300).stdout == b"True\n"
