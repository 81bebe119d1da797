#!/usr/bin/env bash
# Runs the fuzz targets; prints what became of each, exit 1 when one found something.
#   scripts/fuzz.sh [TARGET…] [--seconds N] [--jobs N]   all targets without a name, 600 seconds each, one for each CPU at a time
# Needs a nightly toolchain; installs cargo-fuzz where it is missing. What was found goes to fuzz/artifacts/TARGET/, logs
# to $ENGRAMFS_LOGS, else to a folder that is named. Inputs that are new go to fuzz/target/corpus, not to fuzz/corpus.
set -uo pipefail
cd "$(dirname "$0")/.."

seconds=600 jobs=$(nproc) targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?--seconds takes a number}; shift 2 ;;
    --jobs) jobs=${2:?--jobs takes a number}; shift 2 ;;
    -*) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked || exit 1
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list)
logs=${ENGRAMFS_LOGS:-$(mktemp -d)}
mkdir -p "$logs"

run_target() {
  local target=$1 seconds=$2 log=$3/fuzz-$1 outcome=passed
  # A target that takes 10 seconds or half a GiB for 32 KiB has found something, too.
  local limits=(-timeout=10 -malloc_limit_mb=512 -max_len=32768)
  mkdir -p "fuzz/target/corpus/$target"
  cargo +nightly fuzz run "$target" "fuzz/target/corpus/$target" "fuzz/corpus/$target" -- \
    "${limits[@]}" -max_total_time="$seconds" >"$log" 2>&1 || outcome=FAILED
  printf '%-14s %s, %s\n' "$target" "$outcome" "$(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "$log" || echo "see $log")"
  [ $outcome = passed ]
}
export -f run_target

echo "logs in $logs"
cargo +nightly fuzz build >"$logs/fuzz-build" 2>&1 || { tail -20 "$logs/fuzz-build"; exit 1; }
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'run_target "$@"' _ {} "$seconds" "$logs" || exit 1
