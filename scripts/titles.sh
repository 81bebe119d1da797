#!/usr/bin/env bash
# Checks the titles of commits after the one where this rule began: at most 72 characters, imperative, no full stop.
set -euo pipefail
cd "$(dirname "$0")/.."
first=f70636f
if ! git cat-file -e "$first^{commit}" 2>/dev/null; then
  echo "titles.sh: not checked: this is no clone with its history" >&2
  exit 0
fi
failed=0
while IFS= read -r title; do
  if [ ${#title} -gt 72 ] || [[ $title =~ \.$ ]] || [[ ! $title =~ ^[A-Z][a-z]+\  ]] ||
    [[ ${title%% *} =~ (ed|ing|[^s]s)$ && ! ${title%% *} =~ ^(Embed|Feed|Need|Seed|Speed|Shed|Bring|String|Ring|Focus)$ ]]; then
    echo "not an imperative of at most 72 characters: $title" >&2
    failed=1
  fi
done < <(git log --no-merges --format=%s "$first..HEAD")
exit $failed
