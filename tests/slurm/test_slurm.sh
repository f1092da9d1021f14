#!/usr/bin/env bash
# jobs/run.sbatch and jobs/chain.sh on a real Slurm, which is started here and ended whatever happens: a run under a
# short time limit is signalled, dumps, is queued again until it is finished, and its weights are the uninterrupted
# run's, bit for bit; once with srun, once with mpirun. What must not be queued again is not.
# usage: test_slurm.sh PROJECT PROGRAM     status 77: cannot be tried here
set -u
project=$1 program=$2
# shellcheck source=tests/slurm/cluster.sh
. "$project/tests/slurm/cluster.sh"
# shellcheck source=jobs/environment.sh
. "$project/jobs/environment.sh"
missing=$(cluster_missing)
[ -z "$missing" ] || { echo "skipped: no Slurm can be started here: $missing"; exit 77; }

work=$(mktemp -d "${TMPDIR:-/tmp}/longstraw-slurm-XXXXXX")
trap 'cluster_stop; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
chmod 755 "$work"
faults=0
fault() { echo "FAULT: $*"; faults=$((faults + 1)); }
now() { date +%s; }
state() { scontrol show job -o "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }
hurry() {  # jobs that are queued again, which would wait for two minutes
  local job held=()
  for job in "$@"; do
    [ "$(state "$job")" = PENDING ] && held+=("$job")
  done
  [ ${#held[@]} -eq 0 ] && return
  sleep 3  # sooner, slurmd takes what it is sent for the part of the job that has ended
  for job in "${held[@]}"; do
    [ "$(state "$job")" = PENDING ] && scontrol update "JobId=$job" StartTime=now 2>/dev/null
  done
}
wait_for() {  # SECONDS JOB STATE [OTHER JOB]
  local end=$(($(now) + $1)) is
  while is=$(state "$2") && [ "$is" != "$3" ]; do
    hurry "$2" ${4:+"$4"}
    case $is in COMPLETED | CANCELLED | FAILED | TIMEOUT) end=0 ;; esac
    [ "$(now)" -lt "$end" ] || { fault "job $2 is $is, not $3"; return 1; }
    sleep 0.3
  done
}
submit() {  # NAME FOLDER [ARGUMENT ...]: a job of one rank with the log NAME.log; prints its number
  local name=$1 folder=$2
  shift 2
  LONGSTRAW_LAUNCHER=srun sbatch --parsable --ntasks=1 --time=5 --output="$name.log" \
    "$project/jobs/run.sbatch" "$deck" "$work/$folder" "$@"
}
has_begun() {  # NAME: the run of that log hears signals, and looks for a file `stop`
  local _
  for _ in $(seq 200); do grep -qs "restart    " "$1.log" && return; sleep 0.2; done
  fault "$1: the run has not begun"
}
ends_with() {  # NAME JOB STATE WORDS: and is not queued again
  wait_for 60 "$2" "$3"
  grep -qF "$4: not queued again" "$1.log" || fault "$1: its log does not say: $4: not queued again"
}

cluster_start "$work/cluster" 8 || { echo "skipped: slurmctld or slurmd did not start, see above"; exit 77; }
controller_start=$(now)
export LONGSTRAW_HOME=$project LONGSTRAW_PROGRAM=$program LONGSTRAW_MACHINE=laptop
deck=$project/input/recall.ini changes="rollouts.epochs=3"

# ---- machine files: what another one has set is not kept, what the user has set is
settings() (  # COMMAND ...: what holds after them
  unset LONGSTRAW_MACHINE LONGSTRAW_PROGRAM LONGSTRAW_LAUNCHER LONGSTRAW_SBATCH
  for command in "$@"; do eval "$command"; done
  echo "$LONGSTRAW_MACHINE $LONGSTRAW_LAUNCHER ${OMPI_MCA_hwloc_base_binding_policy:-} $LONGSTRAW_SBATCH"
)
laptop=". $project/jobs/machines/laptop.env" cluster=". $project/jobs/machines/cpu-cluster.env"
[ "$(settings "$laptop" "$cluster")" = "$(settings "unset OMPI_MCA_hwloc_base_binding_policy" "$cluster")" ] ||
  fault "cpu-cluster.env keeps settings of laptop.env: $(settings "$laptop" "$cluster")"
[ "$(settings "$cluster" "$laptop")" = "$(settings "$laptop")" ] ||
  fault "laptop.env keeps settings of cpu-cluster.env: $(settings "$cluster" "$laptop")"
case $(settings "LONGSTRAW_MACHINE=laptop LONGSTRAW_LAUNCHER=srun" "$laptop" "$laptop") in
  "laptop srun "*) ;;
  *) fault "laptop.env forgets a launcher that the user has set" ;;
esac

# ---- the uninterrupted run
before=$(now)
# shellcheck disable=SC2086
mpirun -n 2 "$program" run -i "$deck" -d whole $changes </dev/null >whole.log 2>&1 ||
  { cat whole.log; fault "the uninterrupted run failed"; }
took=$(($(now) - before))

# ---- a chain: its second job goes on where the first was stopped, and the run's end ends it
# shellcheck disable=SC2086
LONGSTRAW_SBATCH="--ntasks=2 --time=5" "$project/jobs/chain.sh" 3 "$deck" "$work/chained" $changes >jobs.chain ||
  fault "chain.sh failed"
mapfile -t chain <jobs.chain
LONGSTRAW_SBATCH="--ntasks=1 --output=nowhere.log" LONGSTRAW_MACHINE=nowhere "$project/jobs/chain.sh" 3 "$deck" \
  "$work/nowhere" >jobs.nowhere || fault "chain.sh failed"
mapfile -t nowhere <jobs.nowhere
stopped=$(submit stopped stopped)
cancelled=$(submit cancelled cancelled)
has_begun stopped
touch stopped/stop
has_begun cancelled
scancel "$cancelled"
for _ in $(seq 200); do [ -s chained/history.jsonl ] && break; sleep 0.2; done
scancel --batch --signal=USR1 "${chain[0]}"

# ---- meanwhile, what is not queued again: stopped by a file, cancelled, and no tick done since the dump before
ends_with stopped "$stopped" FAILED "stopped by the file stop"
further=$(submit further stopped -t 00:00:01)  # over before its first tick
ends_with cancelled "$cancelled" CANCELLED "cancelled"
ends_with further "$further" FAILED \
  "this job got no further than the dump it began with (is the time limit too short for one tick?)"

# ---- a chain whose first job fails before its run begins
wait_for 20 "${nowhere[0]}" FAILED
wait_for 10 "${nowhere[1]}" CANCELLED
wait_for 10 "${nowhere[2]}" CANCELLED

# ---- the chain's end
wait_for 40 "${chain[0]}" FAILED  # status 3
wait_for 100 "${chain[1]}" COMPLETED
wait_for 10 "${chain[2]}" CANCELLED
diff -r whole/weights chained/weights || fault "the chain: other weights than those of the uninterrupted run"
[ "$(wc -l <chained/history.jsonl)" = "$(wc -l <whole/history.jsonl)" ] ||
  fault "the chain: steps are missing or double"

# ---- signal before the limit, dump, queued again, finished
# The controller looks at time limits every 30 s; what is due before its next look is done now. So a job with a limit
# of one minute gets its signal at the first look: let that fall into the middle of the run.
half=$((took / 2 < 4 ? 4 : took / 2))
sleep $(((30 - ($(now) + half - controller_start) % 30) % 30))
for launcher in srun mpirun; do
  # shellcheck disable=SC2086
  SLURM_DEBUG=1 LONGSTRAW_LAUNCHER=$launcher sbatch --parsable --ntasks=2 --cpus-per-task=2 --time=1 \
    --signal=B:USR1@50 --output="$launcher.log" "$project/jobs/run.sbatch" \
    "$deck" "$work/$launcher" $changes >"$launcher.job" ||
    fault "sbatch failed"
done
wait_for 150 "$(cat srun.job)" COMPLETED "$(cat mpirun.job)"
for launcher in srun mpirun; do
  wait_for 100 "$(cat "$launcher.job")" COMPLETED
  for said in "USR1 - the run is told to stop" "stopped    SIGUSR1 on rank" "stopped in time: queued again" \
    ", start 2, " "restart    from" "run.sbatch: finished"; do
    grep -qF "$said" "$launcher.log" || fault "$launcher: its log does not say: $said"
  done
  diff -r whole/weights "$launcher/weights" || fault "$launcher: other weights than those of the uninterrupted run"
  [ "$(wc -l <"$launcher/history.jsonl")" = "$(wc -l <whole/history.jsonl)" ] ||
    fault "$launcher: steps are missing or double"
done
# What it asks for, which SLURM_DEBUG makes it tell: here nothing binds a task to its CPUs.
grep -q "^srun: cpus-per-task *: 2" srun.log || fault "srun does not ask for the 2 CPUs of a task"
for name in stopped cancelled further; do
  [ "$(grep -c "run.sbatch: job " "$name.log")" = 1 ] || fault "$name: was queued again"
done
if [ $faults -gt 0 ]; then
  tail -n 40 ./*.log longstraw-*.log cluster/log/slurmctld 2>/dev/null
else
  grep -h "run.sbatch" srun.log mpirun.log
fi
exit $((faults > 0))
