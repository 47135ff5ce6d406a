"""Forks ranks that need not import torch, which takes longer than a tiny run.

Where a command is `forked_rank("tests.end_to_end.train_many")`, a launcher starts `tests/forked_rank.py`, a small
program that hands its environment, working folder, niceness and open files, and with them the way to its launcher, over
to this server. A fork of it takes them and goes on as `python -m tests.end_to_end.train_many` would. As it ends, the
small program ends; where that one is ended, so is the fork. All workers of pytest-xdist share the server of the process
that started them.

A fork finds modules imported, and all forks of a server order sets of strings alike, which ranks do not. So some runs
start as a user starts them: those of the preflight checks, of an example, and most of those of which a rank is
killed.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from tests.forked_rank import FILES_OF_A_MESSAGE

ROOT = Path(__file__).resolve().parents[1]
SOCKET_VARIABLE = "BAGPIPE_TEST_FORKS"
"""Names the socket of a server that is there already: for workers, and for tests that are run by a test."""
_WORKER_VARIABLE = "PYTEST_XDIST_WORKER"
_IMPORTED = (
    "bagpipe_hpc.mpi.start.running",
    "numpy",
    "numpy.ma",
    "h5py",
    "http.server",
    "pytest",
    "torch._dynamo",
    "bagpipe_hpc.launch",
    "bagpipe_hpc.models.published.dlrm",
    "bagpipe_hpc.roles.trainer.trainer",
    "bagpipe_hpc.telemetry.records.tensorboard_record",
    "tests.end_to_end.breakages",
)
"""What a fork finds; nothing of it may start threads, or MPI: the first one imports mpi4py so that it does not.
Optimizers import `torch._dynamo` when they are made, `numpy.unique` imports `numpy.ma`, and Horovod `http.server`."""
_C_LIBRARY = ctypes.PyDLL(None)
_ENVIRONMENT = dict(os.environ)
_SHARED = SOCKET_VARIABLE in _ENVIRONMENT
_open, _read, _fstat, _close = os.open, os.read, os.fstat, os.close
"""As they are when no test has put something in their place."""


def forked_rank(module: str) -> tuple[str, ...]:
    """The command of a rank that runs a module: a fork, but for the arguments that follow."""
    return (sys.executable, "-ISE", str(ROOT / "tests" / "forked_rank.py"), str(server_socket()), module)


def forked(command: Sequence[str | Path]) -> tuple[str | Path, ...]:
    """`bagpipe ...` as a fork."""
    program, *arguments = command
    assert program == "bagpipe"
    return (*forked_rank("bagpipe_hpc"), *arguments)


@cache
def server_socket() -> Path:
    """Of the server that there is, or of one that starts now and ends with this process.

    It takes requests at once, and forks when it has imported what it is to.
    """
    from tests.ranks import rank_environment

    if there := os.environ.get(SOCKET_VARIABLE):
        return Path(there)
    path = Path(tempfile.mkdtemp(prefix="bagpipe-forks-")) / "socket"
    start = 'source scripts/rank_environment.sh && exec "$@"'
    server = subprocess.Popen(
        ["bash", "-c", start, "bash", sys.executable, "-m", "tests.fork_server", str(path)],
        cwd=ROOT,
        env=rank_environment(),
        stdin=subprocess.PIPE,  # closed when this process ends
        stdout=subprocess.PIPE,
    )
    _servers.append(server)
    assert server.stdout is not None
    if not server.stdout.readline():
        raise RuntimeError(f"the fork server ended with status {server.wait()} before it was ready")
    return path


_servers: list[subprocess.Popen[bytes]] = []
"""Kept: a `Popen` that is forgotten closes its pipes."""


def share_server() -> None:
    """Let all processes that this one starts from now on take its server."""
    os.environ[SOCKET_VARIABLE] = str(server_socket())


def forks_processor_s() -> float:
    """Seconds of processors that forks for this process, or for this worker, have taken by their ends."""
    if not _SHARED and not _servers:
        return 0.0
    try:
        file = _open(_processor_file(server_socket(), _ENVIRONMENT), os.O_RDONLY)
    except FileNotFoundError:  # none has ended
        return 0.0
    told = _read(file, _fstat(file).st_size)
    _close(file)
    return sum(map(float, told.split()))


def _processor_file(server: Path, environment: Mapping[str, str]) -> Path:
    """Where a server adds what each fork for a process with this environment has taken, as it ends."""
    return server.with_name(f"processor_s of {environment.get(_WORKER_VARIABLE, 'tests')}")


class Request:
    """What a small program has sent: a module with its arguments, and all that a process gets from its parent."""

    def __init__(self, connection: socket.socket) -> None:
        self._files: list[int] = []
        try:
            self._told = self._receive_all(connection)
        except (EOFError, ConnectionError):
            self.close()
            raise

    def _receive_all(self, connection: socket.socket) -> dict[str, Any]:
        """What was told; the files come behind it, and are kept.

        Raises:
            ConnectionError, EOFError: the small program has ended.
        """
        size = int.from_bytes(self._receive(connection, 8), "big")
        told: dict[str, Any] = json.loads(self._receive(connection, size))
        while len(self._files) < len(told["files"]):
            self._receive(connection, 1)
        return told

    def _receive(self, connection: socket.socket, size: int) -> bytes:
        """Bytes, and the files that came with them."""
        content = b""
        while len(content) < size:
            part, files, _, _ = socket.recv_fds(connection, size - len(content), FILES_OF_A_MESSAGE)
            self._files += files
            if not part:
                raise EOFError("a rank ended before it had said what to run")
            content += part
        return content

    @property
    def environment(self) -> Mapping[str, str]:
        """That of the small program."""
        return self._told["environment"]  # type: ignore[no-any-return]

    def close(self) -> None:
        """Leave the files to the fork."""
        for file in self._files:
            os.close(file)

    def take(self) -> str:
        """Become this process; the module to run."""
        above_all = max(*self._files, *self._told["files"]) + 1
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD, above_all) for file in self._files]
        os.closerange(0, above_all)
        for file, number in zip(moved, self._told["files"], strict=True):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self._told["folder"])
        os.nice(max(0, self._told["niceness"] - os.nice(0)))
        sys.path[1:1] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
        module, *arguments = self._told["command"]
        sys.argv[1:] = arguments
        return str(module)


def listen(path: Path) -> socket.socket:
    """Where requests wait until they are served."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(1000)
    print("ready", flush=True)
    return listening


def serve(listening: socket.socket, path: Path) -> str:
    """Fork until stdin ends.

    Returns:
        In each fork the module to run; in the server nothing: the process ends.
    """
    awaited = selectors.DefaultSelector()
    awaited.register(listening, selectors.EVENT_READ)
    awaited.register(sys.stdin, selectors.EVENT_READ)
    ranks: dict[int, tuple[int, socket.socket, Path]] = {}
    while True:
        for key, _ in awaited.select():
            if key.fileobj is sys.stdin:
                shutil.rmtree(path.parent, ignore_errors=True)
                os._exit(0)
            if key.fileobj is listening:
                connection, _ = listening.accept()
                try:
                    request = Request(connection)
                except (EOFError, ConnectionError):  # the small program is gone
                    connection.close()
                    continue
                process = os.fork()
                if process == 0:
                    for ours in (awaited, listening, connection, *(other for _, other, _ in ranks.values())):
                        ours.close()  # now: later the number is that of a file of the rank
                    return request.take()
                request.close()
                end = os.pidfd_open(process)
                noted = _processor_file(path, request.environment)
                ranks[end] = ranks[connection.fileno()] = process, connection, noted
                awaited.register(end, selectors.EVENT_READ, "the fork has ended")
                awaited.register(connection, selectors.EVENT_READ, "the small program has ended")
            elif key.fd in ranks:
                process, connection, noted = ranks[key.fd]
                if key.data == "the small program has ended":
                    os.kill(process, signal.SIGKILL)
                    awaited.unregister(connection)
                    continue
                _, status, used = os.wait4(process, 0)
                with noted.open("a") as file:
                    file.write(f"{used.ru_utime + used.ru_stime}\n")
                with contextlib.suppress(BrokenPipeError):
                    connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
                awaited.unregister(key.fd)
                if connection.fileno() in awaited.get_map():
                    awaited.unregister(connection)
                del ranks[key.fd], ranks[connection.fileno()]
                os.close(key.fd)
                connection.close()
    raise AssertionError


def end_at_once(status: int) -> NoReturn:
    """End this fork in the order of an interpreter, but leave its memory to the system.

    To take down all modules writes to the memory that a fork shares with its server: with torch among them, it takes
    longer than a tiny run. What C libraries have left for the end comes as usual, back to where the server was ready.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    if (mpi := sys.modules.get("mpi4py.MPI")) and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()  # which mpi4py leaves to the very end of an interpreter
    sys.stdout.flush()
    sys.stderr.flush()
    _C_LIBRARY.fflush(None)
    _C_LIBRARY.exit(status)
    raise AssertionError


def leave_out_what_was_imported() -> None:
    """Let forks skip what C libraries and finalizers have registered for the end of a process so far.

    Those of torch write to 32 MB of what a fork shares with its server. Of C libraries the last that registers comes
    first.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    _C_LIBRARY.on_exit(_C_LIBRARY._exit, None)


if __name__ == "__main__":
    at = Path(sys.argv[1])
    asked = listen(at)
    for name in _IMPORTED:
        __import__(name)
    leave_out_what_was_imported()
    gc.freeze()  # a fork need not look at all this again when it ends
    module = serve(asked, at)
    status: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code or 0
    if not isinstance(status, int):
        sys.exit(str(status))
    end_at_once(status)
