#!/usr/bin/env bash
# Train on the nodes of a Slurm job: one oracle, then the servers, then the trainers, one rank each.
#
#   sbatch [sbatch options] slurm/train.sh CONFIG.toml [section.field=value ...]
#
# sbatch options replace the lines below; --ntasks is the number of ranks of all roles. A job whose time runs out, or that
# is preempted, writes a checkpoint, requeues itself and goes on from there; so does one whose node has died, from the
# last checkpoint that was due (train.checkpoint_every_steps).
#SBATCH --job-name=bagpipe-train
#SBATCH --ntasks=5                    # the smallest job with rows on two servers and gradients on two trainers
#SBATCH --cpus-per-task=2             # a trainer computes on one core while its mover thread moves rows on another
#SBATCH --mem-per-cpu=4G              # Criteo Kaggle at D = 48 needs 3.3 GB a server, as much for a trainer's cache
#SBATCH --time=24:00:00               # an end that the scheduler knows lets smaller jobs pass before this one
#SBATCH --signal=B:USR1@300           # so many seconds before the end: more than train.checkpoint_every_steps take
#SBATCH --requeue                     # after a node's death or a preemption the job comes again
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
settings=("$@")
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [[ " $* " != *" train.resume="* ]]; then settings+=(train.resume=auto); fi
echo "job $SLURM_JOB_ID, start $((${SLURM_RESTART_COUNT:-0} + 1)): $SLURM_NTASKS ranks on $SLURM_JOB_NODELIST"

# The warning before the end, and preemption. A run that has not begun to train has nothing to save.
stop_asked=false
# shellcheck disable=SC2317,SC2329 # called by the trap
ask_to_stop() {
  if $stop_asked; then return; fi
  stop_asked=true
  echo "job $SLURM_JOB_ID: the end is near, stopping with a checkpoint"
  bagpipe stop "${settings[@]}" || kill "$!" # set before launcher_pid is
}
trap ask_to_stop USR1 TERM

# A run whose network is cut can hang in the launcher, deaf to signals; Slurm's own limit ends it at --time.
"${LAUNCHER[@]}" -n "$SLURM_NTASKS" bagpipe train "${settings[@]}" &
launcher_pid=$!
status=0
while true; do
  wait "$launcher_pid" && status=0 || status=$?
  kill -0 "$launcher_pid" 2>/dev/null || break # a signal ends `wait` as well
done

if $stop_asked; then
  echo "job $SLURM_JOB_ID: requeued"
  # The number of an array's last task is that of the whole array as well; NUMBER_TASK names the task alone.
  scontrol requeue "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
fi
exit "$status"
