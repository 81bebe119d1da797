#!/usr/bin/env bash
# Do the tests bite? Builds a sample of small faults, one at a time, and runs the tests of the changed module and those of
# the whole store against each; prints what was caught and what was missed. Exit 1 when less than nine tenths were caught.
#   scripts/mutants.sh [COUNT [SEED]]      300 faults unless told; SEED chooses others (0)
# A fault takes one to two minutes on two cores. Lists go to target/mutants.out.
set -euo pipefail
cd "$(dirname "$0")/.."
count=${1:-300} seed=${2:-0}
command -v cargo-mutants >/dev/null || cargo install cargo-mutants --locked

modules=(disk object text vector facet graph record journal lineage branch merge workspace segment search file_index fs
  memory/transaction memory/merging memory/command memory/catalog memory/storage memory/history memory/maintenance
  memory/admission)
# Entries of fuzz targets are not compiled here, so that no test can notice a fault in them. The simulated disks are used by
# tests alone.
files=(--exclude 'src/**/fuzzing.rs' --exclude 'src/disk/fault*.rs' --exclude 'src/disk/forgetful/**')
for module in "${modules[@]}"; do files+=(--file "src/$module/**"); done
# Tests that find faults in these modules; those with real mounts and long histories are left out.
tests=(disk:: object:: text:: vector:: facet:: graph:: record:: journal:: lineage:: branch:: merge:: memory:: workspace::
  segment:: search:: file_index:: fs:: model:: durability:: during_seal:: flushes:: files:: forgery:: damage::
  damage_while_open:: regressions:: races:: manifest:: graphs:: inodes:: search_scopes:: clock:: refusals:: orphans:: long_writes:: full::
  faults:: panics:: shared_log:: signals:: archive:: purge memory_limits:: gates:: retained_states:: plans:: reverts::
  shrink:: space:: stamps:: states:: story:: units:: manual_conflicts:: embedding::)

all=$(cargo mutants --list "${files[@]}" | wc -l)
shards=$(((all + count - 1) / count))
echo "$all possible faults, every ${shards}th of them from the $((seed % shards))th on"
# Without optimization and debug lines a build takes half as long.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0 ENGRAMFS_ROUNDS=1
# A loop that a fault makes endless may collect without end, too: no process gets more than 12 GiB of addresses.
ulimit -v $((12 << 20))
cargo mutants "${files[@]}" --shard "$((seed % shards))/$shards" --sharding round-robin --output target \
  --copy-target=true --timeout 300 -- --locked --lib --test engramfs -- "${tests[@]}" --skip mount:: || true

caught=$(wc -l <target/mutants.out/caught.txt) missed=$(wc -l <target/mutants.out/missed.txt)
hung=$(wc -l <target/mutants.out/timeout.txt)
echo "caught $((caught + hung)) ($hung of them by a test that hung), missed $missed"
cat target/mutants.out/missed.txt
[ $(((caught + hung) * 10)) -ge $(((caught + hung + missed) * 9)) ]
