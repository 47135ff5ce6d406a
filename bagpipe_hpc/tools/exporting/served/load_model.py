"""Scores samples with the exported model beside this file. Needs torch, numpy and safetensors, and nothing else.

`logits(dense, ids, weights)` takes dense features [B, N] and, by the name of each feature, its ids: B numbers, or B
lists of any length where the feature is ragged. `weights` has such lists for features whose ids have weights. README.md
says which features there are, and `value_ids.py` turns raw values into ids.
"""

import json, pathlib, safetensors.torch as saved, torch

folder = pathlib.Path(__file__).parent
schema = json.loads((folder / "schema.json").read_text(encoding="utf-8"))
tables = {k: t for f in {t["file"] for t in schema["tables"]} for k, t in saved.load_file(folder / f).items()}
program = torch.export.load(folder / "model.pt2").module()


def logits(dense, ids, weights=None):
    rows, lengths, scales = {}, {}, {}
    for f in schema["features"]:
        name, bags, last = f["name"], ids[f["name"]], slice(-f["most_ids"], None)
        if f["ragged"]:
            lengths[name], bags = torch.tensor([len(b[last]) for b in bags]), [i for b in bags for i in b[last]]
        if f["weighted"]:
            scales[name] = torch.tensor([w for b in weights[name] for w in b[last]], dtype=torch.float32)
        rows[name] = torch.nn.functional.embedding(torch.as_tensor(bags, dtype=torch.int64), tables[f["table"]])
    return program(torch.as_tensor(dense, dtype=torch.float32).clone(), rows, lengths, scales)
