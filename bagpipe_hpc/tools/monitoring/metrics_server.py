"""Serves metrics of a run's ranks to a Prometheus on this host, from the files that ranks write."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import FileError
from bagpipe_hpc.telemetry.status.prometheus import prometheus_text
from bagpipe_hpc.telemetry.status.status_file import ENDED, STATUS_FOLDER, read_statuses

_LOOPBACK = "127.0.0.1"
_CONTENT = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(output: Path) -> str:
    """The metrics of the ranks that have not ended; malformed files, such as edited ones, are left out."""
    statuses = [status for _, status in read_statuses(output / STATUS_FOLDER) if status.get("doing") != [ENDED]]
    parts = []
    for status in statuses:
        try:
            prometheus_text([status], Path())
        except (KeyError, TypeError, AttributeError, ValueError):
            continue
        parts.append(status)
    return prometheus_text(parts, output.resolve())


def metrics_server(output: Path, port: int) -> ThreadingHTTPServer:
    """A server on loopback that answers `/metrics`; the caller starts and ends it.

    Args:
        output: folder of the run.
        port: port to listen on; 0 takes any free one.

    Raises:
        FileError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        """Answers with the metrics as they are now."""

        def do_GET(self) -> None:
            """The metrics, or 404."""
            if self.path != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            body = metrics_text(output).encode()
            self.send_response(200)
            self.send_header("Content-Type", _CONTENT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    class Server(ThreadingHTTPServer):
        """Ignores clients that are gone before they were answered."""

        def handle_error(self, request: Any, client_address: Any) -> None:
            """As the base class, for all other errors."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    try:
        return Server((_LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        raise FileError(f"top: serve = {port}: cannot be listened on ({error}); use another port") from error
