#!/usr/bin/env bash
# Installs the packages, builds everything with the default preset, and runs all tests; then the fuzz targets, which
# take two minutes. Arguments go to ctest; with any, the fuzz targets are left out (ctest --preset fuzz runs them).
set -euo pipefail
cd "$(dirname "$0")/.."
bash cmake/install-packages.sh
bash cmake/install-packages.sh tests || echo "run-all: without these the tests that need them are skipped" >&2
. jobs/environment.sh
build() {
  cmake --preset "$1" >build-test.tmp 2>&1 ||
    { cat build-test.tmp >&2; echo "run-all: cmake could not configure; its words are above" >&2; exit 1; }
  rm -f build-test.tmp
  cmake --build "build/$1" -j "$(env -u OMP_NUM_THREADS nproc)"
}

build default
ctest --preset default "$@"
[ $# -gt 0 ] && exit
command -v clang++ >/dev/null || { echo "run-all: no clang++: the fuzz targets are skipped" >&2; exit; }
build fuzz
ctest --preset fuzz -j "$(env -u OMP_NUM_THREADS nproc)"
