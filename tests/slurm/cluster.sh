# shellcheck shell=bash
# Sourced: a Slurm of one node on this machine alone, of its own munged, slurmctld and slurmd on the loopback address.
# cluster_start FOLDER starts it and exports SLURM_CONF; cluster_stop ends it, and does so whatever ended before.
# The daemons die with the shell that started them, however it ends.
cluster_pids=()

cluster_missing() {  # prints why no Slurm can be started here; nothing: it can
  local program
  for program in munged slurmctld slurmd sbatch srun scontrol setpriv; do
    command -v "$program" >/dev/null || { echo "$program is not installed (cmake/install-packages.sh tests)"; return; }
  done
  [ "$(id -u)" -eq 0 ] || echo "slurmd needs root"
}

cluster_port() {  # one that nobody listens on, from $1 on
  local port=$1
  while ss -Hltn "sport = :$port" 2>/dev/null | grep -q .; do port=$((port + 1)); done
  echo "$port"
}

cluster_configure() {
  local folder=$1 cpus=$2 host controller daemon
  host=$(hostname -s)
  controller=$(cluster_port $((20000 + $$ % 5000)))
  daemon=$(cluster_port $((controller + 1)))
  mkdir -p "$folder"/{munge,state,spool,log}
  chmod 755 "$folder" "$folder"/{state,spool,log}
  chmod 711 "$folder/munge"
  head -c 1024 /dev/urandom >"$folder/munge/munge.key"
  chmod 400 "$folder/munge/munge.key"
  echo "CgroupPlugin=autodetect" >"$folder/cgroup.conf"
  cat >"$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
SlurmctldPort=$controller
SlurmdPort=$daemon
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_min_interval=0,batch_sched_delay=0
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=20
MpiDefault=none
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$daemon CPUs=$cpus Boards=1 SocketsPerBoard=1 \
  CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=512 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

cluster_daemon() {  # in the foreground, so that the process is ours
  local log=$1
  shift
  setpriv --pdeathsig TERM "$@" >"$log" 2>&1 </dev/null &
  cluster_pids+=($!)
}

cluster_start() {
  local folder=$1 _
  cluster_configure "$folder" "$2"
  export SLURM_CONF=$folder/slurm.conf
  cluster_daemon "$folder/log/munged" munged --foreground --force --socket="$folder/munge/socket" \
    --key-file="$folder/munge/munge.key" --pid-file="$folder/munge/pid" \
    --seed-file="$folder/munge/seed" --num-threads=2
  for _ in $(seq 50); do [ -S "$folder/munge/socket" ] && break; sleep 0.1; done
  cluster_daemon "$folder/log/slurmctld" slurmctld -D -i -f "$SLURM_CONF"
  for _ in $(seq 100); do scontrol ping 2>/dev/null | grep -q 'is UP' && break; sleep 0.1; done
  cluster_daemon "$folder/log/slurmd" slurmd -D -N n1 -f "$SLURM_CONF"
  for _ in $(seq 200); do
    [ -n "$(sinfo -h -t idle -o %n 2>/dev/null)" ] && return 0
    sleep 0.1
  done
  tail -n 5 "$folder"/log/* >&2
  return 1
}

cluster_stop() {
  local pid _ at
  [ ${#cluster_pids[@]} -gt 1 ] && timeout 5 scancel --quiet --state=RUNNING,PENDING --user=root 2>/dev/null
  for _ in $(seq 50); do [ -z "$(timeout 5 squeue -h 2>/dev/null)" ] && break; sleep 0.1; done
  # From the last started to the first: slurmd, slurmctld, munged.
  for ((at = ${#cluster_pids[@]} - 1; at >= 0; --at)); do
    pid=${cluster_pids[at]}
    kill "$pid" 2>/dev/null
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
  done
  cluster_pids=()
}
