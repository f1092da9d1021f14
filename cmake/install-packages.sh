#!/usr/bin/env bash
# Installs what cmake/packages.txt lists, where something of it is missing (Debian 12, as root).
# usage: install-packages.sh [tests]     tests: what cmake/packages-tests.txt lists, which only some tests need
set -euo pipefail
cd "$(dirname "$0")"
list=packages${1:+-$1}.txt
mapfile -t packages < "$list"

missing() {
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

if ! command -v dpkg-query >/dev/null; then
  echo "install-packages: this is no Debian system: install by its own means what cmake/$list names" >&2
  exit 1
fi
mapfile -t absent < <(missing)
[ ${#absent[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
  echo "install-packages: missing: ${absent[*]}" >&2
  echo "install-packages: run as root: apt-get install ${absent[*]}" >&2
  exit 1
fi
echo "installing ${#absent[@]} packages: ${absent[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || { echo "install-packages: apt-get update failed: no package source is reached" >&2; exit 1; }
apt-get install -y -qq --no-install-recommends "${absent[@]}" >/dev/null ||
  { echo "install-packages: apt-get could not install: ${absent[*]}" >&2; exit 1; }
mapfile -t absent < <(missing)
[ ${#absent[@]} -eq 0 ] || { echo "install-packages: still missing: ${absent[*]}" >&2; exit 1; }
