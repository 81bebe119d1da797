"""An agent with a uid and a closed branch of its own: it works there, checks what it reads, and attacks all others.

Words: MNT STORE NUMBER COUNT SECONDS. Standard input: the secret of its canaries, then a line when all are ready. Its last line
of standard output counts what it did and has what it found wrong. Root owns nothing and attacks alone: the control.
"""
import ctypes, errno, json, os, random, re, sys, threading, time

MNT, STORE, NUMBER, COUNT, SECONDS = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
SECRET = sys.stdin.readline().strip()
ROOT = os.getuid() == 0
BRANCHES = MNT + "/main/branches/"
OWN, SPARE, DOOR = (BRANCHES + f"{kind}{NUMBER:02}" for kind in ("own", "spare", "door"))
CANARY = re.compile(rb"canary(\d\d)x")
LIBC = ctypes.CDLL(None, use_errno=True)
chance = random.Random(NUMBER)
done, wrong = {}, []


def find(what, *about):
    if len(wrong) < 20:
        wrong.append([what, *map(str, about)])


def got(what, data):
    """Each byte that reaches an agent comes through here: none may be of another's canary."""
    done["bytes"] = done.get("bytes", 0) + len(data)
    for number in {int(number) for number in CANARY.findall(data)}:
        if number != NUMBER:
            find("leak", what, number, data[max(0, data.find(b"canary%02dx" % number) - 120) :][:240])
    return data


def canary(what):
    return f"canary canary{NUMBER:02}x{SECRET}-{what}"


def outcome(act):
    """The errno of what is refused; 0 and what came of it else."""
    try:
        return 0, act()
    except OSError as error:
        return error.errno, None


def load(path, flags=os.O_RDONLY, dir_fd=None, at=0):
    fd = os.open(path, flags | os.O_NONBLOCK, dir_fd=dir_fd)
    try:
        return got(path, os.pread(fd, 1 << 18, at))
    finally:
        os.close(fd)


def names(path):
    found = os.listdir(path)
    got(path, "\n".join(map(str, found)).encode())
    return found


def save(path, text, mode=0o666):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def say(fd, line):
    """One line to an open `query` or `ctl`, and what its handle reads afterwards, of a refusal too."""
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        got(line, os.read(fd, 1 << 18))


def tell(path, line):
    fd = os.open(path, os.O_RDWR)
    try:
        say(fd, line)
    finally:
        os.close(fd)


def walk(branch):
    """Reads all that a branch shows of itself. What it shares with the branches above it is open to whoever has a branch there."""
    for place in "vectors", "files", "checkpoints", "scratch", "export", "proposals", "config":
        for name in (outcome(lambda: names(f"{branch}/{place}"))[1] or [])[:9]:
            outcome(lambda: load(f"{branch}/{place}/{name}"))
    for name in READ:
        if not name.startswith(("shared", "search")):
            outcome(lambda: load(f"{branch}/{name}"))


READ = ["README.md", "status", "branches.jsonl", "lineage", "diff", "conflicts", "events.jsonl", "errors", "query", "ctl", "ingest",
        "shared/events.jsonl", "shared/log/entries.jsonl", "shared/log/unread", "shared/log/last/9", "search/canary"]
# What each closed branch has, and what none has.
TWINS = [("vectors/plain.json", "vectors/absent.json"), ("files/plain", "files/absent"), ("files/dir/deep", "files/dir/absent"),
         ("scratch/plain", "scratch/absent"), ("checkpoints/plain", "checkpoints/absent"), ("branches/plain", "branches/absent"),
         ("checkpoints/plain/vectors/plain.json", "checkpoints/absent/vectors/plain.json"), ("config/task", "config/absent"),
         ("shared/signals/plain", "shared/signals/absent"), ("at/-1s/files/plain", "at/999999999/files/plain"),
         ("branches/plain/files/plain", "branches/absent/files/plain"), ("files/canary-link", "files/absent-link")]
