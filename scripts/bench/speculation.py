"""Measures explore beside a script that does the same by hand, run beside bwrap, gates, and agents in sandboxes that are killed.

    python3 scripts/bench/speculation.py target/release/engramfs [AGENTS]

It takes root, since the agents have uids of their own.
"""

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TURNS = 15
CANDIDATES = 5
# Agents at a time, the ttl of their branches, how long each may live, and how long they are waited for.
AT_ONCE, TTL, LIVES, LIMIT = 15, 10, 4, 150

BY_HAND = r"""
cd "$1" || exit 1
for n in 1 2 3 4 5; do
  mkdir branches/hand-$n && (cd branches/hand-$n && ENGRAMFS_CANDIDATE=$n sh -c true)
done
best=0
for n in 1 2 3 4 5; do
  score=$(cd branches/hand-$n && ENGRAMFS_CANDIDATE=$n sh -c 'echo 1' | tail -n 1)
  [ "$score" -gt "$best" ] && best=$score chosen=$n
done
echo promote > branches/hand-$chosen/ctl
echo "{\"text\":\"explored 5 candidates\",\"kind\":\"explore\"}" > shared/log/append
for n in 1 2 3 4 5; do rmdir branches/hand-$n; done
"""

SANDBOX = [
    "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc",
    "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc",
    "--dev", "/dev", "--tmpfs", "/tmp",
]


def timed(command, **more):
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    return (time.perf_counter() - begun) * 1000


def row(what, figure, measured, how):
    print(f"| {what} | {figure} | {measured} | {how} |", flush=True)


def explore(program, main):
    by_hand, explored = [], []
    for _ in range(TURNS):
        by_hand.append(timed(["sh", "-c", BY_HAND, "sh", main]))
        explored.append(timed([program, "explore", main, "-n", str(CANDIDATES), "--run", "true", "--score", "echo 1"]))
    one, other = statistics.median(explored), statistics.median(by_hand)
    row(f"explore of {CANDIDATES} candidates that do nothing, beside a script by hand", "≤ 1.5 ×", f"{one / other:.2f} ×", f"{one:.0f} ms for {other:.0f}")


def run(program, main):
    branch = f"{main}/branches/sandbox"
    os.mkdir(branch)
    os.chown(branch, 4001, -1)
    bare, ours = [], []
    for _ in range(TURNS):
        bare.append(timed(SANDBOX + ["--bind", branch, "/memory", "true"], user=4001, group=4001, extra_groups=[]))
        ours.append(timed([program, "run", branch, "--uid", "4001", "--on-success", "keep", "--", "true"]))
    one, other = statistics.median(ours), statistics.median(bare)
    row("run over bwrap's own start", "+ < 30 ms", f"+ {one - other:.0f} ms", f"{one:.0f} ms for {other:.0f}")
    os.rmdir(branch)


def gates(main):
    """Merges of one record without a gate and through ten conditions, in turns."""
    ten = "\n".join(["deletes 10", "puts 10", "conflicts 0", "only vectors/*", "only ** files/**", "deletes 9", "puts 9", "approval 2 for files/core/**", "approval 1 for files/other/**", "conflicts 1"])
    mnt = os.path.dirname(main)
    parents = {"open": f"{mnt}/ungated", ten: f"{mnt}/gated"}
    for gate, parent in parents.items():
        os.mkdir(parent)
        with open(f"{parent}/config/gate", "w") as file:
            file.write(gate)
    took = {gate: [] for gate in parents}
    for turn in range(300):
        for gate, parent in parents.items():
            branch = f"{parent}/branches/x"
            os.mkdir(branch)
            with open(f"{branch}/vectors/gated.json", "w") as file:
                file.write(f"turn {turn} {len(gate)}")
            begun = time.perf_counter()
            with open(f"{branch}/ctl", "w") as ctl:
                ctl.write("merge\n")
            took[gate].append((time.perf_counter() - begun) * 1000)
    one, other = statistics.median(took[ten]), statistics.median(took["open"])
    row("merge of one record through a gate of 10 conditions", "no step that can be told", f"{one / other:.2f} ×", f"{one:.2f} ms for {other:.2f}")


def agents(program, main, count):
    with open(f"{main}/config/child_ttl", "w") as ttl:
        ttl.write(f"{TTL}s\n")
    chance = random.Random(7)
    work = "echo $$ > /memory/files/here; echo 'what I found' > /memory/vectors/found.json; sleep 1000"
    waiting, running, killed, gone = list(range(count)), {}, {}, {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number = waiting.pop()
            command = [program, "run", f"{main}/branches/agent-{number}", "--uid", str(5000 + number % AT_ONCE), "--", "sh", "-c", work]
            started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running[number] = (started, time.time() + 1 + chance.uniform(0, LIVES))
        for number, (process, end) in list(running.items()):
            if time.time() > end and os.path.exists(f"{main}/branches/agent-{number}/vectors/found.json"):
                process.kill()
                process.wait()
                killed[number] = time.time()
                del running[number]
        time.sleep(0.02)
    last = max(killed.values())
    while len(gone) < count and time.time() - last < LIMIT:
        there = set(os.listdir(f"{main}/branches"))
        gone.update({n: time.time() - killed[n] for n in range(count) if n not in gone and f"agent-{n}" not in there})
        time.sleep(0.5)
    back = 0
    for number in gone:
        with open(f"{main}/ctl", "w") as ctl:
            ctl.write(f"fork back-{number} from discarded agent-{number}\n")
        back += os.path.exists(f"{main}/branches/back-{number}/vectors/found.json")
    left = subprocess.run(["pgrep", "-fc", "^sleep 1000"], capture_output=True, text=True, check=False).stdout.strip()
    how = f"{len(gone)} of {count} collected, {back} brought back with what they wrote, {left} processes left"
    row(f"{count} agents by run, {AT_ONCE} at a time, killed at random, `ttl` {TTL} s: all collected", "≤ 120 s after", f"{max(gone.values(), default=0):.0f} s", how)


def main():
    program, count = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100
    work = tempfile.mkdtemp()
    os.chmod(work, 0o755)
    mnt = f"{work}/mnt"
    os.mkdir(mnt)
    subprocess.run([program, "mount", f"{work}/store", mnt, "--allow-other"], check=True)
    try:
        branch = f"{mnt}/main"
        print("| what | figure | measured | how |\n|---|---|---|---|")
        explore(program, branch)
        run(program, branch)
        gates(branch)
        agents(program, branch, count)
        verified = subprocess.run([program, "verify", f"{work}/store"], capture_output=True, text=True, check=False)
        print("\nverify:", "clean" if verified.returncode == 0 else verified.stderr.strip())
    finally:
        subprocess.run([program, "umount", "--lazy", mnt], check=False)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
