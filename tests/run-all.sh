#!/usr/bin/env bash
# Installs the packages, builds everything with the default preset, and runs all tests; then some of them under the
# address and undefined-behaviour sanitizers, and the fuzz targets. Arguments go to ctest, for the first of these only:
# with any, the other two are left out (ctest --preset asan and --preset fuzz run them, once they are built).
set -euo pipefail
cd "$(dirname "$0")/.."
bash cmake/install-packages.sh
bash cmake/install-packages.sh tests || echo "run-all: without these the tests that need them are skipped" >&2
. jobs/environment.sh
build() {  # PRESET [TARGET ...]
  cmake --preset "$1" >build-test.tmp 2>&1 ||
    { cat build-test.tmp >&2; echo "run-all: cmake could not configure; its words are above" >&2; exit 1; }
  rm -f build-test.tmp
  cmake --build "build/$1" -j "$(env -u OMP_NUM_THREADS nproc)" ${2:+--target "${@:2}"}
}

build default
ctest --preset default "$@"
[ $# -gt 0 ] && exit
sanitized=(unit_policy unit_sim mpi_comm mpi_io mpi_step mpi_clock)
build asan "${sanitized[@]}"
ctest --preset asan -R "^($(IFS='|'; echo "${sanitized[*]}"))(\.np[123])?$"
command -v clang++ >/dev/null || { echo "run-all: no clang++: the fuzz targets are skipped" >&2; exit; }
build fuzz
ctest --preset fuzz -j "$(env -u OMP_NUM_THREADS nproc)"
