# The attacks. Each takes the number of another agent, whose branch is closed all the time and whose door opens and closes.

CLOSED = {errno.EACCES}
# What belongs to somebody else, in a folder with the sticky bit.
NOT_MINE = {errno.EACCES, errno.EPERM}


def refused(what, act, errnos=CLOSED):
    code, value = outcome(act)
    if code not in errnos and not ROOT:
        find("not refused", what, errno.errorcode.get(code, code), value)


def alike(what, act):
    """Whether something exists in a closed branch makes no difference."""
    there, absent = chance.choice(TWINS)
    answers = [outcome(lambda: act(name)) for name in (there, absent)]
    if not ROOT and (answers[0] != answers[1] or answers[0][0] == 0):
        find("tells", what, there, answers)


def closed(number):
    return f"{BRANCHES}own{number:02}"


def entries():
    """Numbers and hashes of entries, as the lineage of main shows them to everybody."""
    path = MNT + "/main/lineage"
    lines = load(path, at=chance.randrange(1 + os.stat(path).st_size)).splitlines()[1:-1]
    seen = [json.loads(line) for line in lines]
    return [str(entry[key]) for entry in seen for key in ("seq", "entry", "prev") if key in entry] or ["1"]


def state():
    return chance.choice([chance.choice(entries()), str(chance.randrange(1, 2000)), "plain", "late", "-1s", "-1m", "@7", "c1"])


def by_path(number):
    branch = closed(number)
    refused("list", lambda: names(branch))
    for name in chance.sample(READ, 4):
        refused("read " + name, lambda: load(f"{branch}/{name}"))
    alike("read", lambda name: load(f"{branch}/{name}"))
    alike("list", lambda name: names(f"{branch}/{name}"))
    alike("stat", lambda name: os.stat(f"{branch}/{name}"))
    alike("lstat", lambda name: os.lstat(f"{branch}/{name}"))
    alike("access", lambda name: os.readlink(f"{branch}/{name}"))
    alike("attribute", lambda name: os.getxattr(f"{branch}/{name}", "user.note"))
    if os.access(branch + "/files/plain", os.F_OK) and not ROOT:
        find("tells", "access", number)


def around(number):
    """The same by `..`, by links, by folders that are open, and by /proc."""
    if ROOT:
        return
    place = f"../own{number:02}"
    folder = os.open(SPARE, os.O_RDONLY)
    try:
        alike("dirfd", lambda name: load(f"{place}/{name}", dir_fd=folder))
        alike("stat by dirfd", lambda name: os.stat(f"{place}/{name}", dir_fd=folder))
        alike("/proc/self/fd", lambda name: load(f"/proc/self/fd/{folder}/{place}/{name}"))
        alike("..", lambda name: load(f"{MNT}/main/files/../branches/{place[3:]}/files/../vectors/../{name}"))
    finally:
        os.close(folder)
    os.chdir(SPARE + "/files")
    for target in f"../{place}/files", closed(number):
        link = f"{SPARE}/files/link{chance.randrange(1 << 30)}"
        os.symlink(target, link)
        alike("symlink", lambda name: load(link + "/../" + name.removeprefix("files/")))
        refused("list by symlink", lambda: names(link))
        os.unlink(link)


def moves(number):
    """Renames and hard links in both directions, whose two paths may be wrong in two ways."""
    branch, mine = closed(number), f"{SPARE}/files/mine{chance.randrange(1 << 30)}"
    if ROOT:
        return
    save(mine, "mine")
    for act in os.rename, os.link:
        alike(act.__name__ + " out", lambda name: act(f"{branch}/{name}", mine + "-taken"))
        alike(act.__name__ + " in", lambda name: act(mine, f"{branch}/{name}"))
        refused(act.__name__ + " over", lambda: act(mine, branch), {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EEXIST, errno.EXDEV})
    if os.path.lexists(mine + "-taken"):
        find("taken", number)
    # Not even between branches of one owner.
    refused("link across", lambda: os.link(mine, OWN + "/files/mine"), {errno.EXDEV})
    refused("rename across", lambda: os.rename(mine, OWN + "/files/mine"), {errno.EXDEV})
    os.unlink(mine)
    for to in f"{BRANCHES}taken", f"{MNT}/main/own{number:02}", f"{SPARE}/branches/taken":
        refused("rename a branch", lambda: os.rename(branch, to), {errno.EACCES, errno.EPERM, errno.EINVAL})
    refused("rmdir", lambda: os.rmdir(branch), NOT_MINE)


def changes(number):
    branch = closed(number)
    if ROOT:
        return
    alike("write", lambda name: save(f"{branch}/{name}", "taken over"))
    alike("unlink", lambda name: os.unlink(f"{branch}/{name}"))
    alike("mkdir", lambda name: os.mkdir(f"{branch}/{name}"))
    alike("truncate", lambda name: os.truncate(f"{branch}/{name}", 0))
    alike("chmod", lambda name: os.chmod(f"{branch}/{name}", 0o777))
    alike("utime", lambda name: os.utime(f"{branch}/{name}"))
    alike("setxattr", lambda name: os.setxattr(f"{branch}/{name}", "user.x", b"x"))
    refused("fork", lambda: os.mkdir(branch + "/branches/taken"))
    refused("chmod the branch", lambda: os.chmod(branch, 0o777), NOT_MINE)
    refused("chown the branch", lambda: os.chown(branch, os.getuid(), -1), NOT_MINE)


def by_handle(number):
    """Handles that name_to_handle_at(2) could have given, opened as oneself and as root of a new user namespace."""
    # Numbers in order, those near to an own one, and what stat(2) tells everybody of a closed branch.
    mine, theirs = os.stat(MNT if ROOT else SPARE + "/files").st_ino, os.stat(closed(number)).st_ino
    start = chance.randrange(400)
    nodes = [*range(start, start + 50), *range(mine - 25, mine + 25), *range(theirs - 5, theirs + 5)]
    try_handles(nodes, os.O_RDONLY)
    child = os.fork()
    if child == 0:
        uid = os.getuid()
        wrong.clear()
        # CLONE_NEWUSER and CLONE_NEWNS: the kernel lets who owns a copy of all mounts open handles of folders.
        if LIBC.unshare(0x10000000 | 0x20000) == 0:
            save("/proc/self/setgroups", "deny")
            save("/proc/self/uid_map", f"0 {uid} 1")
            outcome(lambda: load(closed(number) + "/files/plain"))
            outcome(lambda: names(closed(number)))
            try_handles(nodes, os.O_RDONLY | os.O_DIRECTORY)
        os._exit(min(len(wrong), 100))
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) and not ROOT:
        find("leak", "in a user namespace")


def try_handles(nodes, flags):
    mount = os.open(MNT, os.O_RDONLY)
    buffer, identity = ctypes.create_string_buffer(8 + 128), ctypes.c_int()
    buffer[0:4] = (128).to_bytes(4, "little")
    if LIBC.name_to_handle_at(mount, b"", buffer, ctypes.byref(identity), 0x1000) != 0:
        find("no handles", os.strerror(ctypes.get_errno()))
    for node in nodes:
        # The number's upper and lower half, and the generation behind them.
        forged = (node % (1 << 64)).to_bytes(8, "little")
        buffer[8:16] = forged[4:] + forged[:4]
        fd = LIBC.open_by_handle_at(mount, buffer, flags)
        done["handles"] = done.get("handles", 0) + 1
        if fd >= 0:
            done["opened"] = done.get("opened", 0) + 1
            outcome(lambda: got("a handle", "\n".join(os.listdir(fd)).encode()))
            outcome(lambda: got("a handle", os.read(fd, 1 << 16)))
            for name in "plain", "plain.json", "files/plain":
                outcome(lambda: load(name, dir_fd=fd))
            os.close(fd)
    os.close(mount)


def by_process(number):
    """What /proc shows of the other agents and of the server."""
    me = os.getuid()
    pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and outcome(lambda: os.stat(f"/proc/{pid}").st_uid)[1] not in (me, None)]
    for pid in chance.sample(pids, min(8, len(pids))):
        for place in "cwd", "root", "fd/3", "fd/4", f"root{closed(number)}/files/plain", "cwd/files/plain":
            outcome(lambda: os.readlink(f"/proc/{pid}/{place}"))
            if not ROOT:
                outcome(lambda: load(f"/proc/{pid}/{place}"))
        for place in "fd", "root", "cwd", "map_files", f"root{closed(number)}":
            outcome(lambda: names(f"/proc/{pid}/{place}"))
        for place in "environ", "mem", "maps", "stack", "cmdline", "comm", "mountinfo":
            outcome(lambda: load(f"/proc/{pid}/{place}"))
    for name in "", "manifest", "lock", "journal", "segments", "keys":
        refused("the store's " + name, lambda: names(f"{STORE}/{name}"), {errno.EACCES})
        refused("the store's " + name, lambda: load(f"{STORE}/{name}"), {errno.EACCES})


def races(number):
    """A folder and a link into a closed branch change places while a path through them is walked."""
    if ROOT:
        return
    swap, bait = f"{SPARE}/files/swap{chance.randrange(1 << 30)}", f"{SPARE}/files/bait{chance.randrange(1 << 30)}"
    os.mkdir(swap)
    save(swap + "/plain", "mine")
    os.symlink(closed(number) + "/files", bait)
    end = time.monotonic() + 0.02

    def flip():
        while time.monotonic() < end:
            LIBC.renameat2(-100, swap.encode(), -100, bait.encode(), 2)

    flipper = threading.Thread(target=flip)
    flipper.start()
    while time.monotonic() < end:
        for name in "plain", "absent":
            outcome(lambda: load(f"{swap}/{name}"))
            code = outcome(lambda: os.stat(f"{bait}/{name}"))[0]
            if code not in (0, errno.EACCES, errno.ENOENT):
                find("not refused", "race", errno.errorcode[code])
    flipper.join()


def queries(number):
    places = ["branch", "log", "files", "main", f"own{number:02}", f"main/own{number:02}", f"../own{number:02}", "..", ".", "/", "*",
              f"log:own{number:02}", f"log:door{number:02}", f"log:door{number:02}@{state()}", "checkpoints/plain", closed(number)]
    for branch in (SPARE, MNT + "/main") if not ROOT else (closed(number),):
        question = {"k": chance.choice([3, 100, 10000]), "include": ["stamp"], "explain": True, "timeout_ms": 9000}
        question |= chance.choice([{"text": "canary"}, {"text": f"canary own{number:02} plain late"}, {"id": "plain"}, {"id": "late"}])
        question |= chance.choice([{}, {"at": state()}, {"scope": chance.sample(places, 2)}, {"scope": [chance.choice(places)]}])
        question |= chance.choice([{}, {"filter": {"@branch": f"main/own{number:02}"}}, {"filter": {"@uid": {"$ne": os.getuid()}}}])
        outcome(lambda: tell(branch + "/query", json.dumps(question)))
        outcome(lambda: load(f"{branch}/search/canary plain late {number}"))


def verbs(number):
    """Verbs of `ctl` in main and in a branch that may suffer; what a fork brings is read and thrown away."""
    theirs, doors, fresh = f"own{number:02}", f"door{number:02}", f"fresh{NUMBER:02}"
    lines = [f"fork {fresh} from {state()}", f"fork {fresh} from discarded {doors}", f"fork {fresh} from discarded {theirs}",
             f"fork {fresh} from discarded {state()}", f"diff /main/{theirs}", f"diff /main/{doors} {state()}", f"diff {state()}",
             f"diff {state()} /main/{theirs}", f"show {state()}", f"show {state()} --changes", f"show {chance.choice(entries())}",
             f"show {chance.choice(entries())} --changes", f"rollback {state()}", "resolve plain child", "resolve files/plain parent",
             "undo", "undo 3", "redo", f"revert {state()}", "merge --dry-run", "promote --dry-run", "pull", "pull --dry-run", "discarded",
             f"approve {theirs} {'0' * 64}", f"refuse {theirs} {'0' * 64} no", "gc", "checkpoint taken", "archive-log 1"]
    for branch in (SPARE, MNT + "/main") if not ROOT else (closed(number),):
        for line in chance.sample(lines, 4):
            # main is root's: whoever asks for a change there is refused.
            outcome(lambda: tell(branch + "/ctl", line))
            outcome(lambda: load(branch + "/ctl"))
        if outcome(lambda: os.stat(f"{branch}/branches/{fresh}"))[0] == 0:
            walk(f"{branch}/branches/{fresh}")
            os.rmdir(f"{branch}/branches/{fresh}")


def purge():
    """Asks who else has what is called so: once, since each state that is kept is looked at for it."""
    for name in "plain", "files/plain":
        outcome(lambda: tell(SPARE + "/ctl", f"purge {name} --dry-run"))
        if b"main/own" in load(SPARE + "/ctl"):
            find("tells", "purge", name)


def told(number):
    """What main and an own branch show of what happens around them, now and in earlier states."""
    for branch in (SPARE, MNT + "/main") if not ROOT else (closed(number),):
        place = chance.choice(["", "", "at/-1s/", f"at/{state()}/", "checkpoints/plain/"])
        name = chance.choice(READ)
        size = outcome(lambda: os.stat(f"{branch}/{place}{name}").st_size)[1] or 0
        outcome(lambda: load(f"{branch}/{place}{name}", at=chance.randrange(1 + size)))
        for folder in "", "proposals", "branches", "checkpoints", "shared/signals", "shared/log/closed", "at/-1s/branches":
            outcome(lambda: names(f"{branch}/{folder}"))
        for inside in "vectors/plain.json", "files/plain", "plan", "diff", "lineage", "status":
            outcome(lambda: load(f"{branch}/proposals/own{number:02}/{inside}"))
            outcome(lambda: load(f"{branch}/{place}branches/own{number:02}/{inside}"))
    foreign = chance.choice(entries())
    if not ROOT:
        answers = [outcome(lambda: load(f"{OWN}/at/{entry}/files/absent"))[0] for entry in (foreign, "999999999")]
        if answers != [errno.ENOENT] * 2:
            find("tells", "at", foreign, answers)


held = []


def hold(number):
    """Opens what leads into another's door while that is open; it is kept for later."""
    door = f"{BRANCHES}door{number:02}"
    opened = {}
    for name in "", "vectors", "files", "search", "export", "branches", "checkpoints", "shared/signals", "shared/log", "at", "config":
        opened[name] = outcome(lambda: os.open(f"{door}/{name}", os.O_RDONLY | os.O_DIRECTORY))[1]
    for name in "query", "ctl":
        opened[name] = outcome(lambda: os.open(f"{door}/{name}", os.O_RDWR))[1]
    for name in "events.jsonl", "shared/events.jsonl", "shared/log/entries.jsonl", "errors", "lineage", "status", "vectors/plain.json", "shared/signals/plain":
        opened[name] = outcome(lambda: os.open(f"{door}/{name}", os.O_RDONLY | os.O_NONBLOCK))[1]
        opened["path of " + name] = outcome(lambda: os.open(f"{door}/{name}", os.O_PATH))[1]
    opened = {name: fd for name, fd in opened.items() if fd is not None}
    if len(opened) > 9:
        done["doors"] = done.get("doors", 0) + 1
        held.append(opened)
        if len(held) > 8:
            for fd in held.pop(chance.randrange(8)).values():
                os.close(fd)


def pry(number):
    """Tries all that is held of one door, whether that is open, closed or gone."""
    if not held:
        return
    opened, fresh = chance.choice(held), f"pried{NUMBER:02}"
    below = {"": ["vectors/late.json", "files/late", "lineage"], "vectors": ["late.json", "plain.json"], "files": ["late", "plain"],
             "search": ["canary"], "export": ["records.jsonl", "ids.txt"], "checkpoints": ["late/vectors/late.json", "late/search/canary"],
             "shared/signals": ["late", "plain"], "shared/log": ["entries.jsonl", "last/9", "unread"], "at": ["-1s/vectors/late.json"], "config": ["task"]}
    for name, fd in opened.items():
        for inside in below.get(name, []):
            outcome(lambda: load(inside, dir_fd=fd))
        if name in ("query", "ctl"):
            line = "canary plain late" if name == "query" else chance.choice([f"fork {fresh}", "diff", f"diff {state()}", f"show {state()}", "merge --dry-run"])
            outcome(lambda: say(fd, line))
        elif name == "branches":
            if outcome(lambda: os.mkdir(fresh, dir_fd=fd))[0] == 0:
                walk(f"/proc/self/fd/{fd}/{fresh}")
                outcome(lambda: os.rmdir(fresh, dir_fd=fd))
        elif name in below:
            outcome(lambda: got(name, "\n".join(os.listdir(fd)).encode()) if name != "files" else b"")
        elif not name.startswith("path"):
            outcome(lambda: got(name, os.pread(fd, 1 << 16, 0)))
            outcome(lambda: got(name, os.read(fd, 1 << 16)))
        outcome(lambda: load(f"/proc/self/fd/{fd}"))


ATTACKS = [by_path, around, moves, changes, by_handle, by_process, races, queries, verbs, told, hold, hold, pry, pry]


def main():
    if not ROOT:
        move_in()
    print("ready", flush=True)
    sys.stdin.readline()
    if not ROOT:
        purge()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        number = chance.choice([number for number in range(COUNT) if number != NUMBER])
        attack = chance.choice(ATTACKS)
        attack(number)
        done[attack.__name__] = done.get(attack.__name__, 0) + 1
        if not ROOT:
            try:
                chance.choice(WORK)()
            except OSError:
                # An owner is refused nothing: what the server said, if it was the server.
                for branch in OWN, DOOR:
                    print(branch, outcome(lambda: load(branch + "/errors")[-2000:]), file=sys.stderr)
                raise
    print(json.dumps({"done": done, "wrong": wrong}))


main()
