#!/usr/bin/env bash
# Measure on nodes of their own: any benchmark on one, rows between servers and trainers over several.
#
#   sbatch [sbatch options] slurm/bench.sh NAME [options]                   as `python -m benchmarks NAME [options]`
#   sbatch --nodes=3 slurm/bench.sh store [options]                         oracle, server and trainer on a node each
#
# `python -m benchmarks --help` lists the benchmarks. The last line of the log is the result as JSON; --save FILE keeps it.
#SBATCH --job-name=bagpipe-bench
#SBATCH --nodes=1                     # most benchmarks start their ranks on one node
#SBATCH --ntasks-per-node=1           # over several nodes, every rank's rows cross a link
#SBATCH --cpus-per-task=2             # over several nodes: a core for a rank, one for threads of its MPI
#SBATCH --exclusive                   # other jobs on the node would be measured as well
#SBATCH --mem=0                       # all memory of the node: an exclusive job gets its cores, but not its memory
#SBATCH --time=04:00:00               # `all` is the longest; a known end lets the scheduler backfill smaller jobs before this one
#SBATCH --output=%x-%j.log            # named by job: a second run does not overwrite it
set -euo pipefail

if [ $# -lt 1 ]; then
  echo "usage: sbatch slurm/bench.sh NAME [options]; \`python -m benchmarks --help\` lists the names" >&2
  exit 2
fi
cd "${SLURM_SUBMIT_DIR:?start this script with sbatch}"
home=$PWD # results are written there: if the installation is shared, make a checkout of your own
if ! [ -e slurm/site_environment.sh ]; then
  echo "slurm/bench.sh: $PWD is no checkout: call sbatch in the root of one" >&2
  exit 2
fi
# shellcheck source=slurm/site_environment.sh
source "$home/slurm/site_environment.sh"

if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then
  if [ "$1" != store ]; then
    echo "bench.sh: $1 measures one node, and this job has $SLURM_JOB_NUM_NODES; leave out --nodes, or measure store" >&2
    exit 2
  fi
  # srun does not take sbatch's --cpus-per-task by itself.
  export MPIRUN="${LAUNCHER[*]}" SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
  set -- "$@" --link nodes
else
  # MPICH's mpirun would have srun start the ranks, which gives them the cores of one task instead of the node's.
  export HYDRA_LAUNCHER=fork
fi
exec python -m benchmarks "$@"
