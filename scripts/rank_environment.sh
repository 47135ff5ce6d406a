# shellcheck shell=bash
# What every rank wants in its environment; sourced by run_ranks.sh and by slurm/train.sh. A variable that is set stays.

# A Horovod reduction waits for the next cycle: 0.1 ms instead of 1 ms takes the floor of a reduction from 1.1 to 0.2 ms.
export HOROVOD_CYCLE_TIME=${HOROVOD_CYCLE_TIME:-0.1}

# Trainers exchange rows by MPI_Ialltoallv, whose messages MPICH starts 32 at a time, the next when all of these are there.
export MPIR_CVAR_ALLTOALL_THROTTLE=${MPIR_CVAR_ALLTOALL_THROTTLE:-0} # all at once

# Ranks share a node's cores; train.threads says how many a trainer uses.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
