"""How commands end whose errors are not the program's own: those of a limit have a cure, others are shown in full."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from bagpipe_hpc.cli.outcome import exit_code_of
from bagpipe_hpc.exit_codes import EXIT_ERROR, EXIT_INTERRUPTED

UNMAPPED = ImportError("libtorch_cpu.so: failed to map segment from shared object")


NO_THREAD = RuntimeError("can't start new thread")
UNLIMITED = resource.RLIM_INFINITY


def limit_memory(monkeypatch: pytest.MonkeyPatch, most_bytes: int, most_threads: int = UNLIMITED) -> None:
    limits = {resource.RLIMIT_AS: most_bytes, resource.RLIMIT_NPROC: most_threads}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits[which], UNLIMITED))


def ending(error: BaseException) -> int:
    def fail() -> int:
        raise error

    return exit_code_of(fail, "bagpipe")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("Unable to allocate 2 GiB"), "Unable to allocate 2 GiB"),
        (MemoryError(), "a piece was refused"),
        (UNMAPPED, "libtorch_cpu.so: failed to map segment from shared object"),
        (RuntimeError("can't allocate memory: 64 bytes\nframe #0"), "can't allocate memory: 64 bytes"),
    ],
)
def test_memory_that_a_limit_refuses_names_the_limit(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit_memory(monkeypatch, 1_200_000_000)
    assert ending(error) == EXIT_ERROR
    assert capsys.readouterr().err == (
        f"bagpipe: error: no more memory ({said}): this process may have 1.2 GB (ulimit -v); raise that limit\n"
    )


@pytest.mark.parametrize("error", [NO_THREAD, pa.ArrowException("Failed to launch worker thread: no")])
def test_threads_that_the_system_refuses_name_their_limits(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit_memory(monkeypatch, UNLIMITED, 512)
    assert ending(error) == EXIT_ERROR
    assert capsys.readouterr().err == (
        f"bagpipe: error: no more threads ({error}): ulimit -u is 512, of all processes and threads of a user, and a "
        "control group has its pids.max; raise the limit that is met\n"
    )
    limit_memory(monkeypatch, 400_000_000)
    assert ending(error) == EXIT_ERROR
    assert "; this process may have 0.4 GB (ulimit -v); raise the limit" in capsys.readouterr().err


def test_an_interruption_by_the_limit_of_threads_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """OpenBLAS sends SIGINT to its own process where it gets no thread."""

    def refuse(_: threading.Thread) -> NoReturn:
        raise NO_THREAD

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert ending(KeyboardInterrupt()) == EXIT_ERROR
    assert capsys.readouterr().err.startswith("bagpipe: error: no more threads (can't start new thread): ulimit -u")
    monkeypatch.undo()
    assert ending(KeyboardInterrupt()) == EXIT_INTERRUPTED


@pytest.mark.parametrize("setting", ["path", "output"])
def test_letters_that_names_lack_in_a_locale_are_told(setting: str, tmp_path: Path) -> None:
    """Nothing of such a name is looked for: a manifest may be there."""
    (tmp_path / "ü").mkdir()
    config = tmp_path / "config.toml"
    sections = {"path": "[data]", "output": "[train]"}
    config.write_text(f'{sections[setting]}\n{setting} = "ü"\n', encoding="utf-8")
    call = "import os,sys;from pathlib import Path;from bagpipe_hpc.cli.outcome import exit_code_of as run;"
    call += (
        "from bagpipe_hpc.config.file import load_config;from bagpipe_hpc.storage.shards.manifest import load_manifest;"
    )
    call += f"config = load_config(Path({config.name!r}), []);"
    does = {"path": "load_manifest(Path(config.data.path))", "output": "Path(config.train.output).mkdir()"}
    call += f"sys.exit(run(lambda: {does[setting]}, 'bagpipe'))"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", call]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_ERROR
    assert "this locale (ascii) lacks letters of this name; use one of UTF-8" in ended.stderr


def test_other_errors_are_shown_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch, UNLIMITED)
    for error in (MemoryError(), UNMAPPED):
        with pytest.raises(type(error)):
            ending(error)
    limit_memory(monkeypatch, 1_200_000_000)
    with pytest.raises(ImportError):
        ending(ImportError("cannot import name"))
    with pytest.raises(RuntimeError):
        ending(RuntimeError("another one"))
