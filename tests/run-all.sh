#!/usr/bin/env bash
# Installs the packages, builds everything, and runs all tests: first those of the sanitizers, then all with the
# default preset. Arguments go to the latter ctest.
set -euo pipefail
cd "$(dirname "$0")/.."
bash cmake/install-packages.sh
. jobs/environment.sh

configure() {   # PRESET
  cmake --preset "$1" >build-test.tmp 2>&1 ||
    { cat build-test.tmp >&2; echo "run-all: cmake could not configure; its words are above" >&2; exit 1; }
  rm -f build-test.tmp
}

# The programs that also run with the address and undefined-behaviour sanitizers, on 1 to 3 ranks.
checked=(unit_core unit_deck unit_policy mpi_comm mpi_metrics mpi_io mpi_golden mpi_step)
configure asan
cmake --build build/asan -j "$(nproc)" --target "${checked[@]}"
ctest --preset asan -R "^($(IFS='|'; echo "${checked[*]}"))(\.np[123])?$"

configure default
cmake --build build/default -j "$(nproc)"
ctest --preset default "$@"
