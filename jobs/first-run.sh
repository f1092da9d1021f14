#!/usr/bin/env bash
# Installs the packages, builds LongStraw, and runs the shipped input on 2 ranks.
# usage: jobs/first-run.sh [RUN FOLDER]     (default: run)
set -euo pipefail
start=$(pwd)
cd "$(dirname "$0")/.."
folder=$(realpath -m "$start/${1:-run}")

if [ -e "$folder/history.jsonl" ]; then
  echo "first-run: $folder holds an earlier run - remove it, or name another: jobs/first-run.sh FOLDER" >&2
  exit 1
fi
bash cmake/install-packages.sh
. jobs/environment.sh
cmake --preset default -DLONGSTRAW_TESTS=OFF -DLONGSTRAW_BENCH=OFF -B build/run >build-run.tmp 2>&1 ||
  { cat build-run.tmp >&2; echo "first-run: cmake could not configure; its words are above" >&2; exit 1; }
rm -f build-run.tmp
cmake --build build/run --target longstraw -j "$(env -u OMP_NUM_THREADS nproc)"
mpirun -n 2 build/run/src/longstraw run -i input/recall.ini -d "$folder"
cat <<TEXT

The run is in $folder:
  weights/        the updated model, in the layout of input/recall/model
  history.jsonl   one JSON object a step
Try next:
  build/run/src/longstraw inspect input/recall/rollouts-4k.jsonl
  . jobs/environment.sh; mpirun -n 2 build/run/src/longstraw run -i input/recall.ini -d run-frozen gradient.mode=frozen
  build/run/src/longstraw run --help     and input/defaults.ini for every key of a deck
  bash tests/run-all.sh                  all tests
TEXT
