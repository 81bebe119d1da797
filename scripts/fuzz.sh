#!/usr/bin/env bash
# Runs the fuzz targets one after the other; prints what became of each, exit 1 when one found something.
#   scripts/fuzz.sh [TARGET…] [--seconds N]      all targets without a name, 600 seconds each
# Needs a nightly toolchain; installs cargo-fuzz where it is missing. What was found goes to fuzz/artifacts/TARGET/, logs
# to $ENGRAMFS_LOGS, else to a folder that is named. Inputs that are new go to fuzz/target/corpus, not to fuzz/corpus.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=600 targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?--seconds takes a number}; shift 2 ;;
    -*) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked || exit 1
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list)
logs=${ENGRAMFS_LOGS:-$(mktemp -d)} failed=0
mkdir -p "$logs"

# A target that takes 10 seconds or half a GiB for 32 KiB has found something, too.
limits=(-timeout=10 -malloc_limit_mb=512 -max_len=32768)

echo "logs in $logs"
for target in "${targets[@]}"; do
  log=$logs/fuzz-$target
  mkdir -p "fuzz/target/corpus/$target"
  if cargo +nightly fuzz run "$target" "fuzz/target/corpus/$target" "fuzz/corpus/$target" -- \
    "${limits[@]}" -max_total_time="$seconds" >"$log" 2>&1; then outcome=passed; else outcome=FAILED failed=1; fi
  printf '%-14s %s, %s\n' "$target" "$outcome" "$(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "$log" || echo "see $log")"
done
exit $failed
