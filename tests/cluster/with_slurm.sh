#!/usr/bin/env bash
# Run a command beside a real Slurm on emulated hosts: a node on each host, the controller on the launcher.
#
#   scripts/emulated_hosts.sh --ranks 1,1,1 tests/cluster/with_slurm.sh COMMAND...
#
# The daemons live in the cluster's namespaces, and configuration, keys and state in its private folder. So a Slurm that the
# machine itself has, its /etc/slurm and its munge are neither used nor touched, and nothing is left when COMMAND has ended.
# COMMAND finds in its environment
#
#   SLURM_CONF           the configuration, which all of Slurm's commands read
#   EMULATED_SLURM       this folder, with the logs of the daemons in log/
#
# The last GPU_NODES nodes (default 2) have two GPUs each, by name only. The machine needs tests/cluster/install_packages.sh.
set -euo pipefail

fail() {
  echo "with_slurm: $*" >&2
  exit 2
}

[ $# -gt 0 ] || fail "no command given"
[ -n "${EMULATED_HOSTS:-}" ] || fail "start it through scripts/emulated_hosts.sh"

export PATH=$PATH:/usr/sbin:/sbin # where daemons lie
readonly CPUS=8 # of a node, by name only: all nodes share the machine's
readonly START_LIMIT_S=60
mapfile -t hosts < <(cut -d: -f1 "$EMULATED_HOSTS/hydra_hosts")
gpu_nodes=${GPU_NODES:-2}
cpu_nodes=$((${#hosts[@]} - gpu_nodes))
[ "$cpu_nodes" -gt 0 ] || fail "${#hosts[@]} hosts are too few for $gpu_nodes nodes with GPUs and one without"

export EMULATED_SLURM=$EMULATED_HOSTS/slurm SLURM_CONF=$EMULATED_HOSTS/slurm/slurm.conf
mkdir -p "$EMULATED_SLURM"/{state,log,gpu,spool}
for number in 0 1; do mknod "$EMULATED_SLURM/gpu/fake$number" c 1 3; done

cat >"$SLURM_CONF" <<CONF
ClusterName=emulated
SlurmctldHost=launcher
SlurmUser=root
SlurmdUser=root
# A credential that expires soon lets a requeued job start after seconds instead of two minutes.
AuthInfo=socket=$EMULATED_SLURM/munge.socket,cred_expire=5
StateSaveLocation=$EMULATED_SLURM/state
SlurmdSpoolDir=$EMULATED_SLURM/spool/%n
SlurmctldPidFile=$EMULATED_SLURM/slurmctld.pid
SlurmdPidFile=$EMULATED_SLURM/slurmd.%n.pid
SlurmctldLogFile=$EMULATED_SLURM/log/slurmctld.log
SlurmdLogFile=$EMULATED_SLURM/log/slurmd.%n.log

# A job's processes are found by their parents, and nothing confines them: containers often have no cgroups to give away.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory

# Decisions within a second, where a cluster takes up to a minute.
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0
SlurmdTimeout=10
KillWait=5
ReturnToService=2

# A job in \`urgent\` takes the nodes of one in \`main\`, which is warned with SIGTERM and requeued.
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE

GresTypes=gpu
NodeName=host[1-$cpu_nodes] CPUs=$CPUS RealMemory=64000
$([ "$gpu_nodes" = 0 ] || echo "NodeName=host[$((cpu_nodes + 1))-${#hosts[@]}] CPUs=$CPUS RealMemory=64000 Gres=gpu:2 Weight=2")
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF
CONF
[ "$gpu_nodes" = 0 ] \
  || echo "NodeName=host[$((cpu_nodes + 1))-${#hosts[@]}] Name=gpu File=$EMULATED_SLURM/gpu/fake[0-1]" >"$EMULATED_SLURM/gres.conf"
echo "CgroupPlugin=cgroup/v1" >"$EMULATED_SLURM/cgroup.conf" # the default looks for systemd

# The MPI of a job is to learn from Slurm where its hosts are.
unset "${!HYDRA_@}" "${!PRTE_MCA_@}" "${!OMPI_MCA_@}"

(umask 077 && head -c 128 /dev/urandom >"$EMULATED_SLURM/munge.key")
munged --key-file="$EMULATED_SLURM/munge.key" --socket="$EMULATED_SLURM/munge.socket" --pid-file="$EMULATED_SLURM/munged.pid" \
  --log-file="$EMULATED_SLURM/log/munged.log" --seed-file="$EMULATED_SLURM/munged.seed"
slurmctld
for host in "${hosts[@]}"; do "$EMULATED_HOSTS/agent" "$host" slurmd -N "$host"; done

ready() { sinfo --noheader --Node --states=idle --partition=main 2>/dev/null | wc -l; }
until [ "$(ready)" = ${#hosts[@]} ]; do
  if [ "$SECONDS" -gt "$START_LIMIT_S" ]; then
    tail -n 20 "$EMULATED_SLURM"/log/* >&2
    fail "$(ready) of ${#hosts[@]} nodes are ready after $START_LIMIT_S s"
  fi
  sleep 0.1
done

# A first job, on all nodes: where it fails, so would every test, each after minutes and without a reason.
tried=$(sbatch --parsable --nodes=${#hosts[@]} --output="$EMULATED_SLURM/log/first_job.log" \
  --wrap "srun --ntasks-per-node=1 test -e tests/cluster/with_slurm.sh")
state=PENDING
until [[ $state != @(PENDING|CONFIGURING|RUNNING|COMPLETING) ]]; do
  if [ "$SECONDS" -gt "$START_LIMIT_S" ]; then break; fi
  sleep 0.1
  state=$(scontrol --oneliner show job "$tried" | grep -o 'JobState=[A-Z_]*' | cut -d= -f2)
done
if [ "$state" != COMPLETED ]; then
  scontrol show job "$tried" >&2
  tail -n 20 "$EMULATED_SLURM"/log/* >&2
  fail "a first job in $PWD is $state; above is what Slurm says. All nodes must see this folder: /dev/shm is each node's own"
fi
echo "Slurm is up: ${#hosts[@]} nodes after $SECONDS s"

"$@"
