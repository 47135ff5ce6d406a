"""Measures as a reader and a program get them: in words, and as JSON."""

import json
import math
from typing import Any

from bagpipe_hpc.terminal import counted

_FURTHER_MEASURES = {
    "normalised_entropy": "normalised entropy",
    "calibration": "calibration",
    "group_auc": "AUC by group",
}
"""Shown where they have a meaning; a metrics file of an earlier version may lack them."""


def quality(evaluation: dict[str, Any], split: str = "test") -> str:
    """An evaluation in words; read back from the metrics file, an AUC that has no meaning is None."""
    measures = {name: math.nan if value is None else value for name, value in evaluation.items()}
    auc, error = f"AUC {measures['auc']:.5f}", measures.get("auc_error", 0.0)
    parts = [f"{auc} +- {error:.1g}" if error else auc, f"log loss {measures['log_loss']:.5f}"]
    if math.isnan(measures["auc"]):
        parts[0] = "AUC undefined, as all labels are alike"
    for name, title in _FURTHER_MEASURES.items():
        if not math.isnan(value := measures.get(name, math.nan)):
            parts.append(f"{title} {value:.5f}")
    return f"{', '.join(parts)} on {counted(evaluation['samples'], f'{split} row')}"


def strict_json(value: Any, indent: int | None = None) -> str:
    """JSON in which an undefined number (an AUC without positives, a diverged loss) is null: it has no NaN."""
    return json.dumps(_defined(value), indent=indent, allow_nan=False)


def _defined(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _defined(entry) for key, entry in item.items()}
    if isinstance(item, list):
        return [_defined(entry) for entry in item]
    return None if isinstance(item, float) and not math.isfinite(item) else item
