# shellcheck shell=bash
# The environment of every rank; sourced by run_ranks.sh and by slurm/train.sh. A variable that is already set is kept.

# A Horovod reduction waits for the next cycle: 0.1 ms instead of 1 ms takes the floor of a reduction from 1.1 to 0.2 ms.
export HOROVOD_CYCLE_TIME=${HOROVOD_CYCLE_TIME:-0.1}

# Trainers exchange rows by MPI_Ialltoallv. MPICH starts 32 of its messages at a time, then more once these are there.
export MPIR_CVAR_ALLTOALL_THROTTLE=${MPIR_CVAR_ALLTOALL_THROTTLE:-0} # all at once

# Ranks share a node's cores; train.threads says how many a trainer uses.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
