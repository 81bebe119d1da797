#!/usr/bin/env bash
# The one gate: format, lints, build, all tests. ENGRAMFS_ROUNDS=N runs the random tests N times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
cargo fmt --check
cargo clippy --all-targets --locked -- -D warnings
cargo test --locked --no-run
cargo test --locked
