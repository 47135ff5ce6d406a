"""Log lines go to the terminal and to a rank's file; the file's disk may be full."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bagpipe_hpc.telemetry.run_log import Voice, log_to_file, log_to_terminal, note_failure
from bagpipe_hpc.terminal import COLUMNS_VARIABLE, IN_FILE_ONLY


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The package's logger, as it was before."""
    logger = logging.getLogger("bagpipe_hpc")
    before = logger.handlers[:], logger.level, logger.propagate
    logger.handlers = []
    yield logger
    for handler in logger.handlers:
        handler.close()
    logger.handlers, logger.level, logger.propagate = before


def test_a_failure_is_noted_in_the_file_alone(
    log: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal gets it when the job is aborted."""
    log_to_terminal("server 1", speaks=False)
    log_to_file(tmp_path / "server-1.log")
    log.warning("slow")
    note_failure("bagpipe: server 1 failed: no memory\n")
    assert capsys.readouterr().err == "[server 1] slow\n"
    process, slow, failed = (tmp_path / "server-1.log").read_text(encoding="utf-8").splitlines()
    assert re.search(rf" INFO bagpipe_hpc\.telemetry\.run_log: process {os.getpid()} on \S+$", process)
    assert slow.endswith(" WARNING bagpipe_hpc: slow")
    assert failed.endswith(" ERROR bagpipe_hpc.telemetry.run_log: bagpipe: server 1 failed: no memory")


@pytest.mark.parametrize(
    ("voice", "speaks", "told"),
    [
        (Voice.QUIET, True, "slow\n"),
        (Voice.QUIET, False, "[server 1] slow\n"),
        (Voice.USUAL, True, "ready\nslow\n"),
        (Voice.USUAL, False, "[server 1] slow\n"),
        (Voice.VERBOSE, True, "ready\nslow\n"),
        (Voice.VERBOSE, False, "[server 1] ready\n[server 1] slow\n"),
    ],
)
def test_a_voice_says_how_much_is_shown(
    voice: Voice, speaks: bool, told: str, log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is for files alone stays there."""
    log_to_terminal("server 1", speaks=speaks, voice=voice)
    log.info("ready")
    log.info("step 5", extra=IN_FILE_ONLY)
    log.warning("slow")
    assert capsys.readouterr().err == told


def test_a_terminal_gets_lines_that_fit_and_command_nothing(
    log: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COLUMNS_VARIABLE, "40")
    log_to_terminal("server 1", speaks=False)
    log_to_file(tmp_path / "server-1.log")
    log.warning("%s: is damaged, so write it again", "rows\x1b[31m.h5")
    assert capsys.readouterr().err == "\r\x1b[K[server 1] rows\\x1b[31m.h5: is damaged,\n  so write it again\n"
    written = (tmp_path / "server-1.log").read_text(encoding="utf-8").splitlines()
    assert written[-1].endswith(" WARNING bagpipe_hpc: rows\\x1b[31m.h5: is damaged, so write it again")


def test_a_file_begins_with_what_was_said_before(log: logging.Logger, tmp_path: Path) -> None:
    """What a run has settled is said before its output folder may be touched."""
    log_to_terminal("oracle", speaks=True)
    log.info("rows live at home")
    log_to_file(tmp_path / "oracle-0.log")
    log.info("trained")
    lines = (tmp_path / "oracle-0.log").read_text().splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "rows live at home",
        f"process {os.getpid()} on {socket.gethostname()}",
        "trained",
    ]


def test_a_full_disk_is_told_once(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_terminal("server 1", speaks=False)
    log.info("said before")
    log_to_file(Path("/dev/full"))
    for number in range(3):
        log.info("line %d", number)
    told = capsys.readouterr().err
    assert told == ("[server 1] /dev/full: cannot be written (No space left on device): the rest of this log is lost\n")


def test_another_error_of_a_log_line_is_a_defect(
    log: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_terminal("server 1", speaks=False)
    log_to_file(tmp_path / "server-1.log")
    log.info("%d rows", "three")
    assert "TypeError" in capsys.readouterr().err
