"""Print how many trainers a run on this host has: count_trainers.py CONFIG.toml RANKS [section.field=value ...]."""

import sys
from pathlib import Path

from bagpipe_hpc.cluster.rank_facts import RankFacts, rank_places
from bagpipe_hpc.cluster.role_placement import Placement
from bagpipe_hpc.config.file import load_config

if __name__ == "__main__":
    config_path, ranks, *overrides = sys.argv[1:]
    config = load_config(Path(config_path), overrides)
    facts = [RankFacts.here()] * int(ranks)
    places = rank_places(facts, [0] * int(ranks), use_gpus=config.train.device != "cpu")
    print(Placement.choose(places, config.roles.servers, config.roles.placement).layout.trainers)
