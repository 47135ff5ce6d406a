"""Scores samples with exported models in a process that has this package no longer.

Usage: served_models.py REQUESTS.json. It lists, for each model, its folder, a file with the inputs of each batch, and
the file that takes the logits.
"""

import importlib.util
import json
import sys
from pathlib import Path

for name in ("bagpipe_hpc", "data_prep", "h5py", "mpi4py", "horovod"):
    sys.modules[name] = None  # whoever imports it gets an ImportError

import numpy as np  # noqa: E402 - nothing that is not there any more
import torch  # noqa: E402


def script(folder, name):
    """One that lies beside a model."""
    spec = importlib.util.spec_from_file_location(name, Path(folder) / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


torch.set_num_threads(1)
for folder, inputs, outputs in json.loads(Path(sys.argv[1]).read_text()):
    served, _ = script(folder, "load_model"), script(folder, "value_ids")
    batches = json.loads(Path(inputs).read_text())
    scored = [served.logits(batch["dense"], batch["ids"], batch["weights"]) for batch in batches]
    assert not any(logits.requires_grad for logits in scored)
    np.save(outputs, torch.cat(scored).numpy())
