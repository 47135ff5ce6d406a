"""A benchmark's own settings are not the user's."""

import pytest

from bagpipe_hpc.errors import ConfigError
from benchmarks.jobs.own_settings import require_free

OWN = ["lookahead.batches=40", "train.output=somewhere"]


def test_other_settings_are_free() -> None:
    require_free(["train.seed=3", "lookahead.group=2"], OWN)


@pytest.mark.parametrize("asked", ["lookahead.batches=5", " lookahead.batches = 40"])
def test_its_own_are_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match=r"--set .*: the benchmark sets lookahead\.batches itself; leave it out"):
        require_free(["train.seed=3", asked], OWN)
