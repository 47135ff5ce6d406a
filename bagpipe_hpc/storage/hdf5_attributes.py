"""Attributes of HDF5 files whose values are of fixed length, so that a damaged file cannot crash its reader.

HDF5 keeps a value of variable length, as h5py writes a `str`, on a heap in the file, and follows the file's references
to it unchecked: one changed byte ends the process (HDF5 1.14). So text is written with a fixed length here, and values
of variable length are not read.
"""

from typing import Any

import h5py
import numpy as np


def set_text(member: h5py.Group | h5py.Dataset, name: str, text: str) -> None:
    """Set an attribute of a group or a dataset to a text, as UTF-8 of a fixed length."""
    member.attrs.create(name, np.bytes_(text.encode()))


def plain_attribute(member: h5py.Group | h5py.Dataset, name: str) -> Any:
    """An attribute's value: a NumPy scalar or array, or a str; None where there is none, or one of variable length.

    Raises:
        OSError, RuntimeError, KeyError, TypeError, ValueError: the file is damaged.
    """
    if name not in member.attrs or member.attrs.get_id(name).dtype.hasobject:
        return None
    value = member.attrs[name]
    return value.decode() if isinstance(value, np.bytes_) else value
