#!/usr/bin/env bash
# Install what the tests in this folder need, where it is missing: the tools of emulated hosts, and Slurm with munge. On Debian
# and Ubuntu, as root.
set -euo pipefail

fail() {
  echo "install_packages: $*" >&2
  exit 1
}

PATH=$PATH:/usr/sbin:/sbin # where daemons lie
missing=()
for tool in munged:munge slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client ip:iproute2 unshare:util-linux \
  iptables:iptables; do
  command -v "${tool%:*}" >/dev/null || missing+=("${tool#*:}")
done
[ -e /usr/include/libnetfilter_queue/libnetfilter_queue.h ] || missing+=(libnetfilter-queue-dev)
# What srun --mpi=pmix loads, the PMI of Open MPI; the name without a version is in the package for developers alone.
compgen -G '/usr/lib/*/pmix2/lib/libpmix.so' >/dev/null || missing+=(libpmix-dev)
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

command -v apt-get >/dev/null || fail "missing: ${missing[*]}, as Debian names its packages; install them by hand"
[ "$(id -u)" = 0 ] || fail "missing: ${missing[*]}; installing them needs root: apt install ${missing[*]}"
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -o DPkg::Lock::Timeout=600 update
apt-get -qq -o DPkg::Lock::Timeout=600 install --no-install-recommends "${missing[@]}" >/dev/null
