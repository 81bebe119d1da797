#!/usr/bin/env bash
# Writes the frozen stores of this build to tests/data/stores/VERSION; those of a tagged version are never written again.
#   scripts/freeze.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?name the version}
if [ -n "$(git tag --list "v$version")" ]; then
  echo "freeze.sh: v$version is tagged: its stores stay as they are" >&2
  exit 1
fi
rm -rf "tests/data/stores/$version"
ENGRAMFS_FREEZE="tests/data/stores/$version" cargo test --locked --test engramfs -- --exact \
  frozen::stores_of_this_build_hold_every_code_and_read_as_frozen_ones_must
du -sh "tests/data/stores/$version"
