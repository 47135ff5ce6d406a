"""A hundred kills: `python -m tests.end_to_end.soak --kills 100 [section.field=value...]` in the repository's root.

Trains a tiny run, kills random ranks at random times (while the job starts, trains, or writes a checkpoint) and starts
it again each time; at the end the tables and weights must be those of a run that was left alone.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.conftest import CONFIG, prepare_tiny_clicks
from tests.end_to_end.killed_runs import SERVERS, TRAINERS, soak
from tests.ranks import run_ranks


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill random ranks of a run again and again, and compare its end.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("settings", nargs="*", metavar="section.field=value", help="of the run, besides its own")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return _run(Path(folder), arguments.kills, arguments.seed, arguments.settings)


def _run(folder: Path, kills: int, seed: int, more: list[str]) -> int:
    prepare_tiny_clicks(folder)
    config = folder / "tiny.toml"
    config.write_text(CONFIG.format(shards=folder / "shards"), encoding="utf-8")
    epochs = 6 * kills  # some 160 steps a kill: more than a killed job trains
    settings = [f"roles.servers={SERVERS}", "train.deterministic=true", f"train.epochs={epochs}"]
    settings += ["train.checkpoint_every_steps=20", "train.keep_checkpoints=2", "train.evaluate=false"]
    settings += ["train.full_checkpoint_every=3", *more]

    def command(output: Path) -> list[str | Path]:
        return ["bagpipe", "train", config, *settings, f"train.output={output}", "train.resume=auto"]

    whole = run_ranks(1 + SERVERS + TRAINERS, *command(folder / "whole"), timeout_s=3600)
    assert whole.returncode == 0, whole.stderr
    start = time.monotonic()
    result = soak(command(folder / "killed"), folder / "killed", SERVERS, TRAINERS, kills, seed)
    largest = compare(folder / "whole", folder / "killed").largest()
    print(
        f"{len(result.ends_s)} kills {result.kills}, {result.before_training} of them while the job started, "
        f"{result.while_saving} while a checkpoint was written; jobs ended {statistics.median(result.ends_s):.1f} s "
        f"after the kill, {max(result.ends_s):.1f} s at most; largest difference at the end {largest:g} "
        f"({27 * epochs} steps, {time.monotonic() - start:.0f} s)"
    )
    return 0 if largest == 0.0 else 1


if __name__ == "__main__":
    sys.exit(main())
