"""From raw values to the ids that `load_model.logits` takes. Needs numpy and safetensors, and nothing else.

`value_ids(table, values)` gives the id of each value. A value is a whole number, of Python or NumPy, or a text, as
schema.json says; None where it is missing.
"""

import hashlib, json, operator, pathlib
from safetensors.numpy import load_file

folder = pathlib.Path(__file__).parent
tables = {table["name"]: table for table in json.loads((folder / "schema.json").read_text(encoding="utf-8"))["tables"]}
numbers = load_file(folder / "vocabulary.safetensors") if (folder / "vocabulary.safetensors").exists() else {}
known = {}


def vocabulary(table):
    if table not in known:
        file = tables[table]["vocabulary"]
        if file and file.endswith(".json"):
            known[table] = json.loads((folder / file).read_text(encoding="utf-8"))
        else:
            both = (numbers[f"{table}.{part}"].tolist() for part in ("values", "ids")) if file else ((), ())
            known[table] = dict(zip(*both))
    return known[table]


def mixed(value):  # MurmurHash3's finaliser of 64 bits
    key = hashlib.blake2b(value.encode(), digest_size=8).digest() if isinstance(value, str) else None
    key = int.from_bytes(key, "little") if key else value % 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        key = (key ^ key >> 33) * factor % 2**64
    return key ^ key >> 33


def other(value, buckets):
    return 1 + mixed(value) % buckets if buckets else 0


def checked(value, table):
    kind = tables[table]["hashes" if tables[table]["values"] == "hashed" else "values"]
    value = value.item() if hasattr(value, "item") else value  # of NumPy
    is_text = isinstance(value, str)
    is_kind = is_text if kind == "texts" else not is_text if kind == "numbers" else True
    if value is not None and not (is_kind and (is_text or hasattr(value, "__index__"))):
        cure = "" if kind == "texts" else " a hexadecimal one is int(text, 16)," if is_text else " whole ones,"
        said = f"table {table}: {value!r} is given, and its values are {kind or 'numbers or texts'} (schema.json)"
        raise TypeError(f"{said};{cure} None is a missing one")
    return value if value is None or is_text else operator.index(value)


def value_ids(table, values):
    values = [checked(value, table) for value in values]
    ids, buckets = vocabulary(table), tables[table]["buckets"]
    return [0 if value is None else ids[value] if value in ids else other(value, buckets) for value in values]
