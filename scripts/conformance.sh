#!/usr/bin/env bash
# Holds files/ against the public suites for file systems and prints a table; exit 1 when anything failed.
#   scripts/conformance.sh [--quick] [FOLDER]
# FOLDER (else $ENGRAMFS_SUITES, else a temporary one) keeps the installed suites for the next time. ENGRAMFS_BINARY
# names the program to test (else this package is built with --release). Needs root, /dev/fuse and Rust.
# --quick takes at most 3 minutes: the same checks with fewer operations.
set -euo pipefail
cd "$(dirname "$0")/.."

quick='' suites=${ENGRAMFS_SUITES:-}
for word in "$@"; do
  case $word in
    --quick) quick=yes ;;
    -*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) suites=$word ;;
  esac
done
if [ "$(id -u)" != 0 ]; then
  echo "conformance.sh: only root may make nodes, change owners and remount; run it as root" >&2
  exit 2
fi

work=$(mktemp -d)
suites=${suites:-$work/suites}
mnt=$work/mnt logs=$work/logs failed=0
mkdir -p "$mnt" "$logs" "$work/other" "$work/bin" "$suites"
chmod 755 "$work"
suites=$(cd "$suites" && pwd)

finish() {
  mountpoint -q "$mnt" && { "$engramfs" umount "$mnt" 2>/dev/null || umount -l "$mnt"; }
  if [ $failed = 0 ]; then rm -rf "$work"; else echo "logs and the store are kept in $work" >&2; fi
}
trap finish EXIT

install_suites() {
  local crate
  for crate in pjdfstest@0.2.2 fsx@0.3.2; do
    [ -x "$suites/bin/${crate%@*}" ] || cargo install --quiet --locked --root "$suites" "$crate"
  done
}

# pjdfstest acts as two users beside root.
make_users() {
  getent group nogroup >/dev/null || { groupadd --system nogroup; echo "made the group nogroup" >&2; }
  getent passwd nobody >/dev/null || { useradd --system -g nogroup nobody; echo "made the user nobody" >&2; }
  getent passwd tests >/dev/null || { useradd --user-group tests; echo "made the user tests with a group" >&2; }
}

# row WHAT RESULT SECONDS
row() { printf '| %s | %s | %s s |\n' "$1" "$2" "$3"; }

# check WHAT LIMIT COMMAND…: runs it, at most LIMIT seconds; its last line of output is the result shown.
check() {
  local what=$1 limit=$2 start=$SECONDS log="$logs/${1//[^a-z0-9]/-}" code=0
  shift 2
  export -f fsx pjdfstest churn on_a_fork across_merges between_merges verified
  timeout -k 5 "$limit" bash -euo pipefail -c '"$@"' check "$@" >"$log" 2>&1 || code=$?
  if [ $code = 0 ]; then
    row "$what" "$(tail -n 1 "$log")" $((SECONDS - start))
  else
    failed=1
    row "$what" "**failed** ($code)" $((SECONDS - start))
    tail -n 25 "$log" >&2
  fi
}

# pjdfstest REMOUNT [PATTERN]: runs the cases on the mount, EXDEV against a folder outside of it.
pjdfstest() {
  local remount=$1 log code=0
  shift
  log=$logs/pjdfstest-${1:-all}.txt
  cat >"$work/pjdfstest.toml" <<TOML
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = $remount
[dummy_auth]
entries = [["nobody", "nogroup"], ["tests", "tests"]]
TOML
  PATH=$work/bin:$PATH "$suites/bin/pjdfstest" -c "$work/pjdfstest.toml" -p "$mnt/main/files/p" -s "$work/other" "$@" \
    >"$log" 2>&1 || code=$?
  grep -A 2 FAILED "$log" || true
  sed -n 's/^Summary: //p' "$log"
  return $code
}

# fsx NAME SEED OPERATIONS [SETTINGS]: random reads, writes, mappings, cuts, holes and copies of a file, each compared.
fsx() {
  local said
  said=$("$suites/bin/fsx" -f "$work/${4:-fsx.toml}" -N "$3" -S "$2" -P "$logs" "$mnt/$1" 2>&1) || { echo "$said"; return 1; }
  echo "$3 operations, 0 failures"
}

# Forks of main that come and go, and others that bring a file and merge, as long as the process $1 lives.
churn() {
  local n=0
  while kill -0 "$1" 2>/dev/null; do
    n=$((n + 1))
    mkdir "$mnt/main/branches/come$n" "$mnt/main/branches/bring$n"
    echo "$n" >"$mnt/main/branches/bring$n/files/brought$((n % 7))"
    mv "$mnt/main/branches/bring$n" "$mnt/main/"
    rmdir "$mnt/main/branches/come$n"
    sleep 0.1
  done
  echo "$n forks and merges beside it"
}

# The fork begins with the file as the parent has it, and neither sees the other's later writes.
on_a_fork() {
  local parent beside
  fsx main/files/shared "$1" "$2" & parent=$!
  churn $parent & beside=$!
  sleep 0.5
  mkdir "$mnt/main/branches/fork"
  fsx main/branches/fork/files/shared $(($1 + 1)) "$2"
  wait $parent
  wait $beside
  rmdir "$mnt/main/branches/fork"
  echo "2 × $2 operations, 0 failures"
}

# A branch is promoted and pulled again and again while its file is written; in the end its bytes are the parent's.
across_merges() {
  local child n=0
  mkdir "$mnt/main/branches/fork"
  fsx main/branches/fork/files/merged "$1" "$2" & child=$!
  while kill -0 $child 2>/dev/null; do
    n=$((n + 1))
    echo "$n" >"$mnt/main/files/parent$((n % 7))"
    if [ $((n % 2)) = 0 ]; then echo promote; else echo pull; fi >"$mnt/main/branches/fork/ctl"
    sleep 0.1
  done
  wait $child
  cp "$mnt/main/branches/fork/files/merged" "$work/merged"
  mv "$mnt/main/branches/fork" "$mnt/main/"
  cmp "$work/merged" "$mnt/main/files/merged"
  fsx main/files/merged $(($1 + 1)) "$2"
  echo "2 × $2 operations across $n promotes and pulls and a merge, 0 failures"
}

# Run in a fork, merge, go on in the parent, and again.
between_merges() {
  local n
  for n in $(seq "$3"); do
    mkdir "$mnt/main/branches/turn$n"
    fsx "main/branches/turn$n/files/turns" $(($1 + n)) "$2"
    cp "$mnt/main/branches/turn$n/files/turns" "$work/turn"
    mv "$mnt/main/branches/turn$n" "$mnt/main/"
    cmp "$work/turn" "$mnt/main/files/turns"
    fsx main/files/turns $(($1 + 100 + n)) "$2"
  done
  echo "$3 × 2 × $2 operations, a merge between each, 0 failures"
}

verified() { "$engramfs" verify "$work/store" && echo "every hash and signature is right"; }

install_suites
make_users
engramfs=${ENGRAMFS_BINARY:-}
if [ -z "$engramfs" ]; then
  cargo build --quiet --release --locked
  engramfs=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/engramfs
fi
# pjdfstest remounts by mount(8), which would ask a helper that does not know how.
printf '#!/bin/sh\nexec /bin/mount -i "$@"\n' >"$work/bin/mount"
chmod 755 "$work/bin/mount"
cat >"$work/fsx.toml" <<'TOML'
flen = 524288
[opsize]
max = 131072
[weights]
close_open = 1.0
read = 10.0
write = 10.0
mapread = 10.0
mapwrite = 10.0
truncate = 10.0
invalidate = 1.0
fsync = 0.3
fdatasync = 0.3
posix_fallocate = 3.0
punch_hole = 5.0
sendfile = 3.0
posix_fadvise = 1.0
copy_file_range = 5.0
TOML
# Whole chunks of 64 KiB, up to 16 at once: such writes go another way. Of aligned lengths fsx makes one of 0 for
# posix_fallocate, which no file system takes.
sed -e 's/^flen.*/flen = 4194304/; s/^max.*/max = 1048576\nalign = 65536/; /posix_fallocate/d' "$work/fsx.toml" >"$work/chunks.toml"
export engramfs suites mnt logs work

"$engramfs" mount "$work/store" "$mnt" --allow-other
mkdir "$mnt/main/files/p"
chmod 777 "$mnt/main/files/p"
if [ $quick ]; then seeds='1 2' operations=10000 turns=2 limit=60; else seeds='1 2 3 4 5' operations=100000 turns=5 limit=1800; fi

printf '| check | result | time |\n|---|---|---|\n'
check "pjdfstest 0.2.2" 400 pjdfstest false
# In a process of its own: the suite leaves files open, and then nothing can be made read-only (on ext4 neither).
check "pjdfstest 0.2.2, read-only file system" 200 pjdfstest true erofs
for seed in $seeds; do check "fsx, seed $seed" $limit fsx "main/files/fsx$seed" "$seed" $operations; done
check "fsx in whole chunks" $limit fsx main/files/chunks 41 $((operations / 10)) chunks.toml
check "fsx on a fork while the parent is written" $limit on_a_fork 11 $operations
check "fsx while its branch is promoted and pulled" $limit across_merges 21 $operations
check "fsx, merge, and on" $limit between_merges 31 $((operations / 10)) $turns
"$engramfs" umount "$mnt"
check "verify of the store afterwards" 600 verified

echo
echo "Left out:"
grep -h -A 1 ' skipped$' "$logs/pjdfstest-all.txt" | grep -v -e '^--' | paste - - | grep -v -e erofs |
  sed 's/ *skipped\t*/: /; s/^/- /' || echo "- nothing"
exit $failed
