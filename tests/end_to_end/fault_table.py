"""Seconds from a fault to the job's end: `python -m tests.end_to_end.fault_table` in the repository's root.

Prints the table of docs/faults.md anew: what befalls a tiny run of five ranks, after how long its launcher ends, with
which status, and the first message of a rank. The link is cut between emulated hosts, where these can be made.
"""

import argparse
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

from tests.cluster.emulation import EMULATED_HOSTS, run_on_hosts
from tests.end_to_end.conftest import CONFIG, prepare_tiny_clicks
from tests.end_to_end.killed_runs import ORACLE, RANKS, SERVER, SERVERS, TRAINER, Killed, has_trained, kill_one

LIMIT_S = 10.0
"""`train.timeout_s` of the runs in which ranks have to notice by themselves."""
NAMES = {ORACLE: "the oracle", SERVER: "a server", TRAINER: "a trainer"}
STEPS = 30

Ended = tuple[float, CompletedProcess[str]]
"""Seconds from the fault to the end, and the finished launcher."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how soon a run ends after a fault.")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print("| fault | job's end after | status | first message |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, happen in faults(Path(folder)):
            ends = [happen() for _ in range(arguments.repeats)]
            seconds = sorted(end_s for end_s, _ in ends)
            status = ", ".join(sorted({str(finished.returncode) for _, finished in ends}))
            spread = f"{statistics.median(seconds):.1f} s ({seconds[0]:.1f} to {seconds[-1]:.1f})"
            print(
                f"| {name} | {spread} | {status} | `{first_message(ends[0][1].stderr + ends[0][1].stdout)}` |",
                flush=True,
            )
    return 0


def first_message(text: str) -> str:
    """Of a rank, or of the launcher where the rank had no time to say anything."""
    said = re.search(r"^bagpipe: (.*)$", text, re.MULTILINE) or re.search(r"^=\s+(PID .*?)\s*$", text, re.MULTILINE)
    return said.group(1).partition(": a rank is stopped")[0] if said else ""


def faults(folder: Path) -> Iterator[tuple[str, Callable[[], Ended]]]:
    """What may befall a run, and how it is made to."""
    prepare_tiny_clicks(folder)
    config = folder / "tiny.toml"
    config.write_text(CONFIG.format(shards=folder / "shards"), encoding="utf-8")
    runs = iter(range(10_000))

    def command(output: Path, *more: str) -> list[str | Path]:
        settings = (
            f"train.output={output}",
            f"roles.servers={SERVERS}",
            "train.evaluate=false",
            "train.epochs=60",
            *more,
        )
        return ["bagpipe", "train", config, *settings]

    def signalled(rank: int, number: signal.Signals, *more: str) -> Ended:
        output = folder / f"run-{next(runs)}"
        ended = kill_one(RANKS, command(output, *more), rank, lambda: has_trained(output, STEPS), number=number)
        assert isinstance(ended, Killed), ended.stderr
        return ended.end_s, ended.finished

    def killed_while_saving() -> Ended:
        output = folder / f"run-{next(runs)}"
        saving = command(output, "train.checkpoint_every_steps=20")
        ended = kill_one(RANKS, saving, SERVER, lambda: any((output / "checkpoints").glob("*.partial/.*.partial")))
        assert isinstance(ended, Killed), ended.stderr
        return ended.end_s, ended.finished

    def lost_shard() -> Ended:
        output = folder / f"run-{next(runs)}"
        shard = folder / "shards" / "train-00001.h5"
        lost_s = 0.0

        def lose() -> bool:
            nonlocal lost_s
            if not has_trained(output, STEPS):
                return False
            shard.rename(shard.with_suffix(".away"))
            lost_s = time.monotonic()
            return True

        ended = kill_one(RANKS, command(output), RANKS, lose)
        end_s = time.monotonic() - lost_s
        shard.with_suffix(".away").rename(shard)
        assert isinstance(ended, CompletedProcess)
        return end_s, ended

    def cut_link(ranks: str, *more: str) -> Ended:
        number = next(runs)
        output, cut = folder / f"run-{number}", folder / f"cut-{number}"
        beside = (
            f"until grep -qs '\"step\": [3-9][0-9]' {output}/metrics.jsonl; do sleep 0.01; done; "
            f"ip link set host2 down; date +%s.%N >{cut}"
        )
        train = command(output, f"train.timeout_s={LIMIT_S}", *more)
        finished = run_on_hosts(ranks, *train, share=folder, timeout_s=120, beside=beside)
        return time.time() - float(cut.read_text()), finished

    for rank, name in NAMES.items():
        yield f"kill -9 of {name}", lambda rank=rank: signalled(rank, signal.SIGKILL)
    yield "kill -9 of a server while it writes a checkpoint", killed_while_saving
    limit = ("roles.same_host=transfers", f"train.timeout_s={LIMIT_S}")
    for rank, name in NAMES.items():
        stopped = f"SIGSTOP of {name}, train.timeout_s={LIMIT_S:.0f}"
        yield stopped, lambda rank=rank: signalled(rank, signal.SIGSTOP, *limit)
    yield "a shard is removed", lost_shard
    if subprocess.run([EMULATED_HOSTS, "--ranks", "1", "true"], capture_output=True, check=False).returncode == 0:
        limit_text = f"train.timeout_s={LIMIT_S:.0f}"
        yield f"the link between two hosts is cut, {limit_text}", lambda: cut_link("3,2")
        yield f"the servers' host is cut off, {limit_text}", lambda: cut_link("1,2,2", "roles.placement=rank_order")


if __name__ == "__main__":
    sys.exit(main())
