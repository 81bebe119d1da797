#!/usr/bin/env bash
# Installs the libraries that `scripts/bench.sh search` compares with: setup.sh FOLDER
# From PyPI into FOLDER/venv, from npm into FOLDER/node. What can't be installed is one line of output, and no failure.
set -uo pipefail
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder/node"

if [ ! -x "$folder/venv/bin/python" ] && ! python3 -m venv "$folder/venv" 2>"$folder/venv.log"; then
    echo "no Python environment: $(tail -n 1 "$folder/venv.log")"
else
    for package in numpy hnswlib usearch faiss-cpu; do
        [ -e "$folder/venv/$package.done" ] && continue
        if "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$package" 2>"$folder/pip.log"; then
            touch "$folder/venv/$package.done"
        else
            echo "$package could not be installed: $(tail -n 1 "$folder/pip.log")"
        fi
    done
fi

# Node looks for packages beside the program that imports them.
cp "$here/agenticow.mjs" "$folder/node/"
if [ ! -d "$folder/node/node_modules/agenticow" ] &&
    ! npm install --silent --no-fund --no-audit --prefix "$folder/node" agenticow >"$folder/npm.log" 2>&1; then
    echo "agenticow could not be installed: $(tail -n 1 "$folder/npm.log")"
fi
exit 0
