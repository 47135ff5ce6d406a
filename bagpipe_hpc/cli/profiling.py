"""`bagpipe profile`: makes beforehand the profile of hot rows that a run with policy `fae` starts from."""

from pathlib import Path

from bagpipe_hpc.cli.outcome import EXIT_OK
from bagpipe_hpc.config.schema import Config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.terminal import printable


def profile(config: Config) -> int:
    """Make the profile of hot rows that a run looks for, unless it is there, and say what is in it.

    Raises:
        BagpipeError: the policy needs no profile, it cannot be written, or the data are missing or damaged.
    """
    from bagpipe_hpc.planning.policies.fae.profile import make_profile, profile_path
    from bagpipe_hpc.planning.policies.fae.settings import FaeSettings
    from bagpipe_hpc.run.sample_orders import SampleOrders
    from bagpipe_hpc.storage.shards.manifest import load_manifest

    settings = config.policy.settings
    if not isinstance(settings, FaeSettings):
        raise ConfigError(f"policy.name = {config.policy.name!r}: has no hot rows to profile; use policy.name=fae")
    if not config.data.path:
        raise ConfigError("data.path is empty: name a folder written by `bagpipe prepare`, as in data.path=shards")
    training = SampleOrders(config, load_manifest(Path(config.data.path))).training
    found = make_profile(settings, training)
    print(printable(f"{profile_path(settings, training)}: {found}"))
    return EXIT_OK
