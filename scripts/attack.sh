#!/usr/bin/env bash
# Attacks a mount as users who may do no more than POSIX lets them, and prints what held; exit 1 when something did not.
#   scripts/attack.sh [--quick] [PART…]          parts: stalls, shares, memory, history, full; all of them without a word
# --quick takes some minutes: the same attacks with less of everything. ENGRAMFS_BINARY names the program to attack (else
# this package is built with --release). Needs root, /dev/fuse and about 8 GB below TMPDIR.
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo bench --quiet --bench attack -- "$@"
