"""How long a model computes: as the command line says it, or as a run has measured it."""

import json
from dataclasses import dataclass
from pathlib import Path

from bagpipe_hpc.config.file import load_config
from bagpipe_hpc.errors import ConfigError
from bagpipe_hpc.run.output.folder import CONFIG_NAME
from bagpipe_hpc.simulation.calibration import compute_s_per_sample
from bagpipe_hpc.telemetry.metrics_file import METRICS_NAME


@dataclass(frozen=True)
class ComputeTime:
    """What the command line says of it.

    Attributes:
        calibrate: output folder of a run that has measured it; None where there is none.
        us_per_sample: microseconds for a sample; None where a run has measured it, or nobody knows it.
        us_per_step: microseconds for a step beside its samples.
    """

    calibrate: Path | None
    us_per_sample: float | None
    us_per_step: float

    def seconds(self) -> tuple[float, float]:
        """For a sample, and for a step beside its samples; both are 0 where neither is given.

        Raises:
            ConfigError: the named folder is not that of a run, or only a time of a step is given.
        """
        per_step_s = self.us_per_step * 1e-6
        if self.calibrate:
            return calibrate(self.calibrate, per_step_s), per_step_s
        per_sample_s = (self.us_per_sample or 0.0) * 1e-6
        if per_step_s and not per_sample_s:
            raise ConfigError(
                f"--compute-us-per-step {self.us_per_step:g}: says nothing without the time of a sample; give "
                "--calibrate or --compute-us-per-sample as well"
            )
        return per_sample_s, per_step_s


def calibrate(run: Path, per_step_s: float = 0.0) -> float:
    """Seconds of compute for a sample, from the output folder of a measured run, less `per_step_s` for each step.

    Raises:
        ConfigError: the folder is not that of a run, or the run has recorded no step.
    """
    try:
        with (run / METRICS_NAME).open(encoding="utf-8") as lines:
            batch_size = load_config(run / CONFIG_NAME, []).train.batch_size
            return compute_s_per_sample((json.loads(line) for line in lines if line != "\n"), batch_size, per_step_s)
    except (OSError, ValueError, RecursionError) as error:
        what = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        raise ConfigError(f"--calibrate {run}: {what}; name the output folder of a finished run") from None
