#!/usr/bin/env bash
# A cluster on this machine for the time of a test: four nodes, each in a network of its own with a host
# name of its own, n1 to n4, and a fifth one, login. Needs root and iproute2. Of slurm a control daemon
# runs on login and a daemon on each node (slurm-wlm, munge); of sshd one on each node, at port 2222, which
# takes the key DIR/ssh/id_rsa (openssh-server).
#   cluster.sh start DIR slurm|sshd     returns when all four nodes can be used
#   cluster.sh on DIR NODE COMMAND...   runs a command there; NODE: n1 to n4, or login
#   cluster.sh pids DIR NODE            the processes there
#   cluster.sh stop DIR
set -euo pipefail

action=$1
dir=$2
# Names of networks are the machine's: several tests may run at once.
prefix=atoll-$(basename "$dir" | tr -cd 'A-Za-z0-9' | tail -c 8)
nodes=(n1 n2 n3 n4)

address_of() { # <node>
  if [[ $1 == login ]]; then echo 10.98.0.10; else echo "10.98.0.${1#n}"; fi
}

on_node() { # <node> <command...>
  local node=$1
  shift
  # `ip netns exec` would hide /sys/fs/cgroup, which slurmd looks at.
  SLURM_CONF=$dir/slurm.conf exec nsenter --net="/run/netns/$prefix-$node" unshare --mount --uts bash -c '
    hostname "$1"
    mount --bind "$2/hosts" /etc/hosts
    shift 2
    exec "$@"' - "$node" "$dir" "$@"
}

make_networks() {
  ip netns add "$prefix-switch"
  ip -n "$prefix-switch" link add switch type bridge
  ip -n "$prefix-switch" link set switch up
  local node
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$dir/hosts"
  for node in login "${nodes[@]}"; do
    ip netns add "$prefix-$node"
    ip -n "$prefix-$node" link set lo up
    ip -n "$prefix-$node" link add net type veth peer name "to-$node" netns "$prefix-switch"
    ip -n "$prefix-switch" link set "to-$node" master switch up
    ip -n "$prefix-$node" addr add "$(address_of "$node")/24" dev net
    ip -n "$prefix-$node" link set net up
    echo "$(address_of "$node") $node" >>"$dir/hosts"
  done
}

write_settings() {
  mkdir -p "$dir/state"
  cat >"$dir/slurm.conf" <<END
ClusterName=atoll
SlurmctldHost=login(10.98.0.10)
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=${SLURM_KILL_WAIT:-30}
MinJobAge=600
InactiveLimit=0
SlurmdTimeout=20
NodeName=n[1-4] NodeAddr=10.98.0.[1-4] CPUs=2 RealMemory=512 State=UNKNOWN
PartitionName=low Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=10
END
}

start_slurm() {
  write_settings
  dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
  chmod 600 "$dir/munge.key"
  munged --force --socket="$dir/munge.socket" --key-file="$dir/munge.key" \
    --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" --seed-file="$dir/munged.seed"
  (on_node login slurmctld -D) >"$dir/slurmctld.out" 2>&1 </dev/null &
  echo $! >>"$dir/pids"
  local node
  for node in "${nodes[@]}"; do
    mkdir -p "$dir/spool.$node" "$dir/tmp.$node"
    (on_node "$node" slurmd -D -N "$node") >"$dir/slurmd.$node.out" 2>&1 </dev/null &
    echo $! >>"$dir/pids"
  done
}

# As the operators of Kubernetes do: a key for all, and sshd at a port that needs no root.
start_sshd() {
  mkdir -p "$dir/ssh" /run/sshd
  chmod 700 "$dir/ssh"
  ssh-keygen -q -t rsa -N '' -f "$dir/ssh/id_rsa"
  cat >"$dir/sshd_config" <<END
Port 2222
HostKey $dir/ssh/id_rsa
PidFile none
AuthorizedKeysFile $dir/ssh/id_rsa.pub
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
END
  local node
  for node in "${nodes[@]}"; do
    (on_node "$node" /usr/sbin/sshd -De -f "$dir/sshd_config") >"$dir/sshd.$node.out" 2>&1 </dev/null &
  done
}

are_up() { # <kind>
  local node
  if [[ $1 == slurm ]]; then
    [[ $(on_login_quietly sinfo -h -p low -t idle -o %D) == 4 ]]
    return
  fi
  for node in "${nodes[@]}"; do
    on_login_quietly bash -c "</dev/tcp/$node/2222 && echo open" | grep -q open || return 1
  done
}

start() { # <kind>
  mkdir -p "$dir"
  make_networks
  "start_$1"
  local tries
  for tries in {1..300}; do
    if are_up "$1"; then return; fi
    sleep 0.2
  done
  echo "the nodes are not up after $((tries / 5)) s:" >&2
  tail -n 5 "$dir"/*.out >&2
  return 1
}

on_login_quietly() { (on_node login "$@") 2>/dev/null || true; }

stop() {
  local node pid
  for node in login "${nodes[@]}"; do
    for pid in $(ip netns pids "$prefix-$node" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
  done
  if [[ -s $dir/munged.pid ]]; then kill "$(cat "$dir/munged.pid")" 2>/dev/null || true; fi
  for node in login "${nodes[@]}" switch; do ip netns del "$prefix-$node" 2>/dev/null || true; done
}

case $action in
  start) start "$3" ;;
  stop) stop ;;
  pids) ip netns pids "$prefix-$3" ;;
  on)
    shift 2
    on_node "$@"
    ;;
  *)
    sed -n '2,9s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
