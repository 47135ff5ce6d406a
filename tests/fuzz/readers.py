"""What reads each kind of file, called directly: thousands of damaged files a minute.

Usage: readers.py FILE COUNT SEED

Changes about COUNT bytes of FILE, and each of its datasets, attributes or arrays in every way of `damage`, reads it,
and prints a line for each error that is none for a user. A process of its own, with a limit of memory: a damaged file
must not bring HDF5 down either.
"""

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from bagpipe_hpc.errors import BagpipeError, naming_files
from bagpipe_hpc.kernels import lzf
from bagpipe_hpc.kernels.shared_library import is_built
from bagpipe_hpc.planning.policies.fae.profile import load_hot_rows
from bagpipe_hpc.rows.access_statistics import read_statistics
from bagpipe_hpc.rows.placements.table_plan import read_plan
from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.finite_files import require_finite
from bagpipe_hpc.storage.exported import load_exported
from bagpipe_hpc.storage.graphs.graph_file import map_graph
from bagpipe_hpc.storage.plans.manifest import load_manifest as load_plans_manifest
from bagpipe_hpc.storage.plans.plan_file import PlanReader
from bagpipe_hpc.storage.policy_memory import load_memory
from bagpipe_hpc.storage.shards.check import damaged_files
from bagpipe_hpc.storage.shards.manifest import load_manifest
from bagpipe_hpc.storage.shards.raw_chunks import ChunkDecoder
from bagpipe_hpc.storage.shards.reader import ClickShards
from bagpipe_hpc.storage.vocabularies.id_uses import read_counts, read_last_use, read_reborn, read_train_rows
from bagpipe_hpc.storage.vocabularies.pieces import open_vocabulary
from bagpipe_hpc.storage.vocabularies.vocabulary import read_table_vocabulary, read_unseen_buckets
from bagpipe_hpc.storage.vocabularies.waiting_values import read_waiting
from tests.fuzz.damage import ARRAY_CHANGES, LINKS, ArraysDamage, HdfDamage, members_of
from tests.fuzz.limited import limit_memory

MORE_BYTES = 2 << 30
Read = Callable[[], object]


def reads_of(path: Path) -> list[Read]:
    """Everything that reads a file."""
    folder, name = path.parent, path.name
    if name == "counts.npz":
        return [lambda: [list(found.hottest(found.tables)) for found in [read_statistics(path)]]]
    if name == "plan.npz":
        return [lambda: [list(found.kept_rows(found.tables)) for found in [read_plan(path)]]]
    if name == "plans.bin":
        return [lambda: _read_plans(folder)]
    if folder.name == "policy":
        return [lambda: load_memory(path)]
    if name == "hot.h5":
        return [lambda: load_hot_rows(path)]
    if folder.name.startswith("step-"):
        checkpoint = load_checkpoint(folder)
        rows = sum(checkpoint.manifest.table_rows)
        of_name = [info for info in checkpoint.manifest.files if info.file == name]
        return [
            lambda: checkpoint.read_rows(0, rows),
            checkpoint.read_dense,
            checkpoint.outline_dense,
            lambda: [require_finite(folder, checkpoint.manifest, info) for info in of_name],
        ]
    if folder.name == "exported":
        return [lambda: [load_exported(folder).read_dense(), [*_exported_tables(folder)]]]
    manifest = load_manifest(folder)
    tables = [table.name for table in manifest.tables]
    if name == "graph.h5":
        assert manifest.graph is not None
        nodes, edges = manifest.table_rows[0], manifest.graph.edges
        return [lambda: map_graph(path, nodes, edges)]
    if name == "vocabularies.h5":
        return [
            lambda: [read_table_vocabulary(folder, manifest, table) for table in tables],
            lambda: read_unseen_buckets(folder, manifest),
            lambda: read_train_rows(folder, manifest),
            *(
                lambda read=read: [read(folder, manifest, table) for table in tables]
                for read in (read_counts, read_last_use, read_reborn, _pieces)
            ),
        ]
    if name == "waiting.h5":
        return [lambda: [read_waiting(folder, manifest, table) for table in tables]]
    decoders: tuple[ChunkDecoder | None, ...] = (None, lzf) if is_built("lzf") else (None,)
    return [
        lambda: damaged_files(folder, manifest, "quick"),
        *(partial(_read_shards, folder, decoder) for decoder in decoders),
    ]


def _pieces(folder: Path, manifest: object, table: str) -> None:
    with open_vocabulary(folder, manifest, table) as found:  # type: ignore[arg-type]
        for first, last in found.pieces():
            found.values(first, last)


def _read_plans(folder: Path) -> None:
    about = load_plans_manifest(folder)
    sizes = (about.file_bytes, len(about.slots), about.trainers, about.largest_bytes)
    reader = PlanReader(folder / about.file, *sizes, about.key)
    with closing(reader):
        for part in (*about.segments, *about.ends):
            for _ in reader.plans(part.stretch):
                pass


def _exported_tables(folder: Path) -> Iterator[object]:
    model = load_exported(folder)
    for table in model.table_names:
        yield model.vocabulary(table)
        with model.open_table(table) as found:
            yield found


def _read_shards(folder: Path, decoder: ChunkDecoder | None) -> None:
    manifest = load_manifest(folder)
    for split in ("train", "test"):
        with ClickShards(folder, manifest, split, decoder=decoder) as shards:
            for read in (shards.read_look_ups, shards.read_dense, shards.read_labels, shards.read_sample_weights):
                read(0, shards.rows)


def _error_of(read: Read) -> str:
    """What is wrong with how something was read; empty where it was, or where a user is told why not."""
    try:
        with naming_files():
            read()
    except BagpipeError as error:
        return "" if ";" in str(error) or ":" in str(error) else f"no cure: {error}"
    except BaseException as error:  # noqa: BLE001 - a user would see it
        place = traceback.extract_tb(error.__traceback__)[-1]
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "bagpipe_hpc" in frame.filename]
        return f"{error!r:.200} at {own[-1].filename if own else place.filename}:{(own[-1] if own else place).lineno}"
    return ""


def damages(path: Path, sound: bytes, count: int, seed: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is done to the file, in words, and what does it."""
    kind = {".h5": HdfDamage, ".npz": ArraysDamage}.get(path.suffix)
    members = members_of(path) if kind else []
    step = max(1, len(sound) // count)
    for place in range(seed % step, len(sound), step):
        value = (sound[place] ^ (1 << (place // step % 8)), 255 - sound[place], 0xFF)[place // step % 3]
        changed = sound[:place] + bytes([value]) + sound[place + 1 :]
        yield f"byte {place} = {value}", partial(path.write_bytes, changed)
    for place in range(0, len(sound), max(1, len(sound) // 20)):
        yield f"cut at {place}", partial(path.write_bytes, sound[:place])
    for name in members:
        for how in (*ARRAY_CHANGES, *LINKS):
            damage = kind(path.name, name, how, 0.5)
            yield f"{name}: {how}", partial(damage.apply, path.parent, names_file=False)


def main() -> None:
    path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    sound = path.read_bytes()
    reads = reads_of(path)
    limit_memory(MORE_BYTES)
    seen: set[str] = set()
    tried = 0
    for what, damage in damages(path, sound, count, seed):
        path.write_bytes(sound)
        damage()
        tried += 1
        for read in reads:
            error = _error_of(read)
            if error and error not in seen:
                seen.add(error)
                print(f"{path.name}: {what}: {error}", flush=True)
    path.write_bytes(sound)
    print(f"tried {tried}")


if __name__ == "__main__":
    main()
