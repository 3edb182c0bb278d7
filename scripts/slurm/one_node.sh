#!/usr/bin/env bash
# A SLURM of one machine for tests and trials: munge, slurmctld and slurmd with everything that they write in one folder.
#
#     scripts/slurm/one_node.sh install                Debian's packages slurm-wlm and munge (needs root)
#     scripts/slurm/one_node.sh start FOLDER [CPUS]    idempotent; says how to use it. CPUS: more than there are, or fewer
#     scripts/slurm/one_node.sh start FOLDER CPUS NAMESPACE OWN_ADDRESS ADDRESS    with a second node in a namespace of
#                                                      the network, where it has ADDRESS and this machine OWN_ADDRESS
#     scripts/slurm/one_node.sh status FOLDER          exits with 0 while it runs
#     scripts/slurm/one_node.sh stop FOLDER            cancels its jobs; the folder stays
#
# Jobs run as the user who starts it, without cgroups: it isolates nothing. Neither systemd nor root is needed.
set -euo pipefail
export PATH=$PATH:/usr/sbin

usage() {
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

fail() {
    echo "$0: $*" >&2
    exit 1
}

install_packages() {
    if command -v slurmctld slurmd munged sbatch >/dev/null; then
        echo "already installed"
        return
    fi
    [ "$(id -u)" = 0 ] || fail "expected root, to install slurm-wlm and munge; install them yourself"
    command -v apt-get >/dev/null || fail "expected apt-get, found none; install SLURM and munge yourself"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends slurm-wlm munge
}

write_configuration() {
    local user memory ports
    user=$(id -un)
    memory=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
    # two that are free now, since another SLURM may have the usual ones; kept, since jobs report to the old ones
    ports=$(sed -n 's/^Slurm\(ctld\|d\)Port=//p' "$folder/slurm.conf" 2>/dev/null | xargs) || true
    [ -n "$ports" ] || ports=$(python3 -c 'import socket
both = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in both))')
    cat >"$folder/slurm.conf" <<CONF
ClusterName=one_node
SlurmctldHost=$node($own_address)
SlurmctldPort=${ports% *}
SlurmdPort=${ports#* }
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
# Short-lived credentials: SLURM starts a requeued job only when the old ones have expired, after two minutes by default.
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=256
ReturnToService=2
JobRequeue=1
KillWait=5
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=$node NodeAddr=$own_address CPUs=$cpus RealMemory=$memory State=UNKNOWN
${namespace:+NodeName=$namespace NodeAddr=$address CPUs=$cpus RealMemory=$memory State=UNKNOWN}
PartitionName=usual Nodes=ALL Default=YES PriorityTier=1 MaxTime=INFINITE
PartitionName=urgent Nodes=ALL Default=NO PriorityTier=2 MaxTime=INFINITE
CONF
}

# The process whose id the file has, if it is that program; a file may outlive its process.
running() {
    local process
    process=$(cat "$folder/$1.pid" 2>/dev/null) && [ "$(cat "/proc/$process/comm" 2>/dev/null)" = "${1%%-*}" ] && echo "$process"
}

start_daemon() {
    local name=$1
    shift
    running "$name" >/dev/null || "$@" </dev/null >>"$folder/start.log" 2>&1 ||
        fail "$name does not start: $(tail -n 1 "$folder/start.log"); see $folder/$name.log"
}

is_up() {
    running munged >/dev/null && running slurmctld >/dev/null && running "slurmd-$node" >/dev/null &&
        sinfo --noheader --Node --format=%T >"$folder/states" 2>/dev/null && [ -s "$folder/states" ] &&
        ! grep -qvE '^(idle|mixed|allocated|completing)$' "$folder/states"
}

start() {
    local name
    for name in munged slurmctld slurmd sbatch; do
        command -v "$name" >/dev/null || fail "expected $name on PATH, found none; run: $0 install"
    done
    mkdir -p "$folder/state" "$folder/spool-$node"
    chmod 755 "$folder" "$folder/state" "$folder/spool-$node"
    if [ ! -s "$folder/munge.key" ]; then
        (umask 077 && head -c 128 /dev/urandom >"$folder/munge.key")
    fi
    running slurmctld >/dev/null || write_configuration
    # --force: a temporary folder may be one that others can write to
    start_daemon munged munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
        --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
    start_daemon slurmctld slurmctld -f "$SLURM_CONF"
    start_daemon "slurmd-$node" slurmd -f "$SLURM_CONF"
    if [ -n "$namespace" ]; then
        mkdir -p "$folder/spool-$namespace"
        chmod 755 "$folder/spool-$namespace"
        start_daemon "slurmd-$namespace" nsenter --net="/run/netns/$namespace" unshare --uts \
            sh -c "hostname $namespace && exec slurmd -f '$SLURM_CONF'"
    fi
    for _ in $(seq 100); do
        if is_up; then
            echo "SLURM runs on this machine; to use it: export SLURM_CONF=$SLURM_CONF"
            return
        fi
        sleep 0.2
    done
    fail "no node became ready in 20 s; see $folder/slurmctld.log and $folder/slurmd-*.log"
}

status() {
    is_up || fail "no SLURM runs in $folder"
    echo "SLURM runs in $folder:"
    sinfo --noheader --Node --format="%N %P %T"
}

stop() {
    local name process
    if running slurmctld >/dev/null; then
        squeue --noheader --format=%A 2>/dev/null | sort -u | xargs -r timeout 10 scancel || true
        for _ in $(seq 100); do # they have KillWait to end in
            [ -n "$(squeue --noheader 2>/dev/null)" ] || break
            sleep 0.1
        done
    fi
    for name in $(cd "$folder" && ls slurmd-*.pid 2>/dev/null | sed 's/.pid$//') slurmctld munged; do
        process=$(running "$name") || continue
        kill "$process"
        for _ in $(seq 50); do # not by its file, which slurmd removes long before it ends
            kill -0 "$process" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$process" 2>/dev/null || true
    done
}

if [ "${1:-}" = install ] && [ $# = 1 ]; then
    install_packages
    exit
fi
if [ $# != 2 ] && { [ "${1:-}" != start ] || { [ $# != 3 ] && [ $# != 6 ]; }; }; then
    usage
fi
cpus=${3:-$(nproc)} namespace=${4:-} own_address=${5:-127.0.0.1} address=${6:-}
node=$(uname -n)
node=${node%%.*}
[ "$1" != start ] || mkdir -p "$2"
[ -d "$2" ] || fail "expected a folder that it was started in, got: $2"
folder=$(cd "$2" && pwd)
export SLURM_CONF=$folder/slurm.conf
case $1 in
start | stop | status) "$1" ;;
*) usage ;;
esac
