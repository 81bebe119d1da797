"""Measures signals on a mount: wake-ups, listings and claims.

    python3 scripts/bench/signals.py target/release/engramfs [EVENTS]

Needs root, for several users.
"""

import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

WAITERS = 15
CLAIMANTS = 15
KEYS = 1000
WAKES = 200

# Follows the events, and says after each wake-up when it had read them.
WAITER = """
import os, select, sys, time
events = os.open(sys.argv[1] + "/shared/events.jsonl", os.O_RDONLY)
os.lseek(events, 0, os.SEEK_END)
poll = select.poll()
poll.register(events, select.POLLIN)
print("ready", flush=True)
while True:
    poll.poll()
    bytes = os.read(events, 1 << 16)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    if b'"key":"end"' in bytes:
        break
    if b'"event":"signal"' in bytes:
        print(now, flush=True)
"""

CLAIMANT = """
import os, sys
folder, count, won = sys.argv[1], int(sys.argv[2]), 0
for number in range(count):
    try:
        os.close(os.open(f"{folder}/task:{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        won += 1
    except FileExistsError:
        pass
print(won)
"""


def write(path, value):
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(handle, value)
    os.close(handle)


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


def wakes(main, waiters):
    """The median time in µs from the close of a signal to the last and to each wake-up."""
    signals = f"{main}/shared/signals"
    started = [
        subprocess.Popen([sys.executable, "-c", WAITER, f"{main}/branches/w{n}"], stdout=subprocess.PIPE, text=True)
        for n in range(waiters)
    ]
    for waiter in started:
        assert waiter.stdout.readline() == "ready\n"
    write(f"{signals}/state", b"0")
    for waiter in started:
        waiter.stdout.readline()
    times = []
    for number in range(WAKES):
        time.sleep(0.002)
        begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        write(f"{signals}/state", b"%d" % number)
        times += [(int(waiter.stdout.readline()) - begun) / 1e3 for waiter in started]
    write(f"{signals}/end", b"")
    for waiter in started:
        waiter.wait()
    os.unlink(f"{signals}/end")
    return statistics.median(times)


def wait_command(program, main):
    """The median time in µs from the close of a signal to the end of `engramfs wait`."""
    times = []
    for number in range(50):
        waiter = subprocess.Popen([program, "wait", f"{main}/shared/signals/go:{number}"], stdout=subprocess.PIPE)
        time.sleep(0.05)
        begun = time.perf_counter()
        write(f"{main}/shared/signals/go:{number}", b"1")
        waiter.wait()
        times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(times)


def grow(main, events):
    """Makes events until there are so many."""
    handle = os.open(f"{main}/shared/log/append", os.O_WRONLY)
    have = json.loads(open(f"{main}/status").read())["log_entries"]
    for first in range(have, events, 1000):
        os.write(handle, b"".join(b"entry %d\n" % number for number in range(first, min(first + 1000, events))))
    os.close(handle)


def listing(main):
    signals = f"{main}/shared/signals"
    for number in range(10_000):
        write(f"{signals}/listed:{number}", b"v")
    times = []
    for _ in range(20):
        begun = time.perf_counter()
        count = len(os.listdir(signals))
        times.append((time.perf_counter() - begun) * 1e3)
    assert count >= 10_000
    return statistics.median(times)


def claims(main):
    signals = f"{main}/shared/signals"
    started = []
    begun = time.perf_counter()
    for number in range(CLAIMANTS):
        command = [*as_user(2000 + number), sys.executable, "-c", CLAIMANT, f"{main}/branches/c{number}/shared/signals", str(KEYS)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    won = sum(int(process.communicate()[0]) for process in started)
    took = time.perf_counter() - begun
    there = sum(key.startswith("task:") for key in os.listdir(signals))
    return won, there, took


def main():
    program, events = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    work = tempfile.mkdtemp()
    os.chmod(work, 0o755)
    mnt = f"{work}/mnt"
    os.mkdir(mnt)
    subprocess.run([program, "mount", "--allow-other", f"{work}/store", mnt], check=True)
    try:
        main = f"{mnt}/main"
        for number in range(WAITERS):
            os.mkdir(f"{main}/branches/w{number}")
        for number in range(CLAIMANTS):
            subprocess.run([*as_user(2000 + number), "mkdir", f"{main}/branches/c{number}"], check=True)
        print("| what | figure | measured | how |\n|---|---|---|---|")
        grow(main, 1000)
        few = [wakes(main, waiters) for waiters in (1, WAITERS)]
        won, there, took = claims(main)
        right = "each by one" if won == there == KEYS else "WRONG"
        print(f"| claims: {CLAIMANTS} uids, {KEYS} keys | exactly {KEYS} winners | {won} | {right}; {took:.1f} s with the start of the programs |")
        print(f"| listing 10,000 signals | < 50 ms | {listing(main):.1f} ms | {len(os.listdir(f'{main}/shared/signals'))} of them |")
        command = wait_command(program, main)
        grow(main, events)
        many = [wakes(main, waiters) for waiters in (1, WAITERS)]
        print(f"| publish to wake-up by poll(2), one waiter | < 1 ms | {many[0] / 1e3:.2f} ms | at {events} events; {few[0] / 1e3:.2f} ms at 1000; p50 |")
        ratio = many[1] / few[1]
        print(f"| the same with {WAITERS} waiters, at {events} events / at 1,000 | ≤ 1.5 | {ratio:.2f} | {many[1] / 1e3:.2f} ms, {few[1] / 1e3:.2f} ms |")
        print(f"| publish to the end of `engramfs wait` | < 1 ms | {command / 1e3:.2f} ms | with the end of its process |")
    finally:
        subprocess.run([program, "umount", mnt], check=True)
        shutil.rmtree(work)


main()
