#!/usr/bin/env bash
# The long suites, one after the other; prints what became of each, exit 1 when one failed.
#   scripts/nightly.sh [--quick] [PART…]      parts: attack, check, conformance, deny, fuzz, kills, miri, schedules; all of them
#   without a word; mutants, which takes a night of its own, only where it is named
# --quick takes some minutes: the same with less of everything. Logs go to $ENGRAMFS_LOGS, else to a folder that is named.
# ENGRAMFS_SUITES is where conformance.sh keeps its suites. Needs root, /dev/fuse and about 8 GB below TMPDIR.
set -uo pipefail
cd "$(dirname "$0")/.."

quick=() rounds=20 kills=1000 fuzz=600 mutants=300 parts=()
for word in "$@"; do
  case $word in
    --quick) quick=(--quick) rounds=1 kills=30 fuzz=10 mutants=20 ;;
    attack | check | conformance | deny | fuzz | kills | miri | mutants | schedules) parts+=("$word") ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=(attack check conformance deny fuzz kills miri schedules)
logs=${ENGRAMFS_LOGS:-$(mktemp -d)} failed=0
mkdir -p "$logs"

# A round of that test kills ten servers at work.
kill_servers() {
  ENGRAMFS_ROUNDS=$(((kills + 9) / 10)) cargo test --locked --test engramfs -- --exact \
    mount::lifecycle::what_was_acknowledged_outlives_the_process_whenever_it_is_killed
}

# Shuttle chooses which thread goes on at each lock; an order that fails is printed, to be replayed.
schedules() {
  RUSTFLAGS='--cfg shuttle' cargo test --locked --lib --target-dir target/shuttle schedules::
}

# Miri interprets the vector kernels, the unsafe code that needs no system call, with the instructions that most machines have. It
# is some thousand times slower, so the tests of bounds over many random vectors are left out.
interpret() {
  rustup component add --toolchain nightly miri rust-src || return
  MIRIFLAGS=-Zmiri-disable-isolation RUSTFLAGS='-C target-feature=+avx2,+fma,+f16c' \
    cargo +nightly miri test --locked --lib --target-dir target/miri -- vector:: --skip bounds_hold
}

# Known vulnerabilities are looked for only where their database can be fetched.
deny() {
  cargo deny --version || cargo install --locked cargo-deny || return
  local checks=(licenses bans sources)
  if cargo deny --locked fetch db; then
    checks+=(advisories)
  else
    echo "the database of advisories can't be fetched: not checked"
  fi
  cargo deny --locked check "${checks[@]}"
}

run() {
  case $1 in
    attack) scripts/attack.sh "${quick[@]}" ;;
    check) ENGRAMFS_ROUNDS=$rounds scripts/check.sh ;;
    conformance) scripts/conformance.sh "${quick[@]}" ;;
    deny) deny ;;
    fuzz) scripts/fuzz.sh --seconds $fuzz ;;
    kills) kill_servers ;;
    miri) interpret ;;
    mutants) scripts/mutants.sh "$mutants" ;;
    schedules) schedules ;;
  esac
}

echo "logs in $logs"
for part in "${parts[@]}"; do
  start=$SECONDS
  if run "$part" >"$logs/$part" 2>&1; then outcome=passed; else outcome=FAILED failed=1; fi
  printf '%-12s %s in %s s\n' "$part" "$outcome" $((SECONDS - start))
done
exit $failed
