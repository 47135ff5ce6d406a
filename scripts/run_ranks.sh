#!/usr/bin/env bash
# Run a command on N MPI ranks of this machine, with the environment that the ranks need and a time limit.
#
#   run_ranks.sh N COMMAND...
#
# Environment:
#   MPIRUN              the launcher, options included (default: the mpirun on PATH)
#   RANKS_TIMEOUT_S     seconds until the ranks are ended (default 86400); the exit status is then 124 or 137
#   RANKS_KILL_AFTER_S  seconds from there until they are killed (default 20)
#
# Ctrl-C ends the ranks; the exit status is then 130.
set -euo pipefail
# A daemon may have closed stdout or stderr, and MPICH's launcher then fails, silently if stderr is closed.
[ -e /dev/fd/1 ] || exec >/dev/null
[ -e /dev/fd/2 ] || exec 2>/dev/null
# shellcheck source=scripts/rank_environment.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/rank_environment.sh"

if [ $# -lt 2 ]; then
  echo "usage: run_ranks.sh N COMMAND..." >&2
  exit 2
fi
ranks=$1
shift
if [[ ! $ranks =~ ^[1-9][0-9]{0,5}$ ]]; then # launchers take anything else for 1 rank, or for the command
  printf 'run_ranks: %q: is no number of ranks; write run_ranks.sh N COMMAND..., N from 1 to 999999\n' "$ranks" >&2
  exit 2
fi
counted="$ranks ranks"
if [ "$ranks" -eq 1 ]; then counted="1 rank"; fi
read -ra launcher <<<"${MPIRUN:-mpirun}"
if ! command -v "${launcher[0]}" >/dev/null; then
  echo "run_ranks: no ${launcher[0]} on PATH; activate the environment that 'make setup' made: source .venv/bin/activate" >&2
  exit 127
fi

# Only Open MPI reads these; MPICH needs none of them.
if [ "$(id -u)" = 0 ]; then
  # Containers run as root, which mpirun refuses unless told twice.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# More ranks than cores, none of them bound to one core: a trainer has several threads, and waiting ranks yield.
export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
export PRTE_MCA_hwloc_default_binding_policy=${PRTE_MCA_hwloc_default_binding_policy:-none}
export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1} # Open MPI 4
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
# On one machine UCX only reports, as an error, that it has no network to use.
export OMPI_MCA_osc=${OMPI_MCA_osc:-^ucx}

# Ranks write into a pipe to the launcher: only this script knows whether it ends on a terminal, and how wide that is.
unset BAGPIPE_TERMINAL_COLUMNS BAGPIPE_STDOUT_TERMINAL
if [ -t 1 ]; then export BAGPIPE_STDOUT_TERMINAL=1; fi
if [ -t 2 ] && [ "${TERM:-}" != dumb ]; then # a dumb one would show the codes that draw progress
  read -r _ columns < <(stty size <&2 2>/dev/null) || columns=0
  if [ "${columns:-0}" -eq 0 ]; then columns=80; fi # a terminal that does not know its width
  export BAGPIPE_TERMINAL_COLUMNS=$columns
fi

# `timeout` ends the whole process group, and a little later kills it: a launcher whose ranks hang may ignore SIGTERM.
# The group is not the terminal's, so an interrupt has to be handed on.
timeout -k "${RANKS_KILL_AFTER_S:-20}" "${RANKS_TIMEOUT_S:-86400}" "${launcher[@]}" -n "$ranks" "$@" </dev/null &
job=$!
signal=''
# shellcheck disable=SC2329 # the traps below call it
end_ranks() { # $1 is the signal, $2 says it
  if [ -n "$signal" ]; then return; fi # they are ending already
  signal=$1
  kill -TERM "$job" 2>/dev/null || true # before anything is said: whoever read it may be gone
  trap '' PIPE
  printf '\nrun_ranks: %s: ending %s\n' "$2" "$counted" >&2 || true
  if [[ " $command " == *" train "* ]]; then
    echo "run_ranks: complete checkpoints are kept; the same command with train.resume=auto goes on from the newest." \
      "'bagpipe stop' instead ends a run with a checkpoint" >&2 || true
  fi
}
command=$*
trap 'end_ranks INT interrupted' INT
trap 'end_ranks TERM terminated' TERM
trap 'end_ranks HUP "the terminal is gone"' HUP
status=0
wait "$job" || status=$?
while kill -0 "$job" 2>/dev/null; do # a signal ended the wait; the ranks are ending now
  wait "$job" || true
done
trap '' PIPE # it ends with the status of the ranks, whoever hears of it
if [ -n "$signal" ]; then exit $((128 + $(kill -l "$signal"))); fi
if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
  echo "run_ranks: $counted ended with status $status; the limit is ${RANKS_TIMEOUT_S:-86400} s (RANKS_TIMEOUT_S)" >&2 || true
fi
if [ "$status" -eq 141 ]; then # SIGPIPE
  echo "run_ranks: standard output was closed, as by 'head': the launcher ended, and with it $counted; use a file" >&2 || true
fi
exit "$status"
