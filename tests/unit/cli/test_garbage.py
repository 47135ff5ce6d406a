"""While a command runs, full collections are rare; afterwards they are as its caller had them."""

import gc
import sys

import pytest

from bagpipe_hpc.cli import commands
from bagpipe_hpc.cli.garbage import rare_full_collections

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="its collector has no full collections to set")


def test_only_full_collections_become_rare() -> None:
    """Those of young objects come as often as before."""
    before = gc.get_threshold()
    with rare_full_collections():
        young, middle, full = gc.get_threshold()
        assert (young, middle) == before[:2]
        assert full > 10 * before[2]
    assert gc.get_threshold() == before


def test_what_is_caught_leaves_them_as_before() -> None:
    """Whoever calls a command goes on with thresholds of its own."""
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), rare_full_collections():
        raise ZeroDivisionError
    assert gc.get_threshold() == before


def test_a_command_imports_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command does comes while full collections are rare."""
    seen = []

    def end(*_: object) -> int:
        seen.append(gc.get_threshold()[2])
        return 0

    before = gc.get_threshold()
    monkeypatch.setattr(commands, "exit_code_of", end)
    assert commands.main(["keys"]) == 0
    assert seen[0] > 10 * before[2]
    assert gc.get_threshold() == before
