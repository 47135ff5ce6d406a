#!/usr/bin/env bash
# Turn raw clicks into shards, as a Slurm job: ranks on one or several nodes share the work.
#
#   sbatch [sbatch options] slurm/prepare.sh --format criteo --input train.txt --output data/criteo_kaggle
#
# The arguments are those of `bagpipe prepare`. All nodes must see inputs and output; --ntasks=1 does without MPI.
#SBATCH --job-name=bagpipe-prepare
#SBATCH --ntasks=4                    # ranks share files, ranges of large ones, columns and shards; any number will do
#SBATCH --cpus-per-task=4             # parsing and compression run on several threads of each rank
#SBATCH --mem-per-cpu=4G              # while it writes shards each rank holds the vocabularies of all columns
#SBATCH --time=12:00:00               # a known end lets the scheduler backfill smaller jobs before this one
#SBATCH --requeue                     # after a node's death the job starts again, and goes on after what is finished
#SBATCH --output=%x-%j.log            # named by job: a second run does not overwrite it
#SBATCH --open-mode=append            # a requeued job goes on in the same log
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?start this script with sbatch}"
home=${BAGPIPE_HOME:-$PWD} # as in slurm/train.sh
if ! [ -e "$home/slurm/site_environment.sh" ]; then
  echo "slurm/prepare.sh: $home is no checkout: call sbatch in the root of one, or set BAGPIPE_HOME to it" >&2
  exit 2
fi
# shellcheck source=slurm/site_environment.sh
source "$home/slurm/site_environment.sh"

if [ "${SLURM_NTASKS:-1}" -eq 1 ]; then exec bagpipe prepare "$@"; fi
# srun does not take sbatch's --cpus-per-task by itself.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
status=0
"${LAUNCHER[@]}" -n "$SLURM_NTASKS" bagpipe prepare "$@" || status=$?

# As in slurm/train.sh: a node's death can end the ranks before Slurm notices it and requeues the job, which must not have
# ended by then. Of a job that was cancelled or whose time is up no node answers, either.
look=(env -u SLURM_NTASKS -u SLURM_NPROCS srun --overlap --mem=0 --mpi=none --cpus-per-task=1 --ntasks-per-node=1)
is_over() {
  local job
  job=$(scontrol --oneliner show job "$SLURM_JOB_ID" | grep "^JobId=$SLURM_JOB_ID ") || return 1 # Slurm does not say
  [[ $job != *\ JobState=RUNNING\ * ]]
}
if { [ "$status" -ne 0 ] || [ "${LAUNCHER[0]}" != srun ]; } && ! is_over && ! "${look[@]}" true; then
  echo "job $SLURM_JOB_ID: a node does not answer, waiting for Slurm to requeue the job" || true
  sleep 600 # twice the default of SlurmdTimeout
  if [ "$status" -eq 0 ]; then status=1; fi
fi
exit "$status"
