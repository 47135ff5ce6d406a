"""Where log lines go: a file a rank; those of oracle and first trainer, and all warnings, also to stderr.

They contain names of files, so control characters are escaped (`printable`): none may command a terminal.
"""

import contextlib
import logging
import os
import socket
import sys
from enum import Enum
from pathlib import Path

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.terminal import ERASE_LINE, IN_FILE_ONLY, columns, printable, wrapped

_PACKAGE = "bagpipe_hpc"
_FILE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log = logging.getLogger(__name__)

_MOST_EARLIER = 1000
"""Most lines from before there is a log file that are kept for it."""


class Voice(Enum):
    """How much of a run's log a terminal, or what stands for it, gets."""

    QUIET = "quiet"
    """Warnings alone."""
    USUAL = "usual"
    """What is said by the ranks that speak for the run, and warnings of all ranks."""
    VERBOSE = "verbose"
    """What all ranks say."""


def log_to_terminal(name: str, *, speaks: bool, voice: Voice = Voice.USUAL) -> None:
    """Show log lines on stderr.

    Args:
        name: the rank's name, put before its lines unless it speaks for the run.
        speaks: whether this rank does.
        voice: how much there is to show.
    """
    logger = logging.getLogger(_PACKAGE)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: not vars(record).keys() & IN_FILE_ONLY.keys())
    if voice is Voice.QUIET or (voice is Voice.USUAL and not speaks):
        handler.setLevel(logging.WARNING)
    handler.setFormatter(_PrintableLines("%(message)s" if speaks else f"[{name}] %(message)s", columns()))
    logger.addHandler(handler)
    logger.addHandler(_Earlier())


def log_to_file(path: Path) -> None:
    """Append all log lines to a file from now on, and before them those since `log_to_terminal`.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        handler = _RankLog(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be written ({error}); put train.output on a file system that all ranks share"
        ) from error
    handler.setFormatter(_PrintableLines(_FILE_FORMAT))
    logger = logging.getLogger(_PACKAGE)
    logger.addHandler(handler)
    for earlier in [kept for kept in logger.handlers if isinstance(kept, _Earlier)]:
        logger.removeHandler(earlier)
        for record in earlier.records:
            if handler in logger.handlers:  # its disk is not full
                handler.handle(record)
    # Launchers name a rank that was killed by its process number only.
    log.info("process %d on %s", os.getpid(), socket.gethostname(), extra=IN_FILE_ONLY)


def note_failure(message: str) -> None:
    """Write why this rank ends the job to its log file; a launcher that is cut off by the network shows it nowhere."""
    log.error(message.rstrip(), extra=IN_FILE_ONLY)


class _PrintableLines(logging.Formatter):
    """Writes a message so that it cannot command a terminal, nor one that shows the file later.

    Args:
        text: the format.
        width: columns of the terminal that gets the lines, on which a rank may have left its progress; 0 is a file.
    """

    def __init__(self, text: str, width: int = 0) -> None:
        super().__init__(text)
        self._width = width

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        record.message = printable(record.message)
        written = super().formatMessage(record)
        return ERASE_LINE + wrapped(written, self._width) if self._width else written


class _Earlier(logging.Handler):
    """Keeps what is said before the output folder may be touched: what a run has settled belongs in its log, too."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        if len(self.records) < _MOST_EARLIER:
            self.records.append(record)


class _RankLog(logging.FileHandler):
    """A log file whose disk may be full: it says so once, and training goes on without it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        logging.getLogger(_PACKAGE).removeHandler(self)
        with contextlib.suppress(OSError):  # the line is still in its buffer
            self.close()
        log.warning("%s: cannot be written (%s): the rest of this log is lost", self.baseFilename, error.strerror)
