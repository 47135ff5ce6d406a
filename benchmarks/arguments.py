"""What each benchmark alone takes on the command line."""

import argparse
from pathlib import Path

from bagpipe_hpc.cli.arguments.types import count, positive, positive_number
from bagpipe_hpc.config.sections.execution import BACKENDS
from bagpipe_hpc.config.sections.rows import SHARINGS


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="section.field=value", help="further settings, as for bagpipe train"
    )


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quiet-s", type=positive_number, metavar="S", help="wait up to S seconds for idle cores before each run"
    )
    parser.add_argument(
        "--others-at-most",
        type=positive_number,
        default=1.0,
        metavar="SHARE",
        help="of the cores: runs in which others took more are repeated (default: 1)",
    )


def add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--widths", type=positive, nargs="+", metavar="D", help="default: 16 48 64 128 256, quick: 48 128"
    )
    parser.add_argument(
        "--threads", type=positive, nargs="+", metavar="N", help="CPU threads (default: 1 and 2, quick: 1)"
    )
    parser.add_argument(
        "--devices", nargs="+", choices=["cpu", "cuda"], metavar="NAME", help="cpu, cuda (default: all)"
    )


def add_memory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sharing", choices=SHARINGS, default=SHARINGS[0], help="cache.sharing (default: %(default)s)")


def add_prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("clicks", type=Path, nargs="?", metavar="FILE", help="text to read (default: generated rows)")
    parser.add_argument(
        "--rows", type=positive, default=1_000_000, metavar="N", help="generated rows (default: 1000000)"
    )
    parser.add_argument(
        "--schema", nargs="+", default=[], metavar="NAME", help="text of these schemas (default: Criteo's, without one)"
    )
    parser.add_argument(
        "--ranks", nargs="+", type=positive, default=[], metavar="N", help="the command itself on so many ranks"
    )
    parser.add_argument("--path", type=Path, metavar="DIR", help="folder for text and shards (default: temporary)")


def add_gpu_steps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", nargs="+", metavar="NAME", help="quickstart, embedding_bound (default: both)")
    parser.add_argument("--steps", type=positive, default=20, metavar="N", help="that are profiled (default: 20)")
    parser.add_argument("--timelines", type=Path, metavar="DIR", help="keep the timelines there (default: nowhere)")
    parser.add_argument("--set", nargs="+", default=[], metavar="section.field=value", help="settings for all runs")


def add_store(parser: argparse.ArgumentParser) -> None:
    links, ways = ["native", "10gbit", "1gbit", "nodes"], ["loads", "messages", "one_sided"]
    parser.add_argument(
        "--link",
        nargs="+",
        choices=links,
        metavar="NAME",
        help="native, 10gbit, 1gbit (default; quick: without 10gbit), or nodes: those of this job, started by MPIRUN",
    )
    parser.add_argument("--servers", nargs="+", type=positive, metavar="S", help="(default: 1 2; over a link: 1)")
    parser.add_argument("--trainers", nargs="+", type=positive, metavar="T", help="(default: 1 2; quick, a link: 1)")
    parser.add_argument("--row-bytes", nargs="+", type=positive, metavar="N", help="(default: 64 to 1024)")
    parser.add_argument("--rows", type=positive, default=16384, metavar="N", help="rows of a call (default: 16384)")
    parser.add_argument(
        "--ways", nargs="+", choices=ways, metavar="WAY", help=f"of {', '.join(ways)} (default: loads, messages)"
    )
    parser.add_argument("--poll-us", type=count, default=200, metavar="N", help="roles.server_poll_us (default: 200)")
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="kernels.backend (default: auto)")


def add_peers(parser: argparse.ArgumentParser) -> None:
    workloads = ["real", "large", "link"]
    parser.add_argument(
        "--workloads", nargs="+", choices=workloads, default=workloads, metavar="NAME", help=", ".join(workloads)
    )
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="only these (default: all; quick: three)")
    parser.add_argument(
        "--criteo", type=Path, metavar="FILE", help="Criteo's rows for `real` (default: generated ones)"
    )
    parser.add_argument("--link", choices=["1gbit", "10gbit"], default="1gbit", help="of `link` (default: 1gbit)")
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cpu", help="where one trainer computes (default: %(default)s)"
    )
    _add_quiet(parser)
    parser.add_argument(
        "--turns",
        type=positive,
        metavar="N",
        help="N rounds in which each trains for some seconds while the others are stopped, in place of whole runs: "
        "--runs, --quiet-s and --others-at-most do not count",
    )
    parser.add_argument(
        "--turn-s", type=positive_number, default=2.5, metavar="S", help="seconds of a turn (default: 2.5)"
    )


def add_step(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", nargs="+", metavar="NAME", help="quickstart, embedding_bound (default: both)")
    parser.add_argument("--link", nargs="+", metavar="NAME", help="native, 10gbit, 1gbit (with 0.5 ms; default: all)")
    parser.add_argument("--trainers", nargs="+", type=positive, metavar="T", help="(default: 1 2 4, quick: 2)")
    parser.add_argument("--lookahead", nargs="+", type=positive, metavar="L", help="windows (default: 1 2 10 50 200)")
    parser.add_argument("--spread", action="store_true", help="a host for each trainer, so that sums cross links, too")
    parser.add_argument("--steps", type=positive, metavar="N", help="steps that count (default: 100, quick: 40)")
    _add_quiet(parser)
    _add_settings(parser)


def add_waiting(parser: argparse.ArgumentParser) -> None:
    _add_settings(parser)


def add_step_price(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trainers", nargs="+", type=positive, default=[1, 2], metavar="T", help="on this host (default: 1 2)"
    )
    parser.add_argument(
        "--slices",
        nargs="+",
        type=positive,
        default=[4, 32, 128, 512],
        metavar="N",
        help="samples of a trainer's slice (default: 4 32 128 512)",
    )
    _add_settings(parser)


def add_simulate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--measured", type=Path, metavar="FILE", help="what `step --save` wrote (default: measures first)"
    )


def add_growth(parser: argparse.ArgumentParser) -> None:
    links = ["30mbit", "100mbit", "300mbit", "1gbit", "10gbit"]
    parser.add_argument("--link", choices=links, default="100mbit", metavar="NAME", help="(default: %(default)s)")
    parser.add_argument("--trainers", nargs="+", type=positive, default=[2, 4], metavar="T", help="(default: 2 4)")
    samples = parser.add_mutually_exclusive_group()
    samples.add_argument("--slice", type=positive, default=64, metavar="N", help="samples of a trainer (default: 64)")
    samples.add_argument("--batch", type=positive, metavar="N", help="samples that all trainers share instead")
    workloads = ["quickstart", "embedding_bound"]
    parser.add_argument("--workload", choices=workloads, default="quickstart", help="(default: %(default)s)")
    parser.add_argument(
        "--servers", type=positive, metavar="S", help="hosts with a server each (default: two on the oracle's host)"
    )
    parser.add_argument(
        "--us-per-sample", type=positive_number, metavar="US", help="trainers sleep for so long besides computing"
    )
    parser.add_argument("--lookahead", type=positive, default=20, metavar="L", help="(default: 20)")
    parser.add_argument("--steps", type=positive, metavar="N", help="that count (default: 100, quick: 40)")
    _add_settings(parser)


def add_volumes(parser: argparse.ArgumentParser) -> None:
    links = ["10gbit", "1gbit", "native"]
    parser.add_argument("--link", nargs="+", choices=links, metavar="NAME", help="(default: 10gbit 1gbit)")
    parser.add_argument("--trainers", nargs="+", type=positive, metavar="T", help="(default: 1 2 4 8, quick: 2)")
    parser.add_argument("--rows", type=count, default=0, metavar="N", help="draw look-ups of so many rows, too (0)")
    parser.add_argument("--batch-size", type=positive, default=65536, metavar="N", help="of these (default: 65536)")
    parser.add_argument("--lookahead", type=positive, default=40, metavar="L", help="of these (default: 40)")
    parser.add_argument("--batches", type=positive, default=10, metavar="N", help="of these that count (default: 10)")
    parser.add_argument(
        "--drawn-trainers", nargs="+", type=positive, metavar="T", help="of these (default: 2 8 64, quick: 2)"
    )


def add_host_sharing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trainers", nargs="+", type=positive, metavar="T", help="(default: 8 16 64, quick: 4)")
    parser.add_argument("--trainers-per-host", nargs="+", type=positive, metavar="N", help="(default: 4 8, quick: 2)")
    parser.add_argument("--rows", type=positive, default=20_000_000, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--batch-size", type=positive, default=65536, metavar="N", help="samples (default: 65536)")
    parser.add_argument("--lookahead", type=positive, default=40, metavar="L", help="window (default: 40)")
    parser.add_argument("--batches", type=positive, default=10, metavar="N", help="that count (default: 10)")
    parser.add_argument("--local-homes", action="store_true", help="also choose homes by uses of hosts, in NumPy: slow")


def add_tiers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shards", type=Path, nargs="?", metavar="SHARDS", help="prepared rows (default: generated)")
    parser.add_argument("--trainers", type=positive, default=4, metavar="T", help="(default: 4)")
    parser.add_argument("--hosts", type=positive, default=2, metavar="H", help="of as many each (default: 2)")
    parser.add_argument("--fast-gb", type=positive_number, default=0.0005, metavar="GB", help="(default: 0.0005)")
    parser.add_argument("--batch-size", type=positive, default=2048, metavar="N", help="samples (default: 2048)")
    parser.add_argument("--lookahead", type=positive, default=10, metavar="L", help="window (default: 10)")


def add_planner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch-size", type=positive, default=16384, metavar="N", help="samples (default: 16384)")
    parser.add_argument("--lookahead", type=positive, default=200, metavar="L", help="window (default: 200)")
    parser.add_argument("--trainers", type=positive, default=2, metavar="T", help="(default: 2)")
    parser.add_argument("--steps", type=positive, default=50, metavar="N", help="batches of a run (default: 50)")
    parser.add_argument("--sharing", choices=SHARINGS, default=SHARINGS[0], help="cache.sharing (default: %(default)s)")
    sweeps = ["batch", "lookahead", "rows", "threads", "bags", "trainers"]
    parser.add_argument(
        "--sweep", nargs="*", choices=sweeps, default=sweeps, metavar="NAME", help=f"{', '.join(sweeps)} (default: all)"
    )


def add_oracle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=positive, default=188_000_000, metavar="N", help="of tables (default: 188e6)")
    parser.add_argument("--batch-size", type=positive, default=65536, metavar="N", help="samples (default: 65536)")
    parser.add_argument("--lookahead", type=positive, default=40, metavar="L", help="window (default: 40)")
    parser.add_argument("--samples", type=positive, default=3 << 20, metavar="N", help="in the shards (default: 3 Mi)")
    parser.add_argument("--threads", type=positive, nargs="+", default=[1, 2], metavar="N", help="(default: 1 2)")
    parser.add_argument(
        "--run-samples", type=positive, default=100_000_000, metavar="N", help="of the run to start (default: 1e8)"
    )


def add_quality(parser: argparse.ArgumentParser) -> None:
    models = ["dlrm", "wide_deep", "deepfm", "dcn", "dcn_v2", "dlrm_dcnv2"]
    contenders = ["bagpipe", "embedding_bag", "rechub"]
    parser.add_argument(
        "--shards", type=Path, metavar="DIR", help="prepared clicks with test rows (default: generated)"
    )
    parser.add_argument("--models", nargs="+", choices=models, default=models, metavar="NAME", help="(default: all)")
    parser.add_argument(
        "--contenders", nargs="+", choices=contenders, default=contenders, metavar="NAME", help=", ".join(contenders)
    )
    parser.add_argument("--seeds", type=positive, default=5, metavar="N", help="runs of each (default: 5, quick: 2)")
    parser.add_argument(
        "--settings", nargs="+", default=[], metavar="section.field=value", help="for all runs, such as a batch size"
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clicks", type=Path, metavar="FILE", help="Criteo's rows in time order (default: generated)")
    parser.add_argument("--rows", type=count, default=0, metavar="N", help="training rows, the first ones; 0: all (0)")
    parser.add_argument(
        "--tries",
        type=Path,
        default=Path(__file__).parent / "searches" / "criteo_sample.toml",
        metavar="FILE",
        help="what is tried (default: %(default)s)",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these tries alone (default: all, quick: two)")
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs of each (default: 3, quick: 1)")


def add_ssd(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", type=Path, metavar="DIR", help="folder on the disk to measure (default: build/bench)")
    parser.add_argument(
        "--shares", nargs="+", type=positive, metavar="PERCENT", help="of the rows in memory (default: 25 50 100)"
    )
    parser.add_argument("--plain", action="store_true", help="once more without reading ahead")
    parser.add_argument("--steps", type=positive, metavar="N", help="steps that count (default: 100, quick: 20)")
    parser.add_argument("--width", type=positive, default=120, metavar="D", help="of the rows (default: 120)")
    parser.add_argument(
        "--shard-steps",
        type=positive,
        metavar="N",
        help="size of the tables: they have the rows of so many batches, of which few are trained on (default: 1000, "
        "quick: 200)",
    )
    _add_settings(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=Path, metavar="DIR", help="prepared clicks (default: generated)")
    parser.add_argument("--batch-size", type=positive, default=65536, metavar="N", help="samples (default: 65536)")
    parser.add_argument("--lanes", type=positive, default=16, metavar="K", help="data.lanes (default: 16)")
    parser.add_argument(
        "--trainers", nargs="+", type=positive, default=[1, 4, 16], metavar="T", help="(default: 1 4 16)"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for generated clicks (default: a temporary one)")


def add_none(parser: argparse.ArgumentParser) -> None:
    """The benchmark takes none of its own."""
