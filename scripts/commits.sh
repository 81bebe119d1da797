#!/usr/bin/env bash
# Checks the messages of commits after those where these rules began. Title: at most 72 characters, imperative, no full stop. Body:
# there is one, behind an empty line, with at most 80 characters in a line; it says why.
set -euo pipefail
cd "$(dirname "$0")/.."
first=f70636f first_body=0a6a638
if ! git cat-file -e "$first^{commit}" 2>/dev/null; then
  echo "commits.sh: not checked: this is no clone with its history" >&2
  exit 0
fi
failed=0
complain() {
  echo "$1: $2" >&2
  failed=1
}
while IFS= read -r title; do
  if [ ${#title} -gt 72 ] || [[ $title =~ \.$ ]] || [[ ! $title =~ ^[A-Z][a-z]+\  ]] ||
    [[ ${title%% *} =~ (ed|ing|[^s]s)$ && ! ${title%% *} =~ ^(Embed|Feed|Need|Seed|Speed|Shed|Bring|String|Ring|Focus)$ ]]; then
    complain "not an imperative of at most 72 characters" "$title"
  fi
done < <(git log --no-merges --format=%s "$first..HEAD")
for commit in $(git rev-list --no-merges "$first_body..HEAD"); do
  title=$(git log -1 --format=%s "$commit") body=$(git log -1 --format=%b "$commit")
  [ -n "$body" ] || complain "no body says why" "$title"
  [ "$(wc -L <<<"$body")" -le 80 ] || complain "a line of the body has more than 80 characters" "$title"
done
exit $failed
