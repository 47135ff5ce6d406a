"""The folder of an exported model: it appears whole, under its name, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bagpipe_hpc.errors import CapacityError, ConfigError, OutputError, refused
from bagpipe_hpc.storage.output_errors import reason, require_writable
from bagpipe_hpc.storage.scratch_folder import scratch_folder


def require_new(output: Path) -> None:
    """Check that a folder can be made, and does not exist yet.

    Raises:
        ConfigError: something has that name, or its parent is no folder or cannot be written to.
        FileError: the system refuses access to it.
    """
    parent = output.absolute().parent
    try:
        if not parent.is_dir():
            raise ConfigError(f"--to {output}: {parent} is no folder; make it first")
        output.lstat()
        raise ConfigError(f"--to {output}: is there already; name a new folder, or remove that one")
    except FileNotFoundError:
        require_writable("--to", str(output), parent)
    except OSError as error:
        raise refused(error, output) from error
    except ValueError as error:
        raise ConfigError(f"--to {str(output)!r}: is no name of a folder ({error}); use another one") from error


def require_room(output: Path, wanted_bytes: int) -> None:
    """Check that the disk has room for a folder.

    Raises:
        CapacityError: the disk has too little room.
    """
    free = shutil.disk_usage(output.absolute().parent).free
    if wanted_bytes > free:
        raise CapacityError(
            f"--to {output}: the exported model takes about {wanted_bytes / 1e6:.0f} MB, and its disk has "
            f"{free / 1e6:.0f} MB free; make room, or name another place"
        )


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Give a folder beside `output` to write to; it is renamed to `output` when the block ends without an error.

    Otherwise it is removed with all that is in it. So is what a killed process left of an export to the same place.

    Raises:
        OutputError: the folder, or a file in it, cannot be written.
    """
    try:
        with scratch_folder(output) as scratch:
            yield scratch.path
            if os.path.lexists(output):
                raise ConfigError(f"--to {output}: was made by somebody else meanwhile; name another folder")
            scratch.publish()
    except OSError as error:
        raise OutputError(
            f"--to {output}: cannot be written ({reason(error)}); check the free space and the permissions. Nothing "
            "was left there"
        ) from error
