"""`bagpipe evaluate` and `bagpipe predict`: a trained model in use."""

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from bagpipe_hpc.cli.arguments.parser import CommandParser, add_checkpoint, add_input
from bagpipe_hpc.cli.arguments.types import named_path
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.outcome import is_first_rank, is_torn, print_error
from bagpipe_hpc.cli.runs.train import COLD_START_S
from bagpipe_hpc.errors import BagpipeError, ConfigError
from bagpipe_hpc.exit_codes import EXIT_ERROR

if TYPE_CHECKING:
    from bagpipe_hpc.config.schema import Config
    from bagpipe_hpc.storage.checkpoints.checkpoint import Checkpoint
    from bagpipe_hpc.tools.scoring.purpose import Scoring


def _add_evaluate(parser: CommandParser) -> None:
    _add_scored(parser)
    parser.add_argument(
        "--data",
        type=named_path,
        metavar="DIR",
        help="prepared rows (default: those that the checkpoint was trained on)",
    )
    parser.add_argument("--split", choices=["test", "train"], default="test", help="rows to measure (default: test)")
    parser.add_argument("--save", type=named_path, metavar="FILE", help="append the JSON line to FILE")


def _add_scored(parser: CommandParser) -> None:
    add_checkpoint(parser)
    parser.add_overrides("overrides", "*", "section.field=value", "change how it is computed; `bagpipe keys` lists all")
    parser.add_argument(
        "--logs", type=named_path, metavar="DIR", help="write logs of all ranks into DIR (default: none)"
    )


def _add_predict(parser: CommandParser) -> None:
    _add_scored(parser)
    add_input(parser, "raw rows; files or glob patterns")
    parser.add_argument(
        "--output",
        type=named_path,
        required=True,
        metavar="FILE",
        help="FILE.csv, FILE.tsv or FILE.parquet; must not exist",
    )
    parser.add_argument(
        "--data",
        type=named_path,
        metavar="DIR",
        help="prepared rows whose vocabulary and settings apply (default: those that the checkpoint was trained on)",
    )
    parser.add_argument("--logits", action="store_true", help="write a column of logits for each label as well")


def _evaluate(arguments: argparse.Namespace) -> int:
    """Evaluate a checkpoint. Collective over: all ranks that the launcher started."""

    def purpose() -> "Scoring":
        from bagpipe_hpc.tools.scoring.evaluate import Evaluating

        config, checkpoint = _chosen(arguments)
        named = arguments.data is not None
        return Evaluating(config, checkpoint, arguments.split, arguments.save, arguments.logs, names_data=named)

    return _carry_out(purpose)


def _predict(arguments: argparse.Namespace) -> int:
    """Predict raw rows with a checkpoint. Collective over: all ranks that the launcher started."""

    def purpose() -> "Scoring":
        from bagpipe_hpc.tools.scoring.predict import Predicting

        config, checkpoint = _chosen(arguments)
        inputs, output, logits = arguments.input, arguments.output, arguments.logits
        named = arguments.data is not None
        return Predicting(config, checkpoint, inputs, output, with_logits=logits, logs=arguments.logs, names_data=named)

    return _carry_out(purpose)


def _chosen(arguments: argparse.Namespace) -> "tuple[Config, Checkpoint]":
    """The settings to score with, and the checkpoint.

    Raises:
        BagpipeError: there is no checkpoint, or an override is wrong.
    """
    from bagpipe_hpc.run.start.scored_settings import scoring_config, with_data
    from bagpipe_hpc.tools.scoring.chosen import choose_checkpoint

    checkpoint = choose_checkpoint(arguments.checkpoint, best=arguments.best)
    config = scoring_config(checkpoint, arguments.overrides)
    if arguments.data:
        config = with_data(config, str(arguments.data))
    if not config.data.path:
        raise ConfigError(f"{checkpoint.directory}: does not say on what it was trained; use --data")
    return config, checkpoint


def _carry_out(make_purpose: "Callable[[], Scoring]") -> int:
    """Make the purpose on every rank, and carry it out; returns the exit code.

    Every rank reads the same files and finds the same mistake; later errors are each rank's own.
    """
    try:
        purpose = make_purpose()
    except BagpipeError as error:
        if is_first_rank():
            print_error(error)
        return EXIT_ERROR

    from bagpipe_hpc.mpi.start.running import mpi_running

    timeout_s = purpose.config.train.timeout_s
    with mpi_running(timeout_s + COLD_START_S, timeout_s):
        if is_torn():
            return EXIT_ERROR

        from bagpipe_hpc.launch import carry_out

        with closing(purpose):
            return carry_out(purpose)


EVALUATE = Command(
    "evaluate",
    "measure a checkpoint on prepared rows; start it like train, with as many ranks or others",
    _add_evaluate,
    _evaluate,
)
PREDICT = Command(
    "predict",
    "write what a checkpoint predicts for raw rows; start it like train, with as many ranks or others",
    _add_predict,
    _predict,
)
