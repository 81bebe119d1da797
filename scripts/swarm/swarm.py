"""Runs a swarm of agents in sandboxes on one mount, kills the server now and then, and holds what is there against what they noted.

    swarm.py PROGRAM [--agents N] [--seconds N] [--entries N]
"""

import argparse
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIRST_UID = 5000
TASKS = 400
# How long the server lives, in seconds.
LIFE = (6, 14)
DEAD_MOUNT = 75


class Swarm:
    def __init__(self, options):
        self.options = options
        self.work = tempfile.mkdtemp(prefix="swarm-")
        os.chmod(self.work, 0o755)
        self.store, self.mnt, self.main = f"{self.work}/store", f"{self.work}/mnt", f"{self.work}/mnt/main"
        self.program = f"{self.work}/engramfs"
        shutil.copy(options.program, self.program)
        os.chmod(self.program, 0o755)
        shutil.copy(f"{HERE}/agent.py", f"{self.work}/agent.py")
        os.mkdir(self.mnt)
        self.server, self.agents, self.wrong = None, {}, []
        self.kills = self.restarts = 0

    def names(self):
        return [f"agent-{number}" for number in range(self.options.agents)]

    def serve(self):
        command = [self.program, "mount", "--foreground", "--allow-other", self.store, self.mnt]
        log = open(f"{self.work}/server.log", "a")
        self.server = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.time() + 60
        while not os.path.exists(f"{self.main}/status"):
            if self.server.poll() is not None or time.time() > end:
                sys.exit(f"the server does not start: {open(log.name).read()[-2000:]}")
            time.sleep(0.02)

    def prepare(self):
        self.serve()
        os.chmod(self.main, 0o777)
        with open(f"{self.main}/config/rules", "w") as rules:
            rules.write("/secret never\n*.jsonl union event_id\n** text\n")
        handle = os.open(f"{self.main}/shared/log/append", os.O_WRONLY)
        for first in range(0, self.options.entries, 1000):
            lines = (b"entry %d of before\n" % n for n in range(first, min(first + 1000, self.options.entries)))
            os.write(handle, b"".join(lines))
        os.close(handle)
        for number, name in enumerate(self.names()):
            uid = FIRST_UID + number
            os.mkdir(f"{self.work}/{name}")
            os.chown(f"{self.work}/{name}", uid, uid)
            self.as_user(number, ["mkdir", f"{self.main}/branches/{name}"])
            self.as_user(number, ["sh", "-c", f"echo {name} > {self.main}/branches/{name}/config/agent"])

    def as_user(self, number, command):
        uid = FIRST_UID + number
        subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command], check=True)

    def start(self, number):
        name, uid = self.names()[number], FIRST_UID + number
        links = [f for link in ("bin", "lib", "lib64") if os.path.exists(f"/usr/{link}") for f in ("--symlink", f"usr/{link}", f"/{link}")]
        sandbox = ["bwrap", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        sandbox += ["--ro-bind", f"{self.work}/agent.py", "/agent.py", "--ro-bind", self.program, "/engramfs"]
        sandbox += ["--bind", f"{self.main}/branches/{name}", "/memory", "--bind", f"{self.work}/{name}", "/out"]
        sandbox += ["--unshare-all", "--die-with-parent"]
        agent = ["/usr/bin/python3", "/agent.py", name, str(number), str(self.options.agents), str(TASKS), "/engramfs"]
        command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *sandbox, *agent]
        self.agents[number] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(f"{self.work}/{name}.log", "a"))

    def tend(self):
        """Starts agents anew whose mount died."""
        for number, agent in list(self.agents.items()):
            code = agent.poll()
            if code is None:
                continue
            log = f"{self.work}/agent-{number}.log"
            said = open(log).read()
            if code == DEAD_MOUNT or "Can't" in said[-300:] or "bwrap:" in said[-300:]:
                # Also where it began just as the mount died.
                open(log, "w").close()
                self.restarts += 1
                self.start(number)
            else:
                self.wrong.append(f"agent-{number} ended with {code}: {said[-800:]}")
                del self.agents[number]

    def run(self):
        chance = random.Random(self.options.seed)
        for number in range(self.options.agents):
            self.start(number)
        end, killed = time.time() + self.options.seconds, time.time() + chance.uniform(*LIFE)
        while time.time() < end and not self.wrong:
            time.sleep(0.1)
            if time.time() > killed:
                self.server.send_signal(signal.SIGKILL)
                self.server.wait()
                self.kills += 1
                self.serve()
                killed = time.time() + chance.uniform(*LIFE)
            self.tend()
        for name in self.names():
            open(f"{self.work}/{name}/stop", "w").close()
        end = time.time() + 30
        while any(agent.poll() is None for agent in self.agents.values()) and time.time() < end:
            time.sleep(0.1)
        for number, agent in self.agents.items():
            if agent.poll() != 0:
                agent.kill()
                self.wrong.append(f"agent-{number} does not end: {open(f'{self.work}/agent-{number}.log').read()[-800:]}")

    def notes(self, name):
        return [json.loads(line) for line in open(f"{self.work}/{name}/notes.jsonl")]

    def records(self, branch):
        lines = open(f"{branch}/export/records.jsonl").read().splitlines()
        return {line["id"]: line["text"] for line in map(json.loads, lines)}

    def own(self, name):
        found = self.records(f"{self.main}/branches/{name}")
        return {key: text for key, text in found.items() if key.startswith(f"{name}-r")}

    def check(self, holds, what):
        if not holds:
            self.wrong.append(what)

    def check_all(self):
        done = collections.Counter()
        events, winners = collections.Counter(), {}
        shared = self.records(self.main)
        log = [json.loads(line) for line in open(f"{self.main}/shared/log/entries.jsonl")]
        self.check([line["entry_id"] for line in log] == list(range(1, len(log) + 1)), "the log's numbers have gaps")
        found = collections.Counter(line["event_id"] for line in log if "event_id" in line)
        for name in self.names():
            notes = self.notes(name)
            acts = [note for note in notes if note["what"] == "done"]
            done.update(note["act"] for note in acts)
            records = [note["records"] for note in acts if "records" in note][-1:] or [{}]
            self.check(self.own(name) == records[0], f"the records of {name} are others than it was told")
            promoted = ([note["promoted"] for note in acts if "promoted" in note][-1:] or [{}])[0]
            for key, text in promoted.items():
                self.check(shared.get(key) == text, f"{key} of {name} was promoted and is not in main")
            events.update(note["event"] for note in acts if "event" in note)
            for task in (note["claimed"] for note in acts if "claimed" in note):
                self.check(winners.setdefault(task, name) == name, f"task {task} was claimed by {winners[task]} and {name}")
                value = open(f"{self.main}/shared/signals/task:{task}").read()
                self.check(value == name, f"task {task} was claimed by {name} and says {value!r}")
            signals = [int(note["signal"]) for note in acts if "signal" in note]
            if signals:
                value = int(open(f"{self.main}/shared/signals/state:{name}").read())
                self.check(value >= signals[-1], f"the signal of {name} says {value}, and {signals[-1]} was acknowledged")
            own = [line["event_id"] for line in log if line.get("event_id", "").rsplit("-", 1)[0] == name]
            order = [int(event.rsplit("-", 1)[1]) for event in own]
            self.check(order == sorted(order), f"the entries of {name} are not in its order")
        self.check(all(found[event] == 1 for event in events), "an acknowledged entry is missing or doubled")
        self.check(not found or max(found.values()) == 1, "an entry is doubled")
        return done, len(log), len(winners)

    def main_loop(self):
        self.prepare()
        self.run()
        done, entries, claims = self.check_all()
        subprocess.run([self.program, "umount", self.mnt], check=True)
        self.server.wait()
        verified = subprocess.run([self.program, "verify", self.store], capture_output=True, text=True)
        self.check(verified.returncode == 0, f"verify: {verified.stdout}{verified.stderr}")
        acts = ", ".join(f"{count} {act}" for act, count in sorted(done.items()))
        print(f"{self.options.agents} agents, {self.options.seconds} s, {self.kills} kills of the server, {self.restarts} restarts of agents")
        print(f"done: {acts}")
        print(f"{entries} entries in the log, {claims} tasks claimed; verify exits with {verified.returncode}")
        for what in self.wrong:
            print(f"WRONG: {what}")
        print("nothing is wrong" if not self.wrong else f"{len(self.wrong)} things are wrong")

    def clear(self):
        subprocess.run(["umount", "-l", self.mnt], capture_output=True)
        if self.server and self.server.poll() is None:
            self.server.kill()
        shutil.rmtree(self.work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--agents", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    swarm = Swarm(parser.parse_args())
    try:
        swarm.main_loop()
    finally:
        swarm.clear()
    sys.exit(1 if swarm.wrong else 0)


main()
