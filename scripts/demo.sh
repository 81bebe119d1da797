#!/usr/bin/env bash
# The main job, whole: builds engramfs, mounts a new memory, imports 96 real notes with their embeddings, forks two
# agents, asks, merges one, discards the other, proves the history, and cleans up. Needs root and /dev/fuse.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --locked --quiet
engramfs=$PWD/target/release/engramfs
data=$PWD/tests/data
work=$(mktemp -d)
clean_up() {
  cd /
  "$engramfs" umount "$work/mnt" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

say() { printf '\n\033[1m# %s\033[0m\n' "$1"; }
run() { printf '$ %s\n' "$1"; eval "$1"; }
[ -n "${NO_COLOR:-}" ] && say() { printf '\n# %s\n' "$1"; }

mkdir "$work/mnt"
cd "$work"
say "Make a memory and mount it"
run '"$engramfs" mount store mnt'
say "Put 96 notes of a shop's team into main, all or nothing"
run 'cat "$data/notes.jsonl" > mnt/main/ingest'
run 'ls mnt/main/vectors | wc -l'
run 'cut -c1-90 mnt/main/vectors/payments-01.json'
say "Two agents get a branch each: mkdir forks in constant time, whatever the memory holds"
run 'mkdir mnt/main/branches/ann mnt/main/branches/bob'
run 'echo ann > mnt/main/branches/ann/config/agent; echo bob > mnt/main/branches/bob/config/agent'
say "Ann learns something and forgets something; Bob tries another way. Neither sees the other"
run "echo '{\"text\":\"Webhooks are stored by event id, so a retried one is dropped.\",\"metadata\":{\"topic\":\"payments\"}}' > mnt/main/branches/ann/vectors/payments-11.json"
run 'rm mnt/main/branches/ann/vectors/team-10.json'
run "echo '{\"text\":\"Webhooks are never retried.\",\"metadata\":{\"topic\":\"payments\"}}' > mnt/main/branches/bob/vectors/payments-01.json"
run 'cat mnt/main/branches/ann/diff mnt/main/branches/bob/diff'
run 'echo "retried webhook" > mnt/main/branches/ann/query; cut -c1-150 mnt/main/branches/ann/query'
say "A question by its embedding and its words together, with a filter that acts inside the search"
head -n 1 "$data/questions.jsonl" | sed 's/^{/{"filter":{"topic":"payments"},/' > question.json
run 'cut -c1-100 question.json'
run 'cat question.json > mnt/main/branches/ann/query; cut -c1-150 mnt/main/branches/ann/query'
say "What would Ann's merge do? Then merge her into main (mv) and discard Bob (rmdir)"
run 'echo "merge --dry-run" > mnt/main/branches/ann/ctl; cat mnt/main/branches/ann/ctl'
run 'mv mnt/main/branches/ann mnt/main/'
run 'rmdir mnt/main/branches/bob'
run 'ls mnt/main/vectors | wc -l; ls mnt/main/branches'
say "Take a checkpoint, break something, go back: the rollback is a new commit"
run 'mkdir mnt/main/checkpoints/good'
run 'rm mnt/main/vectors/payments-*.json; ls mnt/main/vectors | wc -l'
run 'echo "rollback good" > mnt/main/ctl; ls mnt/main/vectors | wc -l'
say "Every step is signed and chained"
run '"$engramfs" log --graph mnt/main'
run '"$engramfs" umount mnt'
run '"$engramfs" verify store'
say "One flipped byte is found"
segment=$(find store/journal -type f | head -n 1)
printf '\xff' | dd of="$segment" bs=1 seek=3000 conv=notrunc status=none
run '"$engramfs" verify store || echo "exit code $?"'
