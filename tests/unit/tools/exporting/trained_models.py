"""Tiny trained models, what their trainer made of each test sample, and the same samples as a service has them."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.evaluation.label_evaluations import LabelEvaluations
from bagpipe_hpc.launch import run_alone
from bagpipe_hpc.preparation.training import Training
from bagpipe_hpc.storage.shards.manifest import ShardManifest, load_manifest

PROGRAM = Path(__file__).with_name("served_models.py")


def train_small(folder: Path, shards: Path, overrides: Sequence[str]) -> np.ndarray:
    """Train one epoch as one process; the checkpoint is in `folder / "run"`.

    Returns:
        The logits of the test samples by the trainer itself, float32 `[n]` or `[n, K]`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.toml"
    path.write_text(f'[data]\npath = "{shards}"\nblock_rows = 16\n[train]\nbatch_size = 21\n', encoding="utf-8")
    logits: list[np.ndarray] = []
    add = LabelEvaluations.add

    def record(self: LabelEvaluations, labels: Any, found: Any, *rest: Any) -> None:
        logits.append(np.array(found))
        add(self, labels, found, *rest)

    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)  # without it they are slow, and the same
        patch.setattr(LabelEvaluations, "add", record)
        run_alone(Training(load_config(path, [f"train.output={folder / 'run'}", *overrides])))
    log = logging.getLogger("bagpipe_hpc")
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    torch.set_num_threads(threads)
    return np.concatenate(logits)


def score(folder: Path, exported: dict[str, Path], batches: dict[str, list[dict[str, Any]]]) -> dict[str, np.ndarray]:
    """Score samples with exported models, in one process that cannot import this package, nor reads texts as UTF-8.

    Args:
        folder: for what passes between the processes.
        exported: the folders by name.
        batches: the samples that each is to score.
    """
    requests = []
    for number, (name, model) in enumerate(exported.items()):
        inputs, outputs = folder / f"inputs-{number}.json", folder / f"logits-{number}.npy"
        inputs.write_text(json.dumps(batches[name]))
        requests.append([str(model), str(inputs), str(outputs)])
    (folder / "requests.json").write_text(json.dumps(requests))
    command = [sys.executable, "-I", "-X", "utf8=0", PROGRAM, folder / "requests.json"]
    subprocess.run(command, check=True, cwd=folder, timeout=240, env=os.environ | {"LC_ALL": "C"})
    return {name: np.load(outputs) for name, (_, _, outputs) in zip(exported, requests, strict=True)}


def batches_of(shards: Path, batch_size: int, split: str = "test") -> list[dict[str, Any]]:
    """The samples of a split by batches, as JSON holds them: read with h5py alone."""
    manifest = load_manifest(shards)
    parts = [_samples(shards / shard.file, manifest) for shard in manifest.shards(split)]
    whole = {
        "dense": [row for part in parts for row in part["dense"]],
        **{
            what: {name: [bag for part in parts for bag in part[what][name]] for name in parts[0][what]}
            for what in ("ids", "weights")
        },
    }
    cuts = range(0, len(whole["dense"]), batch_size)
    return [
        {
            "dense": whole["dense"][first : first + batch_size],
            **{
                what: {name: column[first : first + batch_size] for name, column in whole[what].items()}
                for what in ("ids", "weights")
            },
        }
        for first in cuts
    ]


def _samples(path: Path, manifest: ShardManifest) -> dict[str, Any]:
    with h5py.File(path) as file:
        plain = [feature.name for feature in manifest.features if not feature.ragged]
        columns = file["sparse"][:].T.tolist() if plain else []
        ids = dict(zip(plain, columns, strict=True))
        weights = {}
        for name, group in file.get("ragged", {}).items():
            cuts = group["offsets"][1:-1]
            ids[name] = [bag.tolist() for bag in np.split(group["values"][:], cuts)]
            if "weights" in group:
                weights[name] = [bag.tolist() for bag in np.split(group["weights"][:], cuts)]
        return {"dense": file["dense"][:].tolist(), "ids": ids, "weights": weights}
