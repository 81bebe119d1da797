"""Holds leases of many branches with processes that are killed at random, and measures when the branches are collected.

    python3 scripts/bench/leases.py target/release/engramfs [BRANCHES]
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

TTL = 10
# How long processes may live, and how long after that their branches are waited for.
LIVES = 20
LIMIT = 150

HOLDER = """
import os, sys, time
lease = os.open(sys.argv[1] + "/lease", os.O_RDONLY)
print("held", flush=True)
time.sleep(1000)
"""


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    work = tempfile.mkdtemp()
    mnt = f"{work}/mnt"
    os.mkdir(mnt)
    subprocess.run([program, "mount", f"{work}/store", mnt], check=True)
    chance = random.Random(7)
    try:
        branches = f"{mnt}/main/branches"
        with open(f"{mnt}/main/config/child_ttl", "w") as ttl:
            ttl.write(f"{TTL}s\n")
        holders = {}
        for number in range(count):
            os.mkdir(f"{branches}/b{number}")
            holder = subprocess.Popen([sys.executable, "-c", HOLDER, f"{branches}/b{number}"], stdout=subprocess.PIPE)
            holder.stdout.readline()
            holders[number] = holder
        # One in ten works on, one in ten is written to without a lease.
        alive, written = set(range(0, count, 10)), set(range(1, count, 10))
        ends = {number: time.time() + chance.uniform(0, LIVES) for number in holders if number not in alive}
        gone, killed = {}, {}
        begun = time.time()
        while time.time() - begun < LIVES + LIMIT:
            now = time.time()
            for number in [number for number, end in ends.items() if end <= now]:
                holders[number].kill()
                holders[number].wait()
                killed[number] = now
                del ends[number]
            for number in written:
                if number in killed:
                    with open(f"{branches}/b{number}/vectors/alive.json", "w") as record:
                        record.write(f"still here {now}")
            there = {int(name[1:]) for name in os.listdir(branches)}
            for number in set(killed) - there - set(gone):
                gone[number] = now - killed[number]
            if len(gone) == count - len(alive) - len(written):
                break
            time.sleep(1)
        there = {int(name[1:]) for name in os.listdir(branches)}
        collected = set(gone)
        right = there == alive | written and not collected & (alive | written)
        slowest = max(gone.values(), default=0)
        how = f"{len(collected)} collected, {len(there)} that work or were written to stay" if right else f"WRONG: {sorted(there)}"
        print("| what | figure | measured | how |\n|---|---|---|---|")
        print(f"| {count} branches with leases, `ttl` {TTL} s, processes killed at random: all collected | ≤ 120 s after | {slowest:.0f} s | {how} |")
        for holder in holders.values():
            holder.kill()
            holder.wait()
    finally:
        subprocess.run([program, "umount", "--lazy", mnt], check=False)
        shutil.rmtree(work, ignore_errors=True)


main()
