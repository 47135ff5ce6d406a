"""Device and dense model of a rank that computes."""

import torch

from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.models.dense_optimizer import dense_optimizer
from bagpipe_hpc.models.dlrm import DLRM
from bagpipe_hpc.roles.job import Job


def choose_device(name: str) -> torch.device:
    """The device that `train.device` means on this rank.

    Raises:
        ConfigError: a GPU is asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "train.device = 'cuda': torch sees no GPU here; use cpu or auto, or install a CUDA build of torch"
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def check_model_settings(job: Job) -> None:
    """See that this rank has the device, and torch the dense optimizer, that the configuration asks for.

    Raises:
        ConfigError: it has not.
    """
    choose_device(job.config.train.device)
    dense_optimizer(job.config.optimizer, [torch.nn.Parameter(torch.zeros(1))])


def build_model(job: Job, device: torch.device) -> DLRM:
    """The dense half with its first weights, which depend on the seed alone."""
    tables = len(job.manifest.tables)
    return DLRM(job.config.model, job.manifest.dense_features, tables, job.config.train.seed).to(device)
