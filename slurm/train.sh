#!/usr/bin/env bash
# Train on the nodes of a Slurm job: one oracle, then the servers, then the trainers, one rank each.
#
#   sbatch [sbatch options] slurm/train.sh CONFIG.toml [section.field=value ...]
#
# sbatch options replace the lines below; --ntasks is the number of ranks of all roles.
#SBATCH --job-name=bagpipe-train
#SBATCH --ntasks=5                    # the smallest job with rows on two servers and gradients on two trainers
#SBATCH --cpus-per-task=2             # a trainer computes on one core while its mover thread moves rows on another
#SBATCH --mem-per-cpu=4G              # Criteo Kaggle at D = 48 needs 3.3 GB a server, as much for a trainer's cache
#SBATCH --time=24:00:00               # an end that the scheduler knows lets smaller jobs pass before this one
#SBATCH --output=%x-%j.log            # one log for all ranks, named by job: a second run does not overwrite it
#SBATCH --open-mode=append            # a requeued job goes on in the same log
set -euo pipefail

if [ $# -lt 1 ]; then
  echo "usage: sbatch slurm/train.sh CONFIG.toml [section.field=value ...]" >&2
  exit 2
fi
# Slurm runs a copy of this script from its own folder, so the checkout is where sbatch was called.
cd "${SLURM_SUBMIT_DIR:?start this script with sbatch, in the root of the checkout}"
# shellcheck source=slurm/site.env
source "${SITE_ENV:-slurm/site.env}"
# shellcheck source=scripts/rank_environment.sh
source scripts/rank_environment.sh

if [ ${#MODULES[@]} -gt 0 ]; then module load "${MODULES[@]}"; fi
if [ ${#SITE_VARIABLES[@]} -gt 0 ]; then export "${SITE_VARIABLES[@]}"; fi
export PATH="$PWD/$VENV/bin:$PATH"

# srun does not hand on sbatch's --cpus-per-task by itself.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
echo "job $SLURM_JOB_ID: $SLURM_NTASKS ranks on $SLURM_JOB_NODELIST"
# A run whose network is cut can hang in the launcher, deaf to signals; Slurm's own limit ends it at --time.
exec "${LAUNCHER[@]}" -n "$SLURM_NTASKS" bagpipe train "$@"
