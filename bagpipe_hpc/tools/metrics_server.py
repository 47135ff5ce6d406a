"""Metrics of a run's ranks for a Prometheus of this host, from the files that ranks write."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bagpipe_hpc.errors import FileError
from bagpipe_hpc.telemetry.prometheus import prometheus_text
from bagpipe_hpc.telemetry.status_file import ENDED, STATUS_FOLDER, read_statuses

_LOOPBACK = "127.0.0.1"
_CONTENT = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(output: Path) -> str:
    """The metrics of the ranks that have not ended; those of files that somebody has edited are left out."""
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
        port: that it listens on; 0 takes any.

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
            """Requests are not told of."""

    class Server(ThreadingHTTPServer):
        """Says nothing of a client that has gone before it was answered."""

        def handle_error(self, request: Any, client_address: Any) -> None:
            """As the base class, other errors alone."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    try:
        return Server((_LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        raise FileError(f"top: serve = {port}: cannot be listened on ({error}); use another port") from error
