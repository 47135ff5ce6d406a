"""Print how many trainers a run has: count_trainers.py CONFIG.toml RANKS [section.field=value ...]."""

import sys
from pathlib import Path

from bagpipe_hpc.config_file import load_config
from bagpipe_hpc.role_layout import RoleLayout

if __name__ == "__main__":
    config_path, ranks, *overrides = sys.argv[1:]
    servers = load_config(Path(config_path), overrides).roles.servers
    print(RoleLayout.for_world(int(ranks), servers).trainers)
