"""A rank as its launcher sees it: hands all that it has over to a fork of `tests/fork_server.py`, and ends as it does.

python -ISE forked_rank.py SOCKET MODULE ARGUMENT...

Imports little, so that it starts at once.
"""

import json
import os
import signal
import socket
import sys

FILES_OF_A_MESSAGE = 200
"""Linux lets a message carry 253 (unix(7)). Hydra's ranks inherit files of those that it started before them: the last
of 258 has 530."""


def open_files() -> list[int]:
    """Numbers of the files that this process was given."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            os.fstat(int(name))
        except OSError:  # of the listing itself
            continue
        found.append(int(name))
    return found


def main(path: str, command: list[str]) -> int:
    """The exit status."""
    files = open_files()
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    folder = os.getcwd()  # noqa: PTH109
    told = {
        "command": command,
        "environment": dict(os.environ),
        "folder": folder,
        "files": files,
        "niceness": os.nice(0),
    }
    content = json.dumps(told).encode()
    connection.sendall(len(content).to_bytes(8, "big") + content)
    for first in range(0, len(files), FILES_OF_A_MESSAGE):
        socket.send_fds(connection, [b"f"], files[first : first + FILES_OF_A_MESSAGE])
    answer = connection.recv(4)
    if not answer:
        print("forked_rank: the fork server is gone", file=sys.stderr)
        return 1
    status = int.from_bytes(answer, "big", signed=True)
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2:]))
