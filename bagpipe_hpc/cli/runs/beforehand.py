"""`bagpipe profile` and `place`: what runs start from, made beforehand where making it takes a while."""

from argparse import Namespace
from pathlib import Path

from bagpipe_hpc.cli.arguments.parser import CommandParser, add_config
from bagpipe_hpc.cli.arguments.types import nodes
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.streams import tell
from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.exit_codes import EXIT_OK
from bagpipe_hpc.terminal import printable


def _profile(arguments: Namespace) -> int:
    """Make the profile of hot rows that a run looks for, unless it is there, and say what is in it."""
    config = load_config(arguments.config, arguments.overrides)

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


def _add_place(parser: CommandParser) -> None:
    add_config(parser)
    parser.add_argument("--servers", type=nodes, required=True, metavar="S", help="servers of the run")


def _place(arguments: Namespace) -> int:
    """Search for the plan of a placement, write it, and say what it is."""
    config = load_config(arguments.config, arguments.overrides)

    from bagpipe_hpc.tools.placement.place import place_tables

    place_tables(config, arguments.servers, lambda line: print(printable(line), flush=True), tell)
    return EXIT_OK


PROFILE = Command(
    "profile", "find the hot rows of the training rows before a run with policy.name=fae does", add_config, _profile
)
PLACE = Command("place", "search for a placement's plan beforehand, where that takes long", _add_place, _place)
