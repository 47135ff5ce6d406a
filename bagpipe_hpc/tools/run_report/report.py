"""Makes the page about runs and writes it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bagpipe_hpc.errors import FileError
from bagpipe_hpc.storage.atomic_write import atomic_write
from bagpipe_hpc.tools.run_report.page import MARK, report_page
from bagpipe_hpc.tools.run_report.run_files import load_runs

_HEAD_BYTES = 200


def write_report(folders: Sequence[Path], path: Path) -> None:
    """Write a page about runs, whole or not at all.

    Args:
        folders: their output folders.
        path: file of the page; it may replace an earlier report, and nothing else.

    Raises:
        FileError: a folder is not that of a run, or `path` is something else than a report, or cannot be written.
    """
    _require_replaceable(path)
    page = report_page(load_runs(folders), datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    with atomic_write(path) as partial:
        partial.write_bytes(_as_utf8(page))


def _as_utf8(page: str) -> bytes:
    """The page in UTF-8. Folder names that are UTF-8 are kept, whatever the locale; other bytes are replaced."""
    return page.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode("utf-8")


def _require_replaceable(path: Path) -> None:
    if path.suffix not in (".html", ".htm"):
        raise FileError(f"report: output = {str(path)!r}: is a page; use a name that ends in .html")
    if not path.parent.is_dir():
        raise FileError(f"report: output = {str(path)!r}: its folder does not exist; make it")
    if path.exists() and not _is_report(path):
        raise FileError(f"report: output = {str(path)!r}: is there and is no report; use another name")


def _is_report(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(_HEAD_BYTES)
