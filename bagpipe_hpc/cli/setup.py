"""`bagpipe doctor` and `keys`: whether this set-up can train, and which settings there are."""

import argparse
from pathlib import Path

from bagpipe_hpc.cli.arguments.parser import CommandParser
from bagpipe_hpc.cli.arguments.types import named_path, seconds
from bagpipe_hpc.cli.command import Command
from bagpipe_hpc.cli.outcome import speaks_for_host
from bagpipe_hpc.config.reference import annotated_toml, markdown
from bagpipe_hpc.exit_codes import EXIT_DIFFERENT, EXIT_OK
from bagpipe_hpc.terminal import printable


def _add_doctor(parser: CommandParser) -> None:
    parser.add_argument(
        "--output",
        type=named_path,
        default=Path(),
        metavar="DIR",
        help="folder that all hosts must share (default: this one)",
    )
    parser.add_argument(
        "--timeout-s", type=seconds, default=30.0, metavar="S", help="longest wait for a host (default: 30)"
    )


def _doctor(arguments: argparse.Namespace) -> int:
    from bagpipe_hpc.tools.doctor.installation import find_missing

    lacking = find_missing()
    if any(finding.is_fatal for finding in lacking):
        if speaks_for_host():
            print(printable("\n".join([*map(str, lacking), "not healthy"])))
        return EXIT_DIFFERENT
    from bagpipe_hpc.mpi.start.running import mpi_running

    with mpi_running(arguments.timeout_s, arguments.timeout_s):
        from bagpipe_hpc.tools.doctor.doctor import diagnose

        return diagnose(arguments.output, arguments.timeout_s, lacking)


def _add_keys(parser: CommandParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="print docs/configuration.md instead of TOML")


def _keys(arguments: argparse.Namespace) -> int:
    print(markdown() if arguments.markdown else annotated_toml(), end="")
    return EXIT_OK


DOCTOR = Command(
    "doctor", "check this set-up; start it with mpirun or srun to check several hosts", _add_doctor, _doctor
)
KEYS = Command("keys", "print every setting with its meaning and default", _add_keys, _keys)
