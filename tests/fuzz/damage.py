"""Damage to files that knows how they are built, as hypothesis draws it: JSON, HDF5, NumPy's archives, and plain bytes.

Each damage is a value that says in an error what was done, and does it to a copy of the sound files.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

GONE = "<gone>"
"""In place of a value: there is none."""
ODD_VALUES: list[Any] = [
    *(GONE, None, True, False, 0, 1, 2, -1, 7, 255, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 62), (1 << 63) - 1, 1 << 64),
    *(0.5, -0.0, 1e-300, 1e308, "", "x", "C1", "0" * 64, "x" * 3000, "../manifest.json", "/etc/passwd", "a\0b"),
    *("\x1b[2J", "ümläut", "\ud800", "os:system", "json:dumps", [], [0], [[]], ["x"], {}, {"a": 1}, [1] * 2000),
]


@dataclass(frozen=True)
class JsonDamage:
    """A value of a JSON file is another one.

    Attributes:
        file: its path below the folder.
        place: names and numbers on the way to the value.
        value: what is there now: a value, or `scaled`, a factor and a summand for the number that was there.
    """

    file: str
    place: tuple[str | int, ...]
    value: Any
    scaled: tuple[int, int] | None = None

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        document = json.loads(path.read_text(encoding="utf-8"))
        holder = document
        for part in self.place[:-1]:
            holder = holder[part]
        last = self.place[-1]
        old = holder[last]
        if self.scaled and isinstance(old, int | float):
            holder[last] = old * self.scaled[0] + self.scaled[1]
        elif self.value == GONE:
            del holder[last]
        else:
            holder[last] = self.value
        path.write_text(json.dumps(document), encoding="utf-8")


def json_damage(folder: Path, *files: str) -> st.SearchStrategy[JsonDamage]:
    """One value anywhere in one of the files."""
    places = [(file, place) for file in files for place in _places(json.loads((folder / file).read_text()))]
    scaled = st.tuples(st.sampled_from([0, 1, 2, -1]), st.sampled_from([-1, 0, 1, 1 << 20]))
    return st.builds(
        lambda where, value, by: JsonDamage(*where, value, by),
        st.sampled_from(places),
        st.sampled_from(ODD_VALUES),
        st.none() | scaled,
    )


def _places(document: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Of all values within; a list has the first and the last of its items alone."""
    if place:
        yield place
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _places(value, (*place, name))
    elif isinstance(document, list):
        for number in sorted({0, len(document) - 1} if document else ()):
            yield from _places(document[number], (*place, number))


@dataclass(frozen=True)
class BytesDamage:
    """A file has other bytes.

    Attributes:
        file: its path below the folder.
        how: what happens.
        where: 0 to 1, the place in the file.
        keeps_entry: whether manifests go on naming the size and the checksum of the sound file.
    """

    file: str
    how: str
    where: float
    keeps_entry: bool

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        content = bytearray(path.read_bytes())
        place = int(self.where * len(content))
        match self.how:
            case "flip":
                content[min(place, len(content) - 1)] ^= 1 << (place % 8)
            case "zeros":
                content[place : place + 64] = bytes(len(content[place : place + 64]))
            case "ones":
                content[place : place + 8] = b"\xff" * len(content[place : place + 8])
            case "cut":
                del content[place:]
            case "longer":
                content += bytes(100)
            case "doubled":
                content += bytes(content)
            case "empty":
                content.clear()
        path.write_bytes(content)
        if not self.keeps_entry:
            update_entry(path)


def bytes_damage(*files: str) -> st.SearchStrategy[BytesDamage]:
    """To one of the files."""
    ways = ["flip", "flip", "zeros", "ones", "cut", "longer", "doubled", "empty"]
    where = st.floats(0, 1, width=16)
    return st.builds(BytesDamage, st.sampled_from(files), st.sampled_from(ways), where, st.booleans())


def update_entry(path: Path) -> None:
    """Let the manifests beside a file name its size and checksum, as a stranger's would."""
    content = path.read_bytes()
    for manifest in (path.with_name("manifest.json"),):
        if not manifest.is_file() or manifest == path:
            continue
        document = json.loads(manifest.read_text(encoding="utf-8"))
        for entry in _objects(document):
            if entry.get("file") == path.name:
                entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        manifest.write_text(json.dumps(document), encoding="utf-8")


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        yield document
        document = list(document.values())
    if isinstance(document, list):
        for item in document:
            yield from _objects(item)


ARRAY_CHANGES = [
    *("none", "empty", "shorter", "longer", "another axis", "scalar", "transposed", "twice as many columns"),
    *("float64", "float32", "int8", "uint64", "int32", "bool", "text", "bytes", "complex", "pairs", "objects"),
    *("most", "least", "minus one", "plus one", "not a number", "infinite", "reversed", "all equal", "zeros"),
]
_ONE_NUMBER = ("most", "least", "minus one", "plus one", "not a number", "infinite")


def changed(values: NDArray[Any], how: str, where: float) -> NDArray[Any]:
    """An array that is another one in some way; the same where that cannot be."""
    values = np.array(values)
    match how:
        case "empty":
            return values[:0] if values.ndim else np.empty(0, values.dtype)
        case "shorter":
            return values[: max(0, len(values) - 1)] if values.ndim else values
        case "longer":
            return np.concatenate([values, values[:1], values[:1]]) if values.ndim else values
        case "another axis":
            return values[..., None]
        case "scalar":
            return (
                values.reshape(-1)[0] if values.size else np.zeros((), "S1" if values.dtype.hasobject else values.dtype)
            )
        case "transposed":
            return values.T
        case "twice as many columns":
            return np.concatenate([values, values], axis=-1) if values.ndim else values
        case "float64" | "float32" | "int8" | "uint64" | "int32" | "bool":
            with np.errstate(all="ignore"):
                return values.astype(how) if values.dtype.kind in "biuf" else values
        case "text":
            return values.astype("S20") if values.dtype.kind in "biuf" else values
        case "bytes":
            return np.frombuffer(values.tobytes(), np.uint8)
        case "complex":
            return values.astype(np.complex64) if values.dtype.kind in "biuf" else values
        case "pairs":
            return np.zeros(values.shape, [("a", "i4"), ("b", "f4")])
        case "reversed":
            return values[::-1] if values.ndim else values
        case "all equal":
            return np.full_like(values, values.reshape(-1)[0]) if values.size else values
        case "zeros":
            return np.zeros_like(values) if values.dtype.kind != "O" else values
    if how in _ONE_NUMBER and values.size and values.dtype.kind in "iuf":
        flat = values.reshape(-1)
        place = min(int(where * flat.size), flat.size - 1)
        limits = np.iinfo(values.dtype) if values.dtype.kind in "iu" else np.finfo(values.dtype)
        with np.errstate(all="ignore"):
            match how:
                case "most":
                    flat[place] = limits.max
                case "least":
                    flat[place] = limits.min
                case "minus one":
                    flat[place] -= 1
                case "plus one":
                    flat[place] += 1
                case _ if values.dtype.kind == "f":
                    flat[place] = np.nan if how == "not a number" else np.inf
    return values


LINKS = ("removed", "a group", "a link to itself", "a link to another file", "never written", "another name")


@dataclass(frozen=True)
class HdfDamage:
    """A dataset or an attribute of an HDF5 file is another one, and the manifest names the file as it is now.

    Attributes:
        file: its path below the folder.
        name: of the dataset; with `@name` an attribute of the file, or of the dataset in front of it.
        how: what happens.
        where: 0 to 1, the place in the dataset.
    """

    file: str
    name: str
    how: str
    where: float

    def apply(self, folder: Path, *, names_file: bool = True) -> None:
        path = folder / self.file
        with h5py.File(path, "r+") as file:
            if "@" in self.name:
                self._change_attribute(file)
            else:
                self._change_dataset(file)
        if names_file:
            update_entry(path)

    def _change_attribute(self, file: h5py.File) -> None:
        owner, _, name = self.name.partition("@")
        attributes = (file[owner] if owner else file).attrs
        value = attributes[name]
        if self.how in LINKS:
            del attributes[name]
        elif self.how == "objects" or isinstance(value, str | h5py.Empty):
            attributes[name] = "another text"
        else:
            attributes[name] = _storable(changed(value, self.how, self.where))

    def _change_dataset(self, file: h5py.File) -> None:
        values, dataset = file[self.name][()], file[self.name]
        kept = {"compression": dataset.compression, "shuffle": dataset.shuffle} if dataset.chunks else {}
        attributes = dict(dataset.attrs)
        del file[self.name], dataset
        match self.how:
            case "removed":
                return
            case "a group":
                file.create_group(self.name)
                return
            case "a link to itself":
                file[self.name] = h5py.SoftLink(f"/{self.name}")
                return
            case "a link to another file":
                file[self.name] = h5py.ExternalLink("/etc/passwd", "/x")
                return
            case "never written":
                shape = ((1 << 40), *values.shape[1:]) if values.ndim else (1 << 40,)
                file.create_dataset(self.name, shape, values.dtype, chunks=(1 << 10, *values.shape[1:]))
                return
            case "another name":
                file[f"{self.name}-2"] = values
                return
            case "objects":
                file.create_dataset(self.name, data=[str(k) for k in range(len(np.atleast_1d(values)))])
                return
        new = _storable(changed(values, self.how, self.where))
        made = file.create_dataset(self.name, data=new, **(kept if new.ndim else {}))
        for name, value in attributes.items():
            made.attrs[name] = value


def _storable(values: NDArray[Any]) -> NDArray[Any]:
    """The same as HDF5 takes it: texts as bytes, or of any length."""
    values = np.asarray(values)
    if values.dtype.kind == "O":
        return values.astype(h5py.string_dtype())
    return np.char.encode(values, "utf-8") if values.dtype.kind == "U" else values


def members_of(path: Path) -> list[str]:
    """Names of the arrays of a file of NumPy; of the datasets and attributes of an HDF5 file, as in `HdfDamage`."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return list(arrays.files)
    names: list[str] = []
    with h5py.File(path, "r") as file:

        def note(member: str, item: h5py.Dataset | h5py.Group) -> None:
            names.extend(f"{member}@{attribute}" for attribute in item.attrs)
            if isinstance(item, h5py.Dataset):
                names.append(member)

        file.visititems(note)
        return [*names, *(f"@{attribute}" for attribute in file.attrs)]


def hdf_damage(folder: Path, *files: str) -> st.SearchStrategy[HdfDamage]:
    """To one dataset or attribute of one of the files."""
    names = [(file, name) for file in files for name in members_of(folder / file)]
    ways = st.sampled_from([*ARRAY_CHANGES, *LINKS])
    return st.builds(
        lambda where, how, place: HdfDamage(*where, how, place), st.sampled_from(names), ways, st.floats(0, 1, width=16)
    )


@dataclass(frozen=True)
class ArraysDamage:
    """A member of NumPy's archive is another array."""

    file: str
    name: str
    how: str
    where: float

    def apply(self, folder: Path, *, names_file: bool = True) -> None:  # noqa: ARG002 - no manifest does
        path = folder / self.file
        with path.open("rb") as stream, np.load(stream) as file:  # which leaves a path open that is no archive any more
            members = dict(file)
        if self.how == "removed":
            del members[self.name]
        elif self.how == "never written":
            return self._promise(path, members)
        elif self.how == "objects":
            members[self.name] = np.array([{}, None], dtype=object)
        else:
            members[self.name] = changed(members[self.name], self.how, self.where)
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=True, **members)
        return None

    def _promise(self, path: Path, members: dict[str, NDArray[Any]]) -> None:
        """Let the array be one of terabytes, none of which are in the file."""
        dtype = members.pop(self.name).dtype
        with path.open("wb") as file:
            np.savez_compressed(file, **members)
        promised = io.BytesIO()
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (1 << 40,)}
        np.lib.format.write_array_header_2_0(promised, about)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"{self.name}.npy", promised.getvalue())


def arrays_damage(folder: Path, *files: str) -> st.SearchStrategy[ArraysDamage]:
    """To one member of one of the files."""
    names = [(file, name) for file in files for name in members_of(folder / file)]
    ways = st.sampled_from([*ARRAY_CHANGES, "removed", "never written"])
    return st.builds(
        lambda where, how, place: ArraysDamage(*where, how, place),
        st.sampled_from(names),
        ways,
        st.floats(0, 1, width=16),
    )


Damage = JsonDamage | BytesDamage | HdfDamage | ArraysDamage


def names_in(damages: list[Damage]) -> list[str]:
    """What a message may name: each file, and every name on the way to what is wrong."""
    names = {Path(damage.file).name for damage in damages}
    for damage in damages:
        if isinstance(damage, JsonDamage):
            names |= {part for part in damage.place if isinstance(part, str)}
    return sorted(names)
