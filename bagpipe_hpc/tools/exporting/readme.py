"""The README of an exported model, for people who have nothing but that folder."""

from collections.abc import Mapping
from typing import Any

from bagpipe_hpc.terminal import counted
from bagpipe_hpc.tools.exporting.source import ExportSource

_TEXT = """# {name}, exported after step {step}

A trained recommendation model: its embedding tables, its dense half, and what turns raw values into ids. It needs torch
{torch} or later, numpy and safetensors{more}.

| file | what it is |
|---|---|
| `load_model.py` | scores samples: ids in, logits out |
| `value_ids.py` | raw values to ids |
| `model.pt2` | the dense half with the pooling of rows, a program of `torch.export`; any number of samples |
| `dense.safetensors` | weights of the dense half alone |
| `{tables}` | the embedding tables, float32 `[rows, D]` |
| `vocabulary*` | which value has which id; id 0 is a missing value |
| `schema.json` | the features and tables, and how raw rows became features (`preparation`) |
| `manifest.json` | size and SHA-256 of each file, versions, and what the model was trained on |

```python
from load_model import logits
from value_ids import value_ids

ids = {example}
probabilities = logits(dense, ids).sigmoid()  # dense: float32 [B, {dense}]
```

Labels, in the order of the logits: {labels}.{numbers}

| feature | table | ids of a sample | becomes |
|---|---|---|---|
{features}

**The same bits as in training.** {exact}
The last bits of a product of matrices may depend on the number of samples that are scored at a time, on the number of
threads and on the processor. In training the model was evaluated in batches of {batch_size} samples, each cut into
{slices} (one for each trainer), on {device}, with {threads} a trainer (`torch.set_num_threads`).
"""


def readme(source: ExportSource, schema: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """The text of `README.md`.

    Args:
        source: what is exported.
        schema: the content of `schema.json`.
        about: the content of `manifest.json`.
    """
    features, arithmetic, program = schema["features"], about["arithmetic"], about["program"]
    first = features[0]
    value = "[[value, ...], ...]" if first["ragged"] else "[value, ...]"
    is_parquet = schema["tables"][0]["file"].endswith(".parquet")
    exact = f"Linear layers are multiplied by {program['linear']}, as in training."
    if program["linear"] != arithmetic["linear"]:
        exact = f"Linear layers are multiplied by {program['linear']}, not by {arithmetic['linear']} as in training."
    if program["largest_difference"]:
        exact += f" On drawn samples, logits differ from the trainer's by up to {program['largest_difference']:.3g}."
    else:
        exact += " On drawn samples, all logits are the trainer's, bit for bit."
    return _TEXT.format(
        name=source.config.model.name,
        step=about["checkpoint"]["step"],
        torch=about["torch"].partition("+")[0],
        more=", and pyarrow for the tables" if is_parquet else "",
        tables="table-*.parquet" if is_parquet else "tables*.safetensors",
        example=f'{{"{first["name"]}": value_ids("{first["table"]}", {value}), ...}}'
        if not first["ragged"]
        else f'{{"{first["name"]}": [value_ids("{first["table"]}", bag) for bag in {value}], ...}}',
        dense=schema["dense_features"],
        labels=", ".join(schema["labels"]),
        numbers=_numbers(schema),
        features="\n".join(
            f"| {feature['name']} | {feature['table']} | {_ids(feature)} | {_pooled(feature)} |" for feature in features
        ),
        exact=exact,
        batch_size=about["batch_size"],
        slices=counted(arithmetic["trainers"], "slice"),
        device=arithmetic["device"],
        threads=counted(arithmetic["threads"], "thread"),
    )


def _numbers(schema: Mapping[str, Any]) -> str:
    """Which column of `dense` is which number; empty where there are none, or their names were not recorded."""
    names = [column["name"] for column in (schema["raw"] or {}).get("columns", ()) if column["kind"] == "dense"]
    if not names:
        return ""
    return (
        f"\n\nColumns of `dense`, in their order: {', '.join(names)}. What becomes of a raw number before it goes\n"
        "in is under `preparation` in `schema.json`; a missing one that is not filled is 0."
    )


def _ids(feature: Mapping[str, Any]) -> str:
    if not feature["ragged"]:
        return "one"
    most = f"the last {feature['most_ids']}" if feature["most_ids"] else "any number"
    return f"{most}, with a weight each" if feature["weighted"] else most


def _pooled(feature: Mapping[str, Any]) -> str:
    return "the row" if not feature["ragged"] else f"the {feature['pooling']} of its rows"
