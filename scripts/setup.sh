#!/usr/bin/env bash
# Installs what a fresh Debian machine with Rust lacks for the tests; does nothing where it is there.
# Mounting as root needs none of it: fuse3 is for tests as another user, the rest for tests with real tools.
set -euo pipefail

needed=()
command -v fusermount3 >/dev/null || needed+=(fuse3)
command -v rsync >/dev/null || needed+=(rsync)
command -v jq >/dev/null || needed+=(jq)
command -v vim >/dev/null || needed+=(vim)
command -v bwrap >/dev/null || needed+=(bubblewrap)
command -v setpriv >/dev/null || needed+=(util-linux)
command -v strace >/dev/null || needed+=(strace)
[ ${#needed[@]} -eq 0 ] && exit 0
if [ "$(id -u)" != 0 ]; then
  echo "not root: the tests that need ${needed[*]} will fail or say that they were skipped" >&2
  exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${needed[@]}"
