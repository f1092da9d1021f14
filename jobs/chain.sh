#!/usr/bin/env bash
# Submits N jobs of which each waits for the end of the one before: for sites that do not requeue jobs, or to keep
# a place in the queue. The chain ends when the run is finished, fails, or is stopped by a file `stop`.
# usage: . jobs/machines/NAME.env; jobs/chain.sh N DECK RUN_FOLDER [section.key=value ...]
set -euo pipefail
if [ $# -lt 3 ] || ! [ "$1" -ge 1 ] 2>/dev/null; then
  sed -n 4p "$0" | cut -c 3- >&2
  exit 2
fi
jobs=$1
shift
LONGSTRAW_HOME=${LONGSTRAW_HOME:-$(cd "$(dirname "$0")/.." && pwd)}
LONGSTRAW_CHAIN=longstraw-$(date +%s)-$$
export LONGSTRAW_HOME LONGSTRAW_CHAIN
read -r -a options <<<"${LONGSTRAW_SBATCH:-}"
# The first begins when all are there, else one that fails at once could not cancel those that are still to come.
first="" after=--hold
trap '[ -z "$first" ] || scontrol release "$first"' EXIT
for _ in $(seq "$jobs"); do
  job=$(sbatch --parsable "${options[@]}" --job-name="$LONGSTRAW_CHAIN" "$after" \
    "$LONGSTRAW_HOME/jobs/run.sbatch" "$@")
  job=${job%%;*}
  echo "$job"
  first=${first:-$job} after=--dependency=afterany:$job
done
echo "all of it is cancelled by: scancel --name=$LONGSTRAW_CHAIN" >&2
