#!/usr/bin/env bash
# Run a command on a cluster of emulated hosts: one machine, but each host has its own network, host name, processes,
# /dev/shm and /tmp, and is joined to the others by links of a set bandwidth and latency. An mpirun inside COMMAND puts its
# ranks on the hosts. Needs root.
#
#   emulated_hosts.sh --ranks 3,1,1 [--bandwidth 1gbit] [--latency 500us] [--share DIR]... COMMAND...
#
#   --ranks N,N...     ranks on each host, in rank order: 3,1,1 is ranks 0-2 on host1, 3 on host2, 4 on host3
#   --bandwidth RATE   of each host's link, each way, as tc writes rates (1gbit, 100mbit; default: no limit)
#   --latency TIME     from host to host, one way, in us or ms (default: none)
#   --share DIR        a folder below /tmp that all hosts see; the current folder always is one
#
# Everything lives in namespaces below one process: nothing is left when it ends, however it ends, and several clusters
# can be up at a time. docs/emulated-hosts.md says how it works and what it does not emulate.
set -euo pipefail
cd -P . # hosts see this folder by its real path: a link below /tmp is not theirs

readonly SUBNET=198.18.0  # set aside for benchmarks (RFC 2544); these namespaces alone use it
readonly LAUNCHER_NUMBER=254
readonly QUEUE_BYTES=4194304

usage() {
  sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

fail() {
  echo "emulated_hosts: $*" >&2
  exit 2
}

# --- Arguments ---

# Microseconds of "500us" or "0.5ms".
in_us() {
  case $1 in
    *us) awk -v n="${1%us}" 'BEGIN { print n + 0 }' ;;
    *ms) awk -v n="${1%ms}" 'BEGIN { print n * 1000 }' ;;
  esac
}

# Bytes that a link may send at once: a whole GSO packet, or 25 us of its rate where that is more.
burst_bytes() {
  awk -v rate="$1" 'BEGIN {
    unit = rate; sub(/^[0-9.]+/, "", unit)
    bits = rate * (unit == "gbit" ? 1e9 : unit == "mbit" ? 1e6 : unit == "kbit" ? 1e3 : 1)
    bytes = int(bits / 8 * 25e-6); print (bytes > 80000 ? bytes : 80000) }'
}

read_arguments() {
  ranks='' bandwidth='' latency='' shared=("$PWD")
  while [[ ${1:-} == --* ]]; do
    case $1 in
      --help) usage; exit 0 ;;
      --) shift; break ;;
      --ranks | --bandwidth | --latency | --share) [ $# -ge 2 ] || fail "$1 needs a value" ;;
      *) fail "unknown option $1 (--help lists them)" ;;
    esac
    case $1 in
      --ranks) ranks=$2 ;;
      --bandwidth) bandwidth=$2 ;;
      --latency) latency=$2 ;;
      --share) shared+=("$(realpath -e "$2")") || fail "--share $2: no such folder" ;;
    esac
    shift 2
  done
  [[ $ranks =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || fail "--ranks '$ranks': give the ranks of each host, such as 3,2"
  IFS=, read -ra host_ranks <<<"$ranks"
  [ ${#host_ranks[@]} -lt "$LAUNCHER_NUMBER" ] || fail "--ranks '$ranks': at most $((LAUNCHER_NUMBER - 1)) hosts"
  [[ -z $bandwidth || $bandwidth =~ ^[0-9.]+[kmg]?bit$ ]] || fail "--bandwidth '$bandwidth': use a rate such as 10gbit or 100mbit"
  [[ -z $latency || $latency =~ ^[0-9.]+[um]s$ ]] || fail "--latency '$latency': use a time such as 500us or 0.5ms"
  [ $# -gt 0 ] || fail "no command given (--help shows the usage)"
  command=("$@")
}

check_machine() {
  local tools='' tool
  [ "$(id -u)" = 0 ] || fail "making network namespaces needs root"
  for tool in ip:iproute2 tc:iproute2 unshare:util-linux nsenter:util-linux setpriv:util-linux; do
    command -v "${tool%:*}" >/dev/null || tools+=" ${tool#*:}"
  done
  if [ -n "$latency" ]; then
    for tool in iptables:iptables gcc:gcc; do command -v "${tool%:*}" >/dev/null || tools+=" ${tool#*:}"; done
    echo '#include <libnetfilter_queue/libnetfilter_queue.h>' | gcc -E - >/dev/null 2>&1 || tools+=" libnetfilter-queue-dev"
  fi
  [ -z "$tools" ] || fail "missing:$tools (Debian, Ubuntu: apt install$tools)"
  unshare --net --mount --pid --uts --ipc --fork true 2>/dev/null \
    || fail "this machine does not let root make namespaces (a container without CAP_SYS_ADMIN?)"
}

# --- Outside: start the cluster's first process, and see to its end ---

start_cluster() {
  state=$(mktemp -d "${TMPDIR:-/tmp}/emulated_hosts.XXXXXX")
  # When the first process of the cluster dies, the kernel ends all others in it and takes its networks down. It dies
  # with `unshare` (--kill-child), which dies with this script (--pdeathsig), or is killed by it.
  setpriv --pdeathsig KILL unshare --net --mount --pid --uts --ipc --fork --kill-child --mount-proc \
    "$BASH" "${BASH_SOURCE[0]}" --inside "$state" "$@" &
  cluster=$!
  trap 'kill -KILL "$cluster" 2>/dev/null || true; wait "$cluster" 2>/dev/null || true; rmdir "$state"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  local status=0
  wait "$cluster" || status=$?
  exit "$status"
}

# --- Inside: the cluster's first process, which is also the host of the launcher and the router of all packets ---

run_cluster() {
  mount --make-rprivate /
  mount -t tmpfs -o size=16m state "$state"
  hostname launcher
  ip link set lo up
  ip link add eth0 type bridge # any device will do that is not the loopback one, which MPI's launchers ignore
  ip addr add "$SUBNET.$LAUNCHER_NUMBER/24" dev eth0
  ip link set eth0 up
  echo 1 >/proc/sys/net/ipv4/ip_forward
  printf '%s\n' "127.0.0.1 localhost" "$SUBNET.$LAUNCHER_NUMBER launcher" >"$state/hosts"
  local number
  for number in "${!host_ranks[@]}"; do echo "$SUBNET.$((number + 1)) host$((number + 1))" >>"$state/hosts"; done
  mount --bind "$state/hosts" /etc/hosts
  for number in "${!host_ranks[@]}"; do start_host "host$((number + 1))"; done
  for number in "${!host_ranks[@]}"; do wire_host "host$((number + 1))" "$SUBNET.$((number + 1))"; done
  if [ -n "$latency" ]; then delay_packets; fi
  place_ranks
  "${command[@]}" </dev/null & # a signal must not have to wait for the command
  wait $!
}

# Namespaces of its own, kept by a process that does nothing.
start_host() {
  unshare --net --mount --pid --uts --ipc --fork --kill-child sleep infinity &
  local children=/proc/$!/task/$!/children
  local pid=''
  until [ -n "$pid" ]; do pid=$(tr -d ' ' <"$children"); done
  echo "$pid" >"$state/$1.pid"
  local folders=() folder
  for folder in "$state" "${shared[@]}"; do # the state: Open MPI's daemons want to see the host file
    [[ $folder != /tmp/* ]] || folders+=("$folder")
  done
  # shellcheck disable=SC2016 # expanded by the host's shell
  on_host "$1" sh -euc '
    hostname "$1"; scratch=$2; shift 2
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys # UCX looks for network devices there
    mount -t tmpfs shm /dev/shm
    mkdir "$scratch"
    mount -t tmpfs -o mode=1777 tmp "$scratch"
    for folder; do mkdir -p "$scratch/${folder#/tmp/}"; mount --bind "$folder" "$scratch/${folder#/tmp/}"; done
    mount --move "$scratch" /tmp
    # BBR, the default of some machines, stops for 200 ms now and then to probe. Not every machine allows cubic here.
    for control in cubic reno; do
      if echo "$control" 2>/dev/null >/proc/sys/net/ipv4/tcp_congestion_control; then break; fi
    done
    ip link set lo up' sh "$1" "$state/$1" "${folders[@]}"
}

on_host() {
  local pid
  pid=$(cat "$state/$1.pid")
  shift
  nsenter --target "$pid" --net --mount --pid --uts --ipc -- "$@"
}

# A cable to the router. The router answers for all others (proxy ARP), so that the hosts see one subnet.
wire_host() {
  ip link add "$1" type veth peer name eth0 netns "$(cat "$state/$1.pid")"
  ip link set "$1" up
  ip route add "$2/32" dev "$1"
  echo 1 >"/proc/sys/net/ipv4/conf/$1/proxy_arp"
  echo 0 >"/proc/sys/net/ipv4/neigh/$1/proxy_delay" # answer at once
  on_host "$1" ip addr add "$2/24" dev eth0
  on_host "$1" ip link set eth0 up
  until on_host "$1" grep -q up /sys/class/net/eth0/operstate; do sleep 0.01; done # the kernel takes its time
  if [ -n "$bandwidth" ]; then
    local limit=(root tbf rate "$bandwidth" burst "$(burst_bytes "$bandwidth")" limit "$QUEUE_BYTES")
    on_host "$1" tc qdisc add dev eth0 "${limit[@]}"
    tc qdisc add dev "$1" "${limit[@]}"
  fi
}

delay_packets() {
  gcc -O2 -o "$state/packet_delay" "$(dirname "${BASH_SOURCE[0]}")/packet_delay.c" -lnetfilter_queue -lnfnetlink
  iptables -A FORWARD -j NFQUEUE --queue-num 0 # from host to host; the launcher is not delayed
  "$state/packet_delay" "$(in_us "$latency")" >"$state/delay.log" &
  until grep -qs ready "$state/delay.log"; do
    kill -0 $! 2>/dev/null || fail "the packet delayer did not start"
    sleep 0.01
  done
}

# Tell MPI's launchers, through their environment, where the hosts are and how to start a process there.
place_ranks() {
  cat >"$state/agent" <<AGENT
#!/bin/sh
# In the place of ssh: agent [options] HOST COMMAND...
while [ "\${1#-}" != "\$1" ]; do shift; done
name=\$(awk -v host="\$1" '\$1 == host { print \$2 }' "$state/hosts")
pid=\$(cat "$state/\${name:-\$1}.pid") || exit 1
shift
exec nsenter --target "\$pid" --net --mount --pid --uts --ipc --wd="\$PWD" -- /bin/sh -c "\$*"
AGENT
  chmod +x "$state/agent"
  local number
  for number in "${!host_ranks[@]}"; do
    echo "host$((number + 1)):${host_ranks[number]}" >>"$state/hydra_hosts"
    echo "host$((number + 1)) slots=${host_ranks[number]}" >>"$state/prte_hosts"
  done
  export EMULATED_HOSTS=$state # the agent, the list of hosts, and the number of each host's first process
  # MPICH (Hydra)
  export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$state/agent HYDRA_HOST_FILE=$state/hydra_hosts
  # Open MPI 5 (PRRTE); `slot` fills one host after the other
  export PRTE_MCA_rmaps_default_mapping_policy=slot
  export PRTE_MCA_plm=ssh PRTE_MCA_plm_ssh_agent=$state/agent PRTE_MCA_prte_default_hostfile=$state/prte_hosts
  export PRTE_MCA_ras=^slurm PRTE_MCA_prte_if_include=eth0 OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_pml=ob1
}

if [ "${1:-}" = --inside ]; then
  state=$2
  shift 2
  read_arguments "$@"
  run_cluster
else
  read_arguments "$@"
  check_machine
  start_cluster "$@"
fi
