#!/usr/bin/env bash
# The one gate: format, lints, docs, messages of commits, all tests. Says how many seconds each step took. ENGRAMFS_ROUNDS=N runs the random tests N times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
step() {
  local began=$SECONDS
  "$@"
  echo "check.sh: $((SECONDS - began)) s for $*" >&2
}
step scripts/setup.sh
step cargo fmt --check
step cargo clippy --all-targets --locked -- -D warnings
# Only checked, so that no C++ compiler has to build the library that the targets are linked with.
CUSTOM_LIBFUZZER_PATH=none/libnone.a step cargo check --quiet --bins --locked --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}"
RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' step cargo doc --quiet --no-deps --locked --document-private-items
step scripts/commits.sh
step cargo test --locked --no-run
step cargo test --locked
echo "check.sh: $SECONDS s in all" >&2
