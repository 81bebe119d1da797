#!/usr/bin/env bash
# Measures the figures of docs/BENCHMARKS.md side by side in one run and prints the table.
#   scripts/bench.sh [sizes] [merge] [history] [fork] [real] [mounted] [files] [space] [search [--million] [--only=PART,…]]      all of them without a word
# ENGRAMFS_TEST_DATA names a folder of real embeddings (scripts/bench/real.rs says in which form).
# ENGRAMFS_BENCH_ROWS sets the rows of the large store (1,000,000; about 8 GB of disk below TMPDIR).
# `search` measures all real rows, or with --million so many. For it ENGRAMFS_BENCH_DIR keeps libraries, rows and
# indexes for the next run (20 GB with --million; a
# temporary folder otherwise, and every index is built anew), ENGRAMFS_BENCH_PEERS and ENGRAMFS_BENCH_MILLION_PEERS
# list the engines to compare with (scripts/bench/search/peer.rs), ENGRAMFS_BENCH_CORE names the core. Its parts are
# versus, filters, words, opening, branches, depth and ingested.
set -euo pipefail
cd "$(dirname "$0")/.."
exec cargo bench --quiet --bench figures -- "$@"
