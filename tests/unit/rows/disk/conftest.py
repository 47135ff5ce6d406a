"""Stores for the tests of rows on disk."""

from collections.abc import Iterator

import pytest

from bagpipe_hpc.rows.disk.store import DiskStore
from tests.unit.rows.disk.small_stores import new_store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("ssd"))


@pytest.fixture
def store(folder: str) -> Iterator[DiskStore]:
    made = new_store(folder)
    yield made
    made.close()
