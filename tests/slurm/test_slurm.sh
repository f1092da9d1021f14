#!/usr/bin/env bash
# jobs/run.sbatch and jobs/chain.sh on a real Slurm, which is started here and ended whatever happens: a run under a short
# time limit is signalled, dumps, is queued again until it is finished, and its weights are the uninterrupted run's, bit for
# bit; once with srun, once with mpirun. usage: test_slurm.sh PROJECT PROGRAM     status 77: cannot be tried here
set -u
project=$1 program=$2
. "$project/tests/slurm/cluster.sh"
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

cluster_start "$work/cluster" 4 || { echo "skipped: slurmctld or slurmd did not start, see above"; exit 77; }
controller_start=$(now)
export LONGSTRAW_HOME=$project LONGSTRAW_PROGRAM=$program LONGSTRAW_MACHINE=laptop
deck=$project/input/recall.ini changes="rollouts.epochs=3"

# ---- the uninterrupted run
before=$(now)
# shellcheck disable=SC2086
mpirun -n 2 "$program" run -i "$deck" -d whole $changes </dev/null >whole.log 2>&1 || { cat whole.log; fault "the uninterrupted run failed"; }
took=$(($(now) - before))

# ---- a chain: its second job goes on where the first was stopped, and the run's end ends it
# shellcheck disable=SC2086
LONGSTRAW_SBATCH="--ntasks=2 --time=5" "$project/jobs/chain.sh" 3 "$deck" "$work/chained" $changes >jobs.chain || fault "chain.sh failed"
mapfile -t chain <jobs.chain
for _ in $(seq 200); do [ -s chained/history.jsonl ] && break; sleep 0.2; done
scancel --batch --signal=USR1 "${chain[0]}"
wait_for 40 "${chain[0]}" FAILED  # status 3
wait_for 60 "${chain[1]}" COMPLETED
wait_for 10 "${chain[2]}" CANCELLED
diff -r whole/weights chained/weights || fault "the chain: other weights than those of the uninterrupted run"
[ "$(wc -l <chained/history.jsonl)" = "$(wc -l <whole/history.jsonl)" ] || fault "the chain: steps are missing or double"

# ---- signal before the limit, dump, queued again, finished
# The controller looks at time limits every 30 s; what is due before its next look is done now. So a job with a limit of one
# minute gets its signal at the first look: let that fall into the middle of the run.
half=$((took / 2 < 4 ? 4 : took / 2))
sleep $(((30 - ($(now) + half - controller_start) % 30) % 30))
for launcher in srun mpirun; do
  # shellcheck disable=SC2086
  LONGSTRAW_LAUNCHER=$launcher sbatch --parsable --ntasks=2 --time=1 --signal=B:USR1@50 --output="$launcher.log" \
    "$project/jobs/run.sbatch" "$deck" "$work/$launcher" $changes >"$launcher.job" || fault "sbatch failed"
done
wait_for 150 "$(cat srun.job)" COMPLETED "$(cat mpirun.job)"
for launcher in srun mpirun; do
  wait_for 100 "$(cat "$launcher.job")" COMPLETED
  for said in "USR1 - the run is told to stop" "stopped    SIGUSR1 on rank" "stopped in time: queued again" ", start 2, " \
    "restart    from" "run.sbatch: finished"; do
    grep -qF "$said" "$launcher.log" || fault "$launcher: its log does not say: $said"
  done
  diff -r whole/weights "$launcher/weights" || fault "$launcher: other weights than those of the uninterrupted run"
  [ "$(wc -l <"$launcher/history.jsonl")" = "$(wc -l <whole/history.jsonl)" ] || fault "$launcher: steps are missing or double"
done
if [ $faults -gt 0 ]; then
  tail -n 40 ./*.log longstraw-*.log cluster/log/slurmctld 2>/dev/null
else
  grep -h "run.sbatch" srun.log mpirun.log
fi
exit $((faults > 0))
