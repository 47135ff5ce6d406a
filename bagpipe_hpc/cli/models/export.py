"""`bagpipe export`: a trained model as a folder for a service."""

import argparse

from bagpipe_hpc.cli.arguments.parser import CommandParser, add_checkpoint
from bagpipe_hpc.cli.arguments.types import named_path, positive
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.streams import tell
from bagpipe_hpc.exit_codes import EXIT_OK

_FILE_BYTES = 5_000_000_000


def _add_arguments(parser: CommandParser) -> None:
    add_checkpoint(parser)
    parser.add_argument("--to", type=named_path, required=True, metavar="DIR", help="the folder to make")
    parser.add_argument(
        "--data",
        type=named_path,
        metavar="DIR",
        help="folder of the data that it was trained on (default: where the run found it)",
    )
    parser.add_argument(
        "--tables",
        choices=["safetensors", "parquet"],
        default="safetensors",
        help="format of the tables (default: safetensors)",
    )
    parser.add_argument(
        "--linear",
        choices=["onednn", "torch"],
        default="",
        help="what multiplies matrices in the program (default: as in training); torch runs on every processor",
    )
    parser.add_argument(
        "--onnx",
        action=argparse.BooleanOptionalAction,
        help="write the program as ONNX too, or not (default: where onnxscript is installed)",
    )
    parser.add_argument(
        "--file-bytes",
        type=positive,
        default=_FILE_BYTES,
        metavar="N",
        help="most bytes of a file that several tables share (default: 5e9)",
    )


def _export(arguments: argparse.Namespace) -> int:
    """Export a checkpoint, in one process."""
    from bagpipe_hpc.tools.exporting.export import ExportSettings, export_checkpoint
    from bagpipe_hpc.tools.scoring.chosen import choose_checkpoint

    settings = ExportSettings(
        checkpoint=choose_checkpoint(arguments.checkpoint, best=arguments.best),
        output=arguments.to,
        data=arguments.data,
        tables=arguments.tables,
        linear=arguments.linear,
        onnx=arguments.onnx,
        most_file_bytes=arguments.file_bytes,
    )
    export_checkpoint(settings, tell)
    return EXIT_OK


EXPORT = Command("export", "write a trained model as a folder for a service with torch alone", _add_arguments, _export)
