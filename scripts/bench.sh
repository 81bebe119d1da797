#!/usr/bin/env bash
# Measures the figures of docs/BENCHMARKS.md side by side in one run and prints the table.
#   scripts/bench.sh [sizes] [merge] [fork] [real] [mounted]      all of them without a word
# ENGRAMFS_TEST_DATA names a folder of real embeddings (scripts/bench/real.rs says in which form).
# ENGRAMFS_BENCH_ROWS sets the rows of the large store (1,000,000; about 8 GB of disk below TMPDIR).
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo bench --quiet --bench figures -- "$@"
