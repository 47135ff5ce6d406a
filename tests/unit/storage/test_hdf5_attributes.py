"""Attributes that lie in full where they are named."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from bagpipe_hpc.storage.hdf5_attributes import plain_attribute, set_text


@pytest.mark.parametrize("text", ["float32", "a\tbé", ""])
def test_text_comes_back_and_has_no_part_elsewhere(tmp_path: Path, text: str) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        set_text(file, "kind", "the one before")
        set_text(file, "kind", text)
        assert plain_attribute(file, "kind") == text
        assert not file.attrs.get_id("kind").get_type().is_variable_str()


def test_numbers_and_lists_come_back(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        rows = file.create_dataset("rows", data=np.zeros(3))
        rows.attrs["count"] = 3
        rows.attrs["list"] = np.asarray([1.5, 2.0])
        assert plain_attribute(rows, "count") == 3
        assert isinstance(plain_attribute(rows, "count"), np.integer)
        assert plain_attribute(rows, "list").tolist() == [1.5, 2.0]
        assert plain_attribute(rows, "absent") is None


def test_what_would_be_read_from_elsewhere_is_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.attrs["text"] = "of variable length"
        file.attrs["other"] = file.ref
        file.attrs.create("pair", np.asarray((1, "b"), [("a", "i4"), ("b", h5py.string_dtype())]))
        monkeypatch.setattr(h5py.AttributeManager, "__getitem__", None)
        assert [plain_attribute(file, name) for name in ("text", "other", "pair")] == [None] * 3
