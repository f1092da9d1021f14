#!/usr/bin/env bash
# Installs the packages, builds everything with the default preset, and runs all tests. Arguments go to ctest.
set -euo pipefail
cd "$(dirname "$0")/.."
bash cmake/install-packages.sh
bash cmake/install-packages.sh tests || echo "run-all: without these the tests that need them are skipped" >&2
. jobs/environment.sh
cmake --preset default >build-test.tmp 2>&1 ||
  { cat build-test.tmp >&2; echo "run-all: cmake could not configure; its words are above" >&2; exit 1; }
rm -f build-test.tmp
cmake --build build/default -j "$(nproc)"
ctest --preset default "$@"
