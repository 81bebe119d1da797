# The owner's work in its own branch, with a model of what it must read there.

records, files, kept = {}, {}, {}


def same(what, read, written):
    done["checks"] = done.get("checks", 0) + 1
    if read != written:
        find("wrong read", what, read, written)


def text_of(path):
    return json.loads(load(path))["text"]


def move_in():
    """Leaves a canary at each place that a branch has."""
    for branch in OWN, SPARE:
        os.mkdir(branch)
        save(branch + "/config/log", "own")
        for label in "task", "session":
            save(f"{branch}/config/{label}", canary(label))
        for name in "plain", canary("id").split()[1]:
            save(f"{branch}/vectors/{name}.json", json.dumps({"text": canary("text"), "metadata": {"key": canary("metadata")}}))
            save(f"{branch}/files/{name}", canary("content"))
            save(f"{branch}/scratch/{name}", canary("scratch"))
            save(f"{branch}/shared/signals/{name}", canary("signal"))
            os.mkdir(f"{branch}/checkpoints/{name}")
            os.mkdir(f"{branch}/branches/{name}")
        os.mkdir(branch + "/files/dir")
        save(branch + "/files/dir/deep", canary("deep"))
        os.symlink(canary("target"), branch + "/files/canary-link")
        os.setxattr(branch + "/files/plain", "user.note", canary("attribute").encode())
        save(branch + "/shared/log/append", canary("entry") + "\n")
        tell(branch + "/query", canary("question"))
        outcome(lambda: tell(branch + "/ctl", "rollback " + canary("nothing").split()[1]))
    records.update({name[:-5]: canary("text") for name in names(OWN + "/vectors") if "plain" in name or "canary" in name})
    for name in "plain", canary("id").split()[1]:
        files[name] = canary("content")


def put():
    id = f"r{chance.randrange(9)}"
    records[id] = canary(f"text-{time.monotonic_ns()}")
    save(f"{OWN}/vectors/{id}.json", json.dumps({"text": records[id]}))
    same("record", text_of(f"{OWN}/vectors/{id}.json"), records[id])


def write():
    name = f"f{chance.randrange(9)}"
    files[name] = canary(f"content-{time.monotonic_ns()}")
    save(f"{OWN}/files/{name}", files[name])
    same("file", load(f"{OWN}/files/{name}").decode(), files[name])


def remove():
    for folder, model, end in ("vectors", records, ".json"), ("files", files, ""):
        name = chance.choice(sorted(model))
        if name[0] in "rf":
            os.unlink(f"{OWN}/{folder}/{name}{end}")
            del model[name]


def look():
    inherited = {"a"}
    same("records", {name[:-5] for name in names(OWN + "/vectors")} - inherited, set(records))
    same("files", set(names(OWN + "/files")) - {"dir", "canary-link", "bait", "swap"}, set(files))
    id, name = chance.choice(sorted(records)), chance.choice(sorted(files))
    same("record", text_of(f"{OWN}/vectors/{id}.json"), records[id])
    same("file", load(f"{OWN}/files/{name}").decode(), files[name])
    hits = [json.loads(line) for line in load(OWN + "/search/canary").splitlines()][1:]
    same("hits", {hit["id"] for hit in hits if "id" in hit and hit["source"] == "branch"} <= set(records), True)


def speak():
    entry, key = canary(f"entry-{time.monotonic_ns()}"), f"{OWN}/shared/signals/state"
    save(OWN + "/shared/log/append", entry + "\n")
    same("entry", text_of(OWN + "/shared/log/last/1"), entry)
    save(key, entry)
    same("signal", load(key).decode(), entry)
    save(OWN + "/config/task", entry)
    same("task", load(OWN + "/config/task").decode(), entry + "\n")


def go_back():
    """Takes a checkpoint, or goes back to one."""
    label = f"c{chance.randrange(3)}"
    path = f"{OWN}/checkpoints/{label}"
    if label not in kept:
        os.mkdir(path)
        kept[label] = dict(records), dict(files)
        return
    id = chance.choice(sorted(kept[label][0]))
    same("checkpoint", text_of(f"{path}/vectors/{id}.json"), kept[label][0][id])
    tell(OWN + "/ctl", "rollback " + label)
    for model, before in zip((records, files), kept.pop(label)):
        model.clear()
        model.update(before)
    os.rmdir(path)


def try_out():
    """A child that is merged, or thrown away."""
    child, text = OWN + "/branches/try", canary(f"tried-{time.monotonic_ns()}")
    os.mkdir(child)
    save(child + "/vectors/r0.json", json.dumps({"text": text}))
    save(child + "/files/f0", text)
    if chance.random() < 0.5:
        return os.rmdir(child)
    os.rename(child, OWN + "/try")
    records["r0"] = files["f0"] = text


proposed = False
door = "gone"


def propose():
    global proposed
    tell(OWN + "/ctl", "withdraw" if proposed else "propose " + canary("why"))
    proposed = not proposed



def use_door():
    """Opens a branch in which nothing is secret, closes it, fills it with canaries, discards it; one step each time. None are in its
    log, which its end gives to main."""
    global door
    if door == "gone":
        os.mkdir(DOOR)
        save(DOOR + "/config/log", "own")
        save(DOOR + "/files/plain", "for all")
        save(DOOR + "/vectors/plain.json", "for all")
        save(DOOR + "/shared/signals/plain", "for all")
        os.chmod(DOOR, 0o755)
        door = "open"
    elif door == "open":
        os.chmod(DOOR, 0o700)
        # Whoever has a folder in files/ open may go on there, as in any file system; modes are asked there alone.
        save(DOOR + "/files/late", canary("late"), 0o600)
        for name in "late", "plain":
            save(f"{DOOR}/vectors/{name}.json", json.dumps({"text": canary("late")}))
            save(f"{DOOR}/shared/signals/{name}", canary("late"))
        os.mkdir(DOOR + "/checkpoints/late")
        door = "closed"
    else:
        while outcome(lambda: os.rmdir(DOOR))[0] == errno.ENOTEMPTY:
            # Others forked it while it was open.
            for name in names(DOOR + "/branches"):
                outcome(lambda: os.rmdir(f"{DOOR}/branches/{name}"))
        door = "gone"


WORK = [put, put, write, write, remove, look, look, speak, go_back, try_out, propose, use_door, use_door]
