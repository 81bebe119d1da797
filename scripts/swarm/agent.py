"""One agent of the swarm: acts at random in the branch at /memory, and notes in /out what it was told was done.

    agent.py NAME SEED AGENTS TASKS PROGRAM

What it intends is noted before an act, what is so after it. An act that ends in a dead mount ends the agent; started anew, it looks which
of the two states its branch is in, and goes on. The exit code is 75 for a dead mount, 1 where something was not as it must be.
"""

import errno
import json
import os
import random
import subprocess
import sys
import time

NAME, SEED, AGENTS, TASKS, PROGRAM = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
HOME = "/memory"
DEAD = {errno.ENOTCONN, errno.EIO, errno.ESTALE, errno.ECONNABORTED, errno.ENOENT}
CANARY = "canary-"


class Wrong(Exception):
    pass


def write(path, text, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    handle = os.open(path, flags, 0o644)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def read(path):
    with open(path, "rb", buffering=0) as file:
        answer = b""
        while chunk := file.read(1 << 20):
            answer += chunk
    return answer.decode()


def ask(path, line):
    """Writes a line to a conversation, and returns what that answers."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.write(handle, line.encode() + b"\n")
        answer = b""
        while chunk := os.read(handle, 1 << 20):
            answer += chunk
    finally:
        os.close(handle)
    return answer.decode()


class Agent:
    def __init__(self):
        self.notes = open("/out/notes.jsonl", "a")
        self.number, self.records, self.promoted = 0, {}, {}
        self.open = None
        for line in open("/out/notes.jsonl"):
            self.take(json.loads(line))
        self.random = random.Random(SEED * 1_000_003 + self.number)
        if self.open:
            self.look()

    def take(self, note):
        """Takes a note that stands already, or was just made."""
        self.number = max(self.number, note.get("number", 0))
        if note["what"] == "intent":
            self.open = note
        elif note["what"] == "done":
            self.open = None
            if "records" in note:
                self.records = note["records"]
            if "promoted" in note:
                self.promoted = note["promoted"]

    def note(self, **note):
        self.notes.write(json.dumps(note) + "\n")
        self.notes.flush()
        os.fsync(self.notes.fileno())
        self.take(note)

    def look(self):
        """Finds out what became of the act that a dead mount cut off."""
        for name in os.listdir(f"{HOME}/branches"):
            os.rmdir(f"{HOME}/branches/{name}")
        lines = map(json.loads, read(f"{HOME}/export/records.jsonl").splitlines())
        # A promote brings what others have promoted.
        found = {line["id"]: line["text"] for line in lines if line["id"].startswith(f"{NAME}-r")}
        candidates = [self.records] + [self.open[key] for key in ("after",) if key in self.open]
        if found not in candidates:
            raise Wrong(f"the records are neither those before nor those after {self.open['act']}")
        # It can't know whether these counted, so it does them again.
        outcome = {}
        if self.open["act"] == "append":
            outcome = self.write_entry(self.open["number"])
        if self.open["act"] == "promote":
            outcome = self.bring(found)
        self.note(what="done", number=self.number, act="look", records=found, **outcome)

    def act(self, name, work, after=None):
        """Notes an act before and after it; `after` is what the records are then."""
        self.number += 1
        intent = {"what": "intent", "number": self.number, "act": name}
        self.note(**intent, **({"after": after} if after is not None else {}))
        outcome = work() or {}
        state = {"records": after} if after is not None else {}
        self.note(what="done", number=self.number, act=name, **state, **outcome)

    def fresh(self):
        return f"{NAME}-r{self.random.randrange(40)}", f"of {NAME} number {self.number}"

    def record(self):
        key, text = self.fresh()
        after = {**self.records, key: text}
        self.act("record", lambda: write(f"{HOME}/vectors/{key}.json", json.dumps({"text": text})), after)

    def forget(self):
        if not self.records:
            return
        key = self.random.choice(sorted(self.records))
        after = {other: text for other, text in self.records.items() if other != key}
        self.act("forget", lambda: os.unlink(f"{HOME}/vectors/{key}.json"), after)

    def append(self):
        number = self.number + 1
        self.act("append", lambda: self.write_entry(number))
        if self.random.random() < 0.2:
            # As one who does not know that it counted.
            self.write_entry(number)

    def write_entry(self, number):
        event = f"{NAME}-{number}"
        write(f"{HOME}/shared/log/append", json.dumps({"text": f"entry {event}", "event_id": event}) + "\n", os.O_WRONLY)
        return {"event": event}

    def claim(self):
        task = self.random.randrange(TASKS)

        def work():
            try:
                write(f"{HOME}/shared/signals/task:{task}", NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                return {"claimed": task}
            except FileExistsError:
                return {}

        self.act("claim", work)

    def signal(self):
        value = str(self.number + 1)
        self.act("signal", lambda: (write(f"{HOME}/shared/signals/state:{NAME}", value), {"signal": value})[1])

    def wait(self):
        other = f"state:agent-{self.random.randrange(AGENTS)}"
        subprocess.run([PROGRAM, "wait", f"{HOME}/shared/signals/{other}", "--timeout", "200ms"], capture_output=True)

    def question(self):
        self.seen(ask(f"{HOME}/query", json.dumps({"text": f"canary {self.number}", "k": 50})))

    def around(self):
        """Whatever can be read without being asked for."""
        for path in ("events.jsonl", "lineage", "branches.jsonl", "errors", "README.md", "status"):
            self.seen(read(f"{HOME}/{path}"))
        handle = os.open(f"{HOME}/shared/events.jsonl", os.O_RDONLY)
        end = os.lseek(handle, 0, os.SEEK_END)
        self.seen(os.pread(handle, 1 << 16, max(0, end - (1 << 16))).decode(errors="replace"))
        os.close(handle)
        self.seen(read(f"{HOME}/shared/log/last/50"))

    def seen(self, text):
        for place in text.split(CANARY)[1:]:
            if not place.startswith(f"{NAME} "):
                raise Wrong(f"it sees what is another's: {place[:80]!r}")

    def peek(self):
        """Asks for an entry of the lineage, whosever it is, and for another's name."""
        entry = self.random.randrange(1, json.loads(read(f"{HOME}/lineage").splitlines()[-1])["seq"] + 1)
        for verb in (f"show {entry}", f"show {entry} --changes"):
            try:
                self.seen(ask(f"{HOME}/ctl", verb))
            except OSError as error:
                if error.errno in DEAD - {errno.ENOENT}:
                    raise
        other = f"agent-{(int(NAME[6:]) + 1) % AGENTS}"
        for path, value in ((f"{HOME}/config/agent", other), (f"{HOME}/shared/signals/agent:{other}:x", "mine")):
            try:
                write(path, value)
            except PermissionError:
                continue
            raise Wrong(f"it may write {value} to {path}")

    def trial(self):
        """A fork that is merged or thrown away."""
        child, (key, text) = f"{HOME}/branches/try", self.fresh()
        merges = self.random.random() < 0.5

        def work():
            os.mkdir(child)
            if merges:
                write(f"{child}/vectors/{key}.json", json.dumps({"text": text}))
                os.rename(child, f"{HOME}/try")
            else:
                write(f"{child}/vectors/{CANARY}{NAME} thrown away.json", f"{CANARY}{NAME} is thrown away")
                os.rmdir(child)

        self.act("trial", work, {**self.records, key: text} if merges else self.records)

    def back(self):
        """Takes a checkpoint, writes, and goes back to it."""
        label = f"c{self.number}"
        self.act("checkpoint", lambda: os.mkdir(f"{HOME}/checkpoints/{label}"))
        before = self.records
        self.record()
        self.act("rollback", lambda: write(f"{HOME}/ctl", f"rollback {label}\n", os.O_WRONLY), before)
        self.act("uncheckpoint", lambda: os.rmdir(f"{HOME}/checkpoints/{label}"))

    def undo(self):
        before = self.records
        self.record()
        self.act("undo", lambda: write(f"{HOME}/ctl", "undo\n", os.O_WRONLY), before)

    def promote(self):
        self.act("promote", lambda: self.bring(self.records))

    def bring(self, records):
        write(f"{HOME}/ctl", "promote\n", os.O_WRONLY)
        return {"promoted": dict(records)}

    def secret(self):
        """What no merge takes along, and what is thrown away: nobody else may ever see it."""
        write(f"{HOME}/files/secret", f"{CANARY}{NAME} in a file {self.number}\n")
        write(f"{HOME}/scratch/secret", f"{CANARY}{NAME} in RAM {self.number}\n")

    def run(self):
        acts = [self.record] * 6 + [self.append] * 6 + [self.claim] * 3 + [self.signal] * 3
        acts += [self.question, self.around, self.trial, self.trial, self.back, self.undo, self.promote, self.forget, self.wait]
        acts += [self.secret, self.question, self.peek, self.peek]
        while not os.path.exists("/out/stop"):
            self.random.choice(acts)()


def main():
    try:
        Agent().run()
    except OSError as error:
        if error.errno not in DEAD:
            raise
        # Where the mount lives, no act may fail.
        time.sleep(0.3)
        try:
            os.stat(f"{HOME}/status")
        except OSError:
            sys.exit(75)
        raise


main()
