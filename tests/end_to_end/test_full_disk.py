"""A disk that is full or read-only is named, nothing half written stays behind, and the run goes on when there is room.

The disk is a tmpfs in a mount namespace of its own, so nothing of it is left.
"""

import os
import subprocess
from pathlib import Path

import pytest

from bagpipe_hpc.storage.checkpoints.checkpoint import load_checkpoint
from bagpipe_hpc.storage.checkpoints.folder import find_checkpoints
from bagpipe_hpc.tools.inspection.compare import compare
from tests.end_to_end.killed_runs import RANKS, command
from tests.ranks import RUN_RANKS, rank_environment, require_launcher

NAMESPACE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
TRAIN = '"$run_ranks" "$@" 2>"$logs/$name.txt"; echo $? >"$logs/$name.status"'
FULL_DISK = f"""
set -u
run_ranks=$1 disk=$2 logs=$3; shift 3
mount -t tmpfs -o size=1500k disk "$disk"
name=checkpoint; {TRAIN}
cp -r "$disk/run" "$logs/after-$name"

mount -o remount,size=20m "$disk"
lines=$(wc -l <"$disk/run/metrics.jsonl")
(
  until [ "$(wc -l <"$disk/run/metrics.jsonl")" -gt $((lines + 5)) ]; do sleep 0.01; done
  dd if=/dev/zero of="$disk/ballast" bs=4k status=none 2>/dev/null
) &
name=metrics
(set -- "${{@/train.checkpoint_every_steps=20/train.checkpoint_every_steps=1000}}"; {TRAIN})
wait
cp -r "$disk/run" "$logs/after-$name"

rm "$disk/ballast"
name=room; {TRAIN}
cp -r "$disk/run" "$logs/after-$name"
"""
READ_ONLY = f"""
run_ranks=$1 disk=$2 logs=$3; shift 3
mount --bind "$disk" "$disk" && mount -o remount,bind,ro "$disk"
name=read-only; {TRAIN}
"""


def run_on_disk(script: str, folder: Path, train: list[str | Path]) -> tuple[Path, dict[str, tuple[int, str]]]:
    """Run a script with a disk of its own; the folder of what it copied, and status and stderr of each training."""
    require_launcher()
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        message = "this machine allows no mount namespaces (unshare --mount)"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    logs = folder / "logs"
    logs.mkdir()
    arguments = [str(RUN_RANKS), str(folder / "disk"), str(logs), str(RANKS), *map(str, train)]
    subprocess.run(
        [*NAMESPACE, "bash", "-c", script, "bash", *arguments],
        check=True,
        env=rank_environment({"RANKS_TIMEOUT_S": "120"}),
        timeout=400,
    )
    ended = {
        path.stem: (int(path.read_text()), path.with_suffix(".txt").read_text(errors="replace"))
        for path in logs.glob("*.status")
    }
    return logs, ended


def newest_step(output: Path) -> int:
    """Of a checkpoint that is whole."""
    newest = load_checkpoint(find_checkpoints(output)[-1])
    newest.verify()
    return newest.manifest.step


@pytest.mark.slow
def test_a_full_disk(config_path: Path, whole_run: Path, tmp_path: Path) -> None:
    """First a checkpoint finds no room, then, in a run that goes on without any, the metrics.

    A line of metrics may still fit into the file's last page when the disk is full, which a checkpoint does not.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    logs, ended = run_on_disk(FULL_DISK, tmp_path, [*command(config_path, disk / "run"), "train.log_every_steps=1"])

    status, said = ended["checkpoint"]
    assert status == 1, said
    assert f"{disk}/run/checkpoints/step-" in said
    assert "cannot be written (No space left on device); check the free space" in said
    assert "failed: " in said
    saved = newest_step(logs / "after-checkpoint")
    assert saved in (40, 60)

    status, said = ended["metrics"]
    assert status == 1, said
    assert f"{disk}/run/metrics.jsonl: cannot be written (No space left on device); check the free space" in said
    assert newest_step(logs / "after-metrics") >= saved

    status, said = ended["room"]
    assert status == 0, said
    assert compare(whole_run, logs / "after-room").largest() == 0.0


@pytest.mark.slow
def test_a_read_only_output_is_refused(config_path: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    _, ended = run_on_disk(READ_ONLY, tmp_path, command(config_path, disk / "run"))
    status, said = ended["read-only"]
    assert status == 2, said
    assert said.count(f"train.output = '{disk}/run' cannot be written") == 1
    assert "Read-only file system" in said
    assert list(disk.iterdir()) == []
