#!/usr/bin/env bash
# Train every combination of some settings' values, as a Slurm array: one task is one run on nodes of its own.
#
#   bagpipe sweep CONFIG.toml section.field=value,value ...        checks all runs, prints them and the line to submit
#   sbatch --array=0-3 [sbatch options] slurm/sweep.sh CONFIG.toml section.field=value,value ...
#
# Each task runs slurm/train.sh with the overrides of its run, so a warning before the end, a preemption and a node's death
# are treated as there; a requeued task keeps its number. Slurm reads #SBATCH lines from the submitted script alone.
#SBATCH --job-name=bagpipe-sweep
#SBATCH --ntasks=5                    # of one run: the smallest with rows on two servers, gradients on two trainers
#SBATCH --cpus-per-task=2             # a trainer computes on one core while its mover thread moves rows on another
#SBATCH --mem-per-cpu=4G              # as in slurm/train.sh
#SBATCH --time=24:00:00               # of one run; a known end lets the scheduler backfill smaller jobs before it
#SBATCH --signal=B:USR1@300           # so many seconds before the end: more than train.checkpoint_every_steps take
#SBATCH --requeue                     # after a node's death or a preemption the task starts again
#SBATCH --output=%x-%A_%a.log         # a log for each run, named by array and task
#SBATCH --open-mode=append            # a requeued task goes on in the same log
set -euo pipefail

stop_asked=false # caught for slurm/train.sh: the warning that the time runs out may come before that script begins
trap 'stop_asked=true' USR1

if [ $# -lt 2 ]; then
  echo "usage: sbatch --array=0-N slurm/sweep.sh CONFIG.toml section.field=value,value ..." >&2
  exit 2
fi
cd "${SLURM_SUBMIT_DIR:?start this script with sbatch}"
home=${BAGPIPE_HOME:-$PWD} # as in slurm/train.sh
if ! [ -e "$home/slurm/site_environment.sh" ]; then
  echo "slurm/sweep.sh: $home is no checkout: call sbatch in the root of one, or set BAGPIPE_HOME to it" >&2
  exit 2
fi
task=${SLURM_ARRAY_TASK_ID:?give sbatch the runs of the sweep: --array=0-N, as bagpipe sweep prints it}
# shellcheck source=slurm/site_environment.sh
source "$home/slurm/site_environment.sh"

overrides=$(bagpipe sweep --task "$task" "$@")
mapfile -t overrides <<<"$overrides"
echo "run $task of the sweep: ${overrides[*]}" || true
set -- "$1" "${overrides[@]}"
# shellcheck source=slurm/train.sh
source "$home/slurm/train.sh"
