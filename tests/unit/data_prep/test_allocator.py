"""The allocator's options are set where there are such options."""

import ctypes
from types import SimpleNamespace

import pytest

from data_prep.allocator import keep_freed_memory


def test_glibc_is_told_its_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda option, value: calls.append((option, value)))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    keep_freed_memory()
    assert calls == [(-3, 32 << 20), (-1, 32 << 20)]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    keep_freed_memory()


def test_this_c_library_accepts_them() -> None:
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        pytest.skip("not glibc")
    assert set_option(-3, 32 << 20) == 1
    assert set_option(-1, 32 << 20) == 1
