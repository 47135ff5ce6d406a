"""`bagpipe compare-policies` and `compare-placements`: policies or placements on equal terms."""

import os
from argparse import Namespace
from pathlib import Path

from bagpipe_hpc.cli.arguments.parser import CommandParser, add_config
from bagpipe_hpc.cli.arguments.types import named_path, nodes, percentage, positive
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.errors import ConfigError, require_appendable
from bagpipe_hpc.exit_codes import EXIT_OK

_USUAL_SEEDS = 3


def _add_compare_policies(parser: CommandParser) -> None:
    _add_contenders(parser, "policies", "'bagpipe cache.sharing=replicated'")
    parser.add_argument(
        "--trainers",
        type=positive,
        nargs="+",
        default=[1, 2, 4],
        metavar="T",
        help="numbers of trainers (default: 1 2 4)",
    )
    parser.add_argument(
        "--cache",
        type=percentage,
        nargs="+",
        default=[0.0],
        metavar="PERCENT",
        help="slots of a trainer's cache, in percent of the tables' rows; 0: as many as a policy wants (default: 0)",
    )
    parser.add_argument("--batches", type=positive, metavar="N", help="batches to plan of each segment (default: all)")
    parser.add_argument("--train", action="store_true", help="train, too: measure waiting, samples/s, AUC and log loss")
    parser.add_argument(
        "--seeds", type=positive, metavar="N", help=f"runs of each policy, with --train (default: {_USUAL_SEEDS})"
    )
    parser.add_argument(
        "--launch",
        default="mpirun -n {ranks}",
        metavar="COMMAND",
        help="starts a run's ranks (default: 'mpirun -n {ranks}'); {hosts}: the ranks of each host, one trainer a host",
    )
    parser.add_argument("--output", type=named_path, metavar="DIR", help="folder of the runs, with --train")
    parser.add_argument("--plot", type=named_path, metavar="FILE.svg", help="draw how much is moved")
    parser.add_argument("--save", type=named_path, metavar="FILE", help="append the JSON line to FILE")


def _add_contenders(parser: CommandParser, kind: str, example: str) -> None:
    """Add the arguments that both commands have: a configuration, and what is compared."""
    add_config(parser, f"replace single settings, for all {kind}")
    parser.add_argument(
        f"--{kind}",
        nargs="+",
        required=True,
        metavar="NAME",
        help=f"{kind} to compare; in quotes, a name may carry settings of its own: {example}",
    )


def _add_compare_placements(parser: CommandParser) -> None:
    _add_contenders(parser, "placements", "'greedy_lookup tables.statistics=FILE'")
    parser.add_argument(
        "--servers", type=nodes, nargs="+", default=[2, 4, 8], metavar="S", help="numbers of servers (default: 2 4 8)"
    )
    parser.add_argument("--trainers", type=positive, default=2, metavar="T", help="number of trainers (default: 2)")
    parser.add_argument("--batches", type=positive, metavar="N", help="batches to plan (default: all)")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="time how long each server takes to gather and put back rows, on this machine",
    )
    parser.add_argument("--save", type=named_path, metavar="FILE", help="append the JSON line to FILE")


def _compare_placements(arguments: Namespace) -> int:
    if arguments.save:
        require_appendable(arguments.save)
    from bagpipe_hpc.tools.placement.comparison import compare_placements

    report = compare_placements(
        arguments.config,
        arguments.overrides,
        arguments.placements,
        servers=arguments.servers,
        trainers=arguments.trainers,
        batches=arguments.batches,
        measure=arguments.measure,
    )
    report.finish(arguments.save)
    return EXIT_OK


def _compare_policies(arguments: Namespace) -> int:
    for option, value in (("--output", arguments.output), ("--seeds", arguments.seeds)):
        if value is not None and not arguments.train:
            raise ConfigError(
                f"{option} {value}: is for runs, and without --train there are none; add it, or leave {option} out"
            )
    if arguments.train and arguments.output is None:
        raise ConfigError("--train: runs need a folder; name one, as in --output comparison")
    if arguments.train and arguments.batches:
        raise ConfigError("--batches: runs have all batches; leave it out, or set train.max_steps for plans and runs")
    if arguments.plot:
        check_plot(arguments.plot)
    if arguments.save:
        require_appendable(arguments.save)
    from bagpipe_hpc.tools.policy_comparison.comparison import Runs, compare_policies

    report = compare_policies(
        arguments.config,
        arguments.overrides,
        arguments.policies,
        trainers=arguments.trainers,
        cache_percents=arguments.cache,
        batches=arguments.batches or 0,
        runs=Runs(arguments.output, arguments.launch, arguments.seeds or _USUAL_SEEDS) if arguments.train else None,
        plot=arguments.plot,
    )
    report.finish(arguments.save)
    return EXIT_OK


def check_plot(plot: Path) -> None:
    """Check that a drawing can be written.

    Raises:
        ConfigError: its name does not end in .svg or is a folder's, or its folder cannot be written to.
    """
    if plot.suffix != ".svg":
        raise ConfigError(f"--plot {plot}: is drawn as SVG; use a name that ends in .svg")
    if plot.is_dir():
        raise ConfigError(f"--plot {plot}: is a folder; name a file in it")
    if not os.access(plot.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"--plot {plot}: its folder does not exist or cannot be written to; make it")


COMPARE_POLICIES = Command(
    "compare-policies",
    "count and train policies on equal terms: rows, bytes, waiting, quality",
    _add_compare_policies,
    _compare_policies,
)
COMPARE_PLACEMENTS = Command(
    "compare-placements",
    "count what each placement of rows gives servers to hold and to do",
    _add_compare_placements,
    _compare_placements,
)
