"""Checks a shard directory against its manifest before training relies on it."""

from collections.abc import Iterator
from pathlib import Path

from bagpipe_hpc.errors import DataError
from bagpipe_hpc.storage.atomic_write import file_sha256
from bagpipe_hpc.storage.checked_json import FileInfo
from bagpipe_hpc.storage.graphs.graph_file import check_graph_datasets
from bagpipe_hpc.storage.shards.entries import ShardInfo
from bagpipe_hpc.storage.shards.manifest import PREPARE_AGAIN, SPLITS, ShardManifest
from bagpipe_hpc.storage.shards.shard_file import check_datasets, errors_name, open_shard

LEVELS = ("full", "quick")


def verify_shards(directory: Path, manifest: ShardManifest, level: str) -> None:
    """Check every file that a manifest names, up to the first that is damaged.

    Args:
        directory: the shard directory.
        manifest: its manifest.
        level: `quick` checks presence, size, and the datasets' shapes and types; `full` also each file's SHA-256, which
            reads everything once.

    Raises:
        DataError: a file is missing or differs; the message names it, the difference and the cure.
    """
    for error in _errors(directory, manifest, level):
        raise error


def damaged_files(directory: Path, manifest: ShardManifest, level: str) -> list[str]:
    """What is wrong with each file that is missing or differs; arguments as for `verify_shards`."""
    return [str(error) for error in _errors(directory, manifest, level)]


def check_vocabularies(directory: Path, manifest: ShardManifest, level: str) -> None:
    """Check the files of vocabularies and of waiting values, where there are any; arguments as for `verify_shards`.

    Raises:
        DataError: one is missing or differs.
    """
    for what, info in (("vocabularies", manifest.vocabularies), ("waiting values", manifest.waiting)):
        if info is not None:
            _check_contents(directory / info.file, f"file of {what}", info, level)


def check_graph(directory: Path, manifest: ShardManifest, level: str) -> None:
    """Check the file of the graph, where there is one; arguments as for `verify_shards`.

    Raises:
        DataError: it is missing or differs.
    """
    if (info := manifest.graph) is not None:
        _check_contents(directory / info.file, "graph", info, level)
        check_graph_datasets(directory / info.file, manifest.table_rows[0], info.edges)


def _errors(directory: Path, manifest: ShardManifest, level: str) -> Iterator[DataError]:
    """The errors of the files, at most one for each; a file is looked at only when the next error is asked for."""
    if level not in LEVELS:
        raise ValueError(f"level is {level!r} instead of one of {', '.join(LEVELS)}")
    for split in SPLITS:
        for shard in manifest.shards(split):
            path = directory / shard.file
            try:
                _check_contents(path, "shard", shard, level)
                with open_shard(path) as file:
                    check_datasets(path, file, manifest, shard)
            except DataError as error:
                yield error
    try:
        check_vocabularies(directory, manifest, level)
        check_graph(directory, manifest, level)
    except DataError as error:
        yield error


def _check_contents(path: Path, what: str, info: ShardInfo | FileInfo, level: str) -> None:
    with errors_name(path):
        if not path.is_file():
            raise DataError(f"{path}: the {what} is missing; copy it here again, or {PREPARE_AGAIN}")
        found = path.stat().st_size
        sha256 = file_sha256(path) if level == "full" and found == info.bytes else info.sha256
    if found != info.bytes:
        raise DataError(
            f"{path}: it has {found} bytes instead of {info.bytes}; it was cut off or replaced: copy it here again, or "
            f"{PREPARE_AGAIN}"
        )
    if sha256 != info.sha256:
        raise DataError(
            f"{path}: its SHA-256 is not the manifest's; it is damaged: copy it here again, or {PREPARE_AGAIN}"
        )
