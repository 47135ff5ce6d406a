"""A native library that is missing, broken or older than the program is refused by name, with the cure."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.kernels import shared_library
from bagpipe_hpc.kernels.shared_library import is_built, load

AGAIN = r"build it again: pip install --no-build-isolation --no-deps -e \.$"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where libraries are looked for."""
    monkeypatch.setattr(shared_library, "_FOLDER", tmp_path)
    load.cache_clear()
    yield tmp_path
    load.cache_clear()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_function_that_a_library_lacks_tells_that_it_is_stale(folder: Path) -> None:
    source = folder / "sums.cpp"
    source.write_text('extern "C" int two() { return 2; }')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", folder / "_sums.so", source], check=True)
    library = load("sums")
    assert library.two() == 2
    with pytest.raises(ConfigError, match=rf"_sums\.so is older than the program: it has no function 'three'; {AGAIN}"):
        library.three()
    with pytest.raises(ConfigError, match="no function 'three'"):
        library["three"]
    assert not hasattr(library, "__wrapped__")


def test_what_is_no_library_is_refused(folder: Path) -> None:
    (folder / "_sums.so").write_bytes(b"not an ELF file")
    with pytest.raises(ConfigError, match=rf"_sums\.so does not load: .*; {AGAIN}"):
        load("sums")


@pytest.mark.usefixtures("folder")
def test_a_library_that_was_not_built_is_refused() -> None:
    assert not is_built("sums")
    with pytest.raises(ConfigError, match=r"_sums\.so was not built; run `make setup`"):
        load("sums")


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("changed", ["sums.cpp", "parts/all.h", "rows.inc"])
def test_a_library_that_is_older_than_its_source_is_refused(folder: Path, changed: str) -> None:
    """Its functions may take other arguments by now, which no call would notice. Other libraries do not count."""
    source = folder / "csrc" / changed
    other = folder / "csrc" / "other.cpp"
    source.parent.mkdir(parents=True)
    for path in (source, other):
        path.write_text('extern "C" int two() { return 2; }')
    subprocess.run(["g++", "-x", "c++", "-shared", "-fPIC", "-o", folder / "_sums.so", other], check=True)
    built = (folder / "_sums.so").stat().st_mtime
    os.utime(other, (built + 10, built + 10))
    os.utime(source, (built + 10, built + 10))
    with pytest.raises(ConfigError, match=rf"_sums\.so is older than csrc/{changed}; {AGAIN}"):
        load("sums")
    os.utime(source, (built, built))
    assert load("sums").two() == 2
