"""Settings of the property tests, and a package without native code."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from bagpipe_hpc.kernels import backend, shared_library
from tests.drawing import share_of

# A deadline would make a test's outcome depend on what else the machine does; pytest-timeout ends what hangs.
settings.register_profile("bagpipe", deadline=None, max_examples=share_of(50))
settings.load_profile("bagpipe")


@pytest.fixture
def nothing_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No library is built, and none was chosen or loaded before."""
    folder = tmp_path / "no native code"
    folder.mkdir()
    monkeypatch.setattr(shared_library, "_FOLDER", folder)
    backend.use_native.cache_clear()
    shared_library.load.cache_clear()
    yield
    backend.use_native.cache_clear()
    shared_library.load.cache_clear()
