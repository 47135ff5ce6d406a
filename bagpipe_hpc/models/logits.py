"""What a model's forward pass must return."""

import torch
from torch import Tensor

from bagpipe_hpc.errors import ConfigError


def require_logits(name: str, found: object, samples: int, labels: int, device: torch.device) -> None:
    """Check that these are logits of some samples.

    Args:
        name: `model.name`.
        found: what `forward` has returned.
        samples: of the slice.
        labels: K of each sample.
        device: where the inputs were.

    Raises:
        ConfigError: they are not, float32 `[samples]` or `[samples, K]`.
    """
    shape = (samples, labels) if labels > 1 else (samples,)
    if isinstance(found, Tensor):
        if found.shape == shape and found.dtype == torch.float32 and found.device == device:
            return
        what = f"{found.dtype} {list(found.shape)} on {found.device}"
    else:
        what = type(found).__name__
    raise ConfigError(
        f"model.name = {name!r}: forward must return float32 logits of shape {list(shape)} for {samples} samples, on "
        f"{device}; it returns {what}"
    )
