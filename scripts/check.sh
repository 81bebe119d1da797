#!/usr/bin/env bash
# The one gate: format, lints, docs, titles of commits, all tests, and the attack on full disks where it can be mounted. ENGRAMFS_ROUNDS=N runs the random tests N times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
cargo fmt --check
cargo clippy --all-targets --locked -- -D warnings
RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --quiet --no-deps --locked --document-private-items
scripts/titles.sh
cargo test --locked --no-run
cargo test --locked
if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ]; then
  cargo test --quiet --locked --bench attack -- --quick full
fi
