"""What a run looks up of a graph besides the nodes of its samples: a feature for each hop, of the table of nodes."""

from itertools import accumulate
from operator import mul

from bagpipe_hpc.config.schema import GraphConfig
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.storage.shards.entries import DrawnFeature
from bagpipe_hpc.storage.shards.manifest import ShardManifest


def with_neighbours(manifest: ShardManifest, config: GraphConfig) -> ShardManifest:
    """The data with the features `hop1`, `hop2` and so on, where it has a graph.

    Args:
        manifest: of the data.
        config: says how many neighbours are drawn.

    Raises:
        ConfigError: that is not said of data with a graph, or is said of other data.
    """
    if manifest.graph is None:
        if config.fan_outs:
            raise ConfigError(
                f"graph.fan_outs = {list(config.fan_outs)}: data.path has no graph; leave it out, or name a folder "
                "that `bagpipe prepare-graph` has written"
            )
        return manifest
    if not config.fan_outs:
        raise ConfigError(
            "graph.fan_outs = []: data.path has a graph; say how many neighbours are drawn at each hop, as in "
            "graph.fan_outs=[10,5]"
        )
    table = manifest.tables[0].name
    sizes = accumulate(config.fan_outs, mul)
    hops = [
        DrawnFeature(f"hop{number}", table, ragged=True, longest=nodes) for number, nodes in enumerate(sizes, start=1)
    ]
    return manifest.with_drawn(hops)
