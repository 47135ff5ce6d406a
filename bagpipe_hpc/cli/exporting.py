"""The command `bagpipe export`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bagpipe_hpc.terminal import printable


def add_export_arguments(parser: argparse.ArgumentParser, positive: Callable[[str], int]) -> None:
    """Say what the command takes.

    Args:
        parser: of the command.
        positive: reads a count.
    """
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="its folder, or a run's output folder for its newest one"
    )
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the folder to make")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="shards that it was trained on (default: where the run found them)"
    )
    parser.add_argument(
        "--tables", choices=["safetensors", "parquet"], default="safetensors", help="(default: safetensors)"
    )
    parser.add_argument(
        "--linear",
        choices=["onednn", "torch"],
        default="",
        help="what multiplies matrices in the program (default: as in training); torch runs on every processor",
    )
    parser.add_argument(
        "--file-bytes", type=positive, default=5_000_000_000, metavar="N", help="most of a file that tables share (5e9)"
    )


def run_export(arguments: argparse.Namespace) -> int:
    """Export a checkpoint, as `bagpipe export` was told."""
    from bagpipe_hpc.tools.exporting.export import ExportSettings, export_checkpoint

    settings = ExportSettings(
        checkpoint=arguments.checkpoint,
        output=arguments.to,
        data=arguments.data,
        tables=arguments.tables,
        linear=arguments.linear,
        most_file_bytes=arguments.file_bytes,
    )
    export_checkpoint(settings, lambda line: print(printable(line), file=sys.stderr, flush=True))
    return 0
