"""Measures the shared log on a mount: appending, reading its end among a million entries, and queries to branch and log.

    python3 scripts/bench/log.py target/release/engramfs [ENTRIES]

Needs root, for several users.
"""

import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from notes import ask

WRITERS = 15
SECONDS = 5
TURNS = 7


def median_us(work, times):
    taken = []
    for number in range(times):
        start = time.perf_counter()
        work(number)
        taken.append((time.perf_counter() - start) * 1e6)
    return statistics.median(taken)


def append(log, text):
    handle = os.open(f"{log}/append", os.O_WRONLY)
    os.write(handle, text.encode() + b"\n")
    os.close(handle)


def small_file(branch, number):
    handle = os.open(f"{branch}/files/f{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(handle, b"a line of some length, as an entry has\n")
    os.close(handle)


def read(path):
    with open(path, "rb", buffering=0) as file:
        answer = b""
        while chunk := file.read(1 << 20):
            answer += chunk
    return answer


def appending(main):
    """One entry beside one small file, in turns."""
    log, ratios, both = f"{main}/shared/log", [], []
    for turn in range(TURNS):
        entry = median_us(lambda number: append(log, f"entry {turn} {number} of some length, as a line has"), 500)
        file = median_us(lambda number: small_file(main, number), 500)
        ratios.append(entry / file)
        both.append((entry, file))
    entry, file = (statistics.median(column) for column in zip(*both))
    return f"| append of one entry / write of a small file, p50 | ≤ 1.5 | {statistics.median(ratios):.2f} | {entry:.0f} µs, {file:.0f} µs; {TURNS} turns |"


WRITER = """
import os, sys, time
log, name, until = sys.argv[1], sys.argv[2], time.time() + float(sys.argv[3])
handle, number = os.open(log + "/append", os.O_WRONLY), 0
while time.time() < until:
    os.write(handle, b'{"text":"%s %d","event_id":"%s-%d"}\\n' % (name.encode(), number, name.encode(), number))
    number += 1
print(number)
"""


def together(main):
    """Users with a branch each append at once."""
    before = json.loads(read(f"{main}/status"))["log_entries"]
    started = []
    for number in range(WRITERS):
        uid = 2000 + number
        as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        subprocess.run([*as_user, "mkdir", f"{main}/branches/w{number}"], check=True)
    for number in range(WRITERS):
        uid, log = 2000 + number, f"{main}/branches/w{number}/shared/log"
        as_user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        command = [*as_user, sys.executable, "-c", WRITER, log, f"w{number}", str(SECONDS)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    counts = [int(process.communicate()[0]) for process in started]
    events = [json.loads(line).get("event_id") for line in read(f"{main}/shared/log/entries.jsonl").splitlines()]
    wanted = sorted(f"w{n}-{m}" for n, count in enumerate(counts) for m in range(count))
    found = sorted(event for event in events if event and event.startswith("w"))
    right = "none lost or doubled" if found == wanted and len(events) == before + len(wanted) else "WRONG"
    return f"| {WRITERS} uids append at once | ≥ 2,000 entries/s | {sum(counts) / SECONDS:.0f} entries/s | {right} of {len(wanted)} |"


def at_the_end(main, entries):
    """What is read of the end of a long log."""
    log = f"{main}/shared/log"
    handle = os.open(f"{log}/append", os.O_WRONLY)
    have = json.loads(read(f"{main}/status"))["log_entries"]
    start = time.perf_counter()
    for first in range(have, entries, 1000):
        os.write(handle, b"".join(b"entry %d of a long log\n" % number for number in range(first, min(first + 1000, entries))))
    took = time.perf_counter() - start
    os.close(handle)
    total = json.loads(read(f"{main}/status"))["log_entries"]
    with open(f"{log}/cursor", "w") as cursor:
        cursor.write(f"{total - 20}\n")
    unread = median_us(lambda _: read(f"{log}/unread"), 300)
    last = median_us(lambda _: read(f"{log}/last/20"), 300)
    assert len(read(f"{log}/unread").splitlines()) == len(read(f"{log}/last/20").splitlines()) == 20
    return [
        f"| `unread` with 20 new entries | < 1 ms | {unread / 1000:.2f} ms | {total} entries |",
        f"| `last/20` | < 1 ms | {last / 1000:.2f} ms | {total} entries; {(entries - have) / took:.0f} entries/s in writes of 1,000 |",
    ]


def queries(mnt):
    """A query to a branch and its log, beside the same to one branch that holds both."""
    chance = random.Random(3)
    vocabulary = [f"w{number}" for number in range(30_000)]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(vocabulary))))
    texts = [" ".join(chance.choices(vocabulary, cum_weights=weights, k=20)) for _ in range(200_000)]
    for name in ("apart", "both"):
        os.mkdir(f"{mnt}/{name}")
    def ingest(branch, part):
        with open(f"{branch}/ingest", "w") as file:
            file.writelines(json.dumps({"id": f"r{number}", "text": text}) + "\n" for number, text in part)
    numbered = list(enumerate(texts))
    ingest(f"{mnt}/apart", numbered[:100_000])
    ingest(f"{mnt}/both", numbered)
    handle = os.open(f"{mnt}/apart/shared/log/append", os.O_WRONLY)
    for first in range(100_000, 200_000, 1000):
        os.write(handle, "".join(text + "\n" for text in texts[first:first + 1000]).encode())
    os.close(handle)
    with open(f"{mnt}/main/ctl", "w") as ctl:
        ctl.write("gc\n")
    ratios, both = [], []
    asked = [" ".join(chance.choices(vocabulary[20:3000], k=3)) for _ in range(200)]
    for _ in range(TURNS):
        taken = []
        for name in ("apart", "both"):
            taken.append(median_us(lambda number: ask(f"{mnt}/{name}", asked[number]), len(asked)))
        ratios.append(taken[0] / taken[1])
        both.append(taken)
    apart, one = (statistics.median(column) for column in zip(*both))
    return f"| query to a branch and its log of 100,000 entries / to one branch that holds both | ≤ 1.3 | {statistics.median(ratios):.2f} | {apart:.0f} µs, {one:.0f} µs; three words, {TURNS} turns |"


def run(program, entries):
    folder = tempfile.mkdtemp()
    store, mnt = f"{folder}/store", f"{folder}/mnt"
    os.chmod(folder, 0o755)
    os.mkdir(mnt)
    subprocess.run([program, "mount", "--allow-other", store, mnt], check=True, stdout=subprocess.DEVNULL)
    try:
        print("| what | figure | measured | how |\n|---|---|---|---|")
        print(appending(f"{mnt}/main"), flush=True)
        print(together(f"{mnt}/main"), flush=True)
        print("\n".join(at_the_end(f"{mnt}/main", entries)), flush=True)
        print(queries(mnt), flush=True)
    finally:
        subprocess.run([program, "umount", mnt], check=True)
    subprocess.run([program, "verify", store], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
