"""What the system refuses is said with name and cure, by every command; what is no file, or too large, is not read."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError, FileError, naming_files, read_small, require_appendable
from bagpipe_hpc.tools.report import Report
from data_prep.generate import generate_clicks
from data_prep.prepare import prepare_clicks
from data_prep.prepare_settings import PrepareSettings

ROOT = Path(__file__).parents[2]

RUN_ALL = """
import contextlib, io, json, sys
import mpi4py.MPI  # started once for all of them
from bagpipe_hpc.cli.commands import main
ended = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(told):
        code = main(arguments)
    ended.append((code, told.getvalue()))
print(json.dumps(ended))
"""
"""Runs commands one after the other; an exception that none of them caught ends it."""

UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""Root enters every folder unless it gives that right up."""


@pytest.mark.slow
@pytest.mark.skipif(bool(UNPRIVILEGED) and shutil.which("setpriv") is None, reason="root without setpriv (util-linux)")
def test_every_command_names_a_folder_that_may_not_be_searched(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(f'[data]\npath = "{tmp_path}/shards"\n[train]\nbatch_size = 50\n')
    clicks = tmp_path / "clicks.tsv"
    generate_clicks(300, clicks, seed=1)
    prepare_clicks([str(clicks)], tmp_path / "shards", PrepareSettings(), lambda _: None)
    closed = tmp_path / "closed"
    (closed / "run").mkdir(parents=True)
    inside, output, time = f"{closed}/run", f"train.output={tmp_path / 'out'}", "--compute-us-per-sample=1"
    commands = [
        ["train", inside],
        ["train", str(config), f"data.path={inside}", output],
        ["train", str(config), f"train.output={inside}"],
        ["train", str(config), f"train.output={inside}", "train.resume=auto"],
        ["train", str(config), output, f"train.resume={inside}"],
        ["stop", inside],
        ["sweep", inside, "train.seed=1,2"],
        ["inspect", inside],
        ["compare", inside, inside],
        ["generate", "--rows=10", f"--output={inside}/clicks.tsv"],
        ["prepare", "--input", f"{inside}/clicks.tsv", "--output", str(tmp_path / "out")],
        ["prepare", "--input", str(clicks), "--output", inside],
        ["simulate", inside, time],
        ["simulate", str(config), f"data.path={inside}", time],
        ["simulate", str(config), f"--calibrate={inside}"],
        ["simulate", str(config), time, f"--save={inside}/line.json"],
    ]
    closed.chmod(0o600)
    command = [*UNPRIVILEGED, sys.executable, "-c", RUN_ALL, json.dumps(commands)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    closed.chmod(0o700)
    assert ended.returncode == 0, ended.stderr
    for arguments, (code, told) in zip(commands, json.loads(ended.stdout), strict=True):
        assert code == 2, (arguments, told)
        assert str(closed) in told, (arguments, told)
        assert "Permission denied" in told, (arguments, told)


def test_an_error_without_a_file_passes() -> None:
    with pytest.raises(ConnectionResetError), naming_files():
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def test_a_full_disk_has_its_own_cure() -> None:
    told = r"^/a/b: No space left on device; make room, or name another place$"
    with pytest.raises(FileError, match=told), naming_files():
        raise OSError(errno.ENOSPC, "No space left on device", "/a/b")


def test_a_small_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes("größe\n".encode())
    assert read_small(path, 8) == "größe\n"
    with pytest.raises(FileError, match=r"run\.toml: has more than 0 KiB"):
        read_small(path, 7)


def test_a_pipe_is_read(tmp_path: Path) -> None:
    """As a shell makes one for <(command)."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("[train]\nseed = 7\n",))
    writer.start()
    assert load_config(path).train.seed == 7
    writer.join()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/tty"])
def test_what_is_no_file_is_not_read(path: str) -> None:
    """The one has no end, the other waits for somebody to type."""
    with pytest.raises(ConfigError, match=rf"^{path}: is a device; name a file; configs/ holds examples$"):
        load_config(Path(path))


def test_a_configuration_of_another_size_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "clicks.tsv"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match=r"clicks\.tsv: has more than 1024 KiB, which none of its kind has"):
        load_config(path)


def test_what_lines_are_appended_to_is_there_before_they_are(tmp_path: Path) -> None:
    require_appendable(tmp_path / "results" / "line.json")
    assert (tmp_path / "results" / "line.json").read_bytes() == b""
    with pytest.raises(FileError, match=f"^{tmp_path}: Is a directory; check the path"):
        require_appendable(tmp_path)
    settings = tmp_path / "settings.toml"
    settings.write_text("[train]\n", encoding="utf-8")
    with pytest.raises(FileError, match=r"settings\.toml: is there and holds no lines of JSON"):
        require_appendable(settings)
    settings.write_text("{}\n", encoding="utf-8")
    require_appendable(settings)


def test_a_line_that_cannot_be_appended_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """What was found has been printed by then."""
    with pytest.raises(FileError, match=r"^/dev/full: No space left on device; make room"):
        Report("links", lines=["10 Gbit/s"]).finish(Path("/dev/full"))
    assert "10 Gbit/s" in capsys.readouterr().out
