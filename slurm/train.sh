#!/usr/bin/env bash
# Train on the nodes of a Slurm job: a rank each for the oracle, the servers and the trainers, which go where GPUs are.
#
#   sbatch [sbatch options] slurm/train.sh CONFIG.toml [section.field=value ...]
#   sbatch [options of CPU nodes] : [options of GPU nodes] slurm/train.sh CONFIG.toml [section.field=value ...]
#
# sbatch options replace the lines below, which in the second form, a heterogeneous job, are those of the first component
# alone; --ntasks is the number of ranks; all components together have the ranks of all roles. A job whose time runs out, or
# that is preempted, writes a checkpoint, requeues itself and goes on from there. A job whose node has died is requeued, too,
# and goes on from the last checkpoint that was due (train.checkpoint_every_steps).
#SBATCH --job-name=bagpipe-train
#SBATCH --ntasks=5                    # the smallest job with rows on two servers and gradients on two trainers
#SBATCH --cpus-per-task=2             # a trainer computes on one core while its mover thread moves rows on another
#SBATCH --mem-per-cpu=4G              # Criteo Kaggle at D = 48 needs 3.3 GB a server, as much for a trainer's cache
#SBATCH --time=24:00:00               # a known end lets the scheduler backfill smaller jobs before this one
#SBATCH --signal=B:USR1@300           # so many seconds before the end: more than train.checkpoint_every_steps take
#SBATCH --requeue                     # after a node's death or a preemption the job starts again
#SBATCH --output=%x-%j.log            # one log for all ranks, named by job: a second run does not overwrite it
#SBATCH --open-mode=append            # a requeued job goes on in the same log
set -euo pipefail

# A log that cannot be written, as on a full disk, must not end this script, and with it the ranks.
say() { echo "job $SLURM_JOB_ID$*" || true; }

# The warning that the time runs out. It is caught from here on: it must not end this script before the launcher runs. No
# `return` in the function: in a trap it would hand on the status of whatever the signal interrupted.
stop_asked=${stop_asked:-false} # slurm/sweep.sh may have caught it already
run_told=false
stop_run() {
  stop_asked=true
  if [ -n "${launcher_pid:-}" ] && ! ${is_telling:-false}; then # once, and when there is somebody to tell
    is_telling=true
    say ": the end is near, stopping with a checkpoint"
    local why told_why=''
    while ! $run_told && kill -0 "$launcher_pid" 2>/dev/null; do
      if why=$(bagpipe stop "${settings[@]}" 2>&1 >/dev/null); then # what it prints may find no room, either
        run_told=true
      else
        if [ "$why" != "$told_why" ]; then say ": waiting until the run can be told: $why"; fi
        told_why=$why
        sleep 2
      fi
    done
  fi
}
trap stop_run USR1
# SIGTERM comes with scancel, and when the time is up: the ranks get it as well, and this script waits for them.
trap : TERM

if [ $# -lt 1 ]; then
  echo "usage: sbatch slurm/train.sh CONFIG.toml [section.field=value ...]" >&2
  exit 2
fi
if [[ $1 == --*=* || $1 == -[!-]* ]]; then
  echo "slurm/train.sh: $1: options of sbatch come before the script: sbatch $1 slurm/train.sh CONFIG.toml; of a file, ./$1" >&2
  exit 2
fi
# Slurm runs a copy of this script from its own folder: the checkout is where sbatch was called, or what BAGPIPE_HOME names.
cd "${SLURM_SUBMIT_DIR:?start this script with sbatch}"
home=${BAGPIPE_HOME:-$PWD}
if ! [ -e "$home/slurm/site_environment.sh" ]; then
  echo "slurm/train.sh: $home is no checkout: call sbatch in the root of one, or set BAGPIPE_HOME to it" >&2
  exit 2
fi
# shellcheck source=slurm/site_environment.sh
source "$home/slurm/site_environment.sh"
# shellcheck source=scripts/rank_environment.sh
source "$home/scripts/rank_environment.sh"

ranks() { if [ "$1" = 1 ]; then echo "1 rank"; else echo "$1 ranks"; fi; }

settings=("$@")
training=(bagpipe train "${settings[@]}")
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then training+=(--requeued); fi

# On every node, beside what runs there. The job's number of ranks must not apply here: srun would warn of it.
look=(env -u SLURM_NTASKS -u SLURM_NPROCS srun --overlap --mem=0 --mpi=none --cpus-per-task=1 --ntasks-per-node=1)
if [ -z "${SLURM_HET_SIZE:-}" ]; then
  launch=("${LAUNCHER[@]}" -n "$SLURM_NTASKS" "${training[@]}")
  placed="$(ranks "$SLURM_NTASKS") on $SLURM_JOB_NODELIST"
  # srun does not take sbatch's --cpus-per-task by itself.
  export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
else
  # Only srun joins the components into one world, whose ranks are in the order of the components.
  if [ "${LAUNCHER[0]}" != srun ]; then
    echo "slurm/train.sh: a heterogeneous job needs srun as LAUNCHER in ${SITE_ENV:-slurm/site.env}, not ${LAUNCHER[0]}" >&2
    exit 2
  fi
  launch=(srun) placed=''
  look+=(--het-group="0-$((SLURM_HET_SIZE - 1))")
  for ((group = 0; group < SLURM_HET_SIZE; group++)); do
    tasks=SLURM_NTASKS_HET_GROUP_$group cpus=SLURM_CPUS_PER_TASK_HET_GROUP_$group nodes=SLURM_JOB_NODELIST_HET_GROUP_$group
    if [ -z "${!tasks:-}" ]; then
      echo "slurm/train.sh: component $group of the job does not say how many ranks it has; give --ntasks for each component" >&2
      exit 2
    fi
    if [ "$group" -gt 0 ]; then launch+=(:) placed+=", "; fi
    launch+=("${LAUNCHER[@]:1}" --het-group="$group" -n "${!tasks}" -c "${!cpus:-1}" "${training[@]}")
    placed+="$(ranks "${!tasks}") on ${!nodes}"
  done
fi
say ", start $((${SLURM_RESTART_COUNT:-0} + 1)): $placed"

# A run whose network is cut can hang in the launcher, deaf to signals; Slurm's own limit ends it at --time.
"${launch[@]}" &
launcher_pid=$!
if $stop_asked; then stop_run; fi
while kill -0 "$launcher_pid" 2>/dev/null; do wait "$launcher_pid" || true; done # a signal ends `wait` as well
status=0
wait "$launcher_pid" || status=$? # its own: the shell keeps it

trap : USR1 # nobody is left to tell

# The controller may be too busy to answer, or be starting again.
ask_slurm() {
  local tries=1
  until scontrol "$@"; do
    if [ "$tries" -eq 5 ]; then return 1; fi
    tries=$((tries + 1))
    sleep 15
  done
}

# Asked for the number of an array's last task, Slurm tells of the whole array as well; NUMBER_TASK names the task alone.
# The environment is no evidence: sbatch within a job passes on that job's SLURM_ARRAY_JOB_ID.
own=$SLURM_JOB_ID
job=$(ask_slurm --oneliner show job "$own" | grep "^JobId=$own ") || job=''
if [[ $job =~ ^JobId=[0-9]+\ ArrayJobId=([0-9]+)\ ArrayTaskId=([0-9]+)\  ]]; then own=${BASH_REMATCH[1]}_${BASH_REMATCH[2]}; fi
is_running=false # a job that was cancelled or whose time is up is not, and stays away
if [[ $job == *\ JobState=RUNNING\ * ]]; then is_running=true; fi

# A node's death can end the ranks at once. Slurm notices later and requeues the job, unless the job has ended. No status of
# Open MPI's mpirun says that all is well: after it has lost a node it is 0.
is_doubtful=false is_lost=false
if [ "$status" -ne 0 ] || [ "${LAUNCHER[0]}" != srun ]; then is_doubtful=true; fi
if $is_doubtful && $is_running && ! "${look[@]}" true; then is_lost=true; fi
if $is_lost && ! $run_told; then
  say ": a node does not answer, waiting for Slurm to requeue the job"
  sleep 600 # twice the default of SlurmdTimeout
  if [ "$status" -eq 0 ]; then status=1; fi # still here: the run has not come to its end, and Slurm does not know
fi

# A run that was told to stop ends with 0, even if it has just come to its end: its next start finds nothing to do.
# Preemption comes as SIGTERM to the ranks alone: the oracle has stopped the run, and only Slurm knows why.
comes_again=false is_left=''
if $run_told && { [ "$status" -eq 0 ] || $is_lost; }; then comes_again=true; fi
if [[ $job == *\ PreemptTime=[0-9]* ]]; then comes_again=true; fi
if [ -z "$job" ] && $comes_again; then is_left="Slurm does not answer"; fi
if [[ $job == *\ Requeue=0\ * ]] && $comes_again; then is_left="it may not be requeued (Requeue=0)"; fi
if [ -n "$is_left" ]; then
  say ": $is_left; submit it again with train.resume=auto"
  if [ "$status" -eq 0 ]; then status=1; fi # as above
elif $comes_again && $is_running; then
  say ": asking Slurm to requeue it"
  if ! ask_slurm requeue "$own"; then
    say ": Slurm did not requeue it; submit it again with train.resume=auto"
    if [ "$status" -eq 0 ]; then status=1; fi # as above
  fi
fi
exit "$status"
