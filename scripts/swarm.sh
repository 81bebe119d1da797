#!/usr/bin/env bash
# Runs a swarm against a model: agents of several uids in sandboxes on one mount, and kills of the server in between.
#   scripts/swarm.sh [--agents N] [--seconds N] [--entries N] [--binary PATH]
# Builds the program in release mode unless PATH names one. Needs root, python3, bubblewrap and /dev/fuse. Prints what was done and
# checked; the exit code is 1 where something acknowledged is missing or doubled, or somebody saw what was not theirs.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --binary) binary=$2; shift 2 ;;
    *) arguments+=("$1"); shift ;;
  esac
done
if [ -z "$binary" ]; then
  cargo build --quiet --release --locked
  binary=${CARGO_TARGET_DIR:-target}/release/engramfs
fi
exec python3 scripts/swarm/swarm.py "$binary" ${arguments[@]+"${arguments[@]}"}
