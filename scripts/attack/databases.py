#!/usr/bin/env python3
"""Merges branches into their parent at random moments while both sides write to one database.

    scripts/attack/databases.py sqlite|duckdb|lance|chroma|postgres COUNT BRANCH

BRANCH is a root branch's directory in a mount; for PostgreSQL, which refuses to be root, of one with --allow-other.
Each merge must be EBUSY `unit_in_use`, a conflict, or leave a database that opens and holds each transaction of one
side up to some moment and none of the other's. What was in use is closed, each conflict is resolved for either side,
and the merge is done again: what lost must be named and be readable by its hash. Exit 1 where something of that does
not hold, 77 where the database is not installed.
"""
import json, os, random, shutil, signal, sqlite3, subprocess, sys, time

# Each writes transactions of some rows, `SIDE-TRANSACTION-ROW`, until it is killed.
WRITER = {
    "sqlite": """
import random, sqlite3, sys, time
path, side = sys.argv[1:]
db = sqlite3.connect(path, timeout=30)
db.execute('pragma journal_mode=' + random.choice(['wal', 'wal', 'delete', 'truncate']))
print('open', flush=True)
n = 0
while True:
    with db: db.executemany('insert into t values (?)', [(f'{side}-{n}-{i}-' + 'x' * random.randrange(400),) for i in range(random.randrange(1, 60))])
    n += 1
    if random.random() < .2: db.execute('pragma wal_checkpoint(truncate)')
    if random.random() < .1: db.close(); print(n, flush=True); time.sleep(random.random() / 20); db = sqlite3.connect(path, timeout=30)
""",
    "duckdb": """
import duckdb, random, sys, time
path, side = sys.argv[1:]
db = duckdb.connect(path)
print('open', flush=True)
n = 0
while True:
    db.execute("insert into t select ? || i from range(?) r(i)", [f'{side}-{n}-', random.randrange(1, 60)])
    n += 1
    if random.random() < .2: db.execute('checkpoint')
    if random.random() < .1: db.close(); print(n, flush=True); time.sleep(random.random() / 20); db = duckdb.connect(path)
""",
    "lance": """
import lancedb, random, sys
path, side = sys.argv[1:]
table = lancedb.connect(path).open_table('t')
print('open', flush=True)
n = 0
while True:
    table.add([{'v': f'{side}-{n}-{i}', 'vector': [random.random()] * 8} for i in range(random.randrange(1, 60))])
    n += 1
    if random.random() < .1: table.optimize()
""",
    "chroma": """
import chromadb, random, sys
path, side = sys.argv[1:]
t = chromadb.PersistentClient(path).get_collection('docs')
print('open', flush=True)
n = 0
while True:
    rows = [f'{side}-{n}-{i}' for i in range(random.randrange(1, 60))]
    t.add(ids=rows, embeddings=[[random.random()] * 8 for _ in rows], documents=rows)
    n += 1
""",
}
# Has a database open without writing to it.
IDLE = {
    "sqlite": "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1]); db.execute('select * from t').fetchall(); print('open', flush=True); time.sleep(99)",
    "duckdb": "import duckdb, sys, time; db = duckdb.connect(sys.argv[1]); print('open', flush=True); time.sleep(99)",
}
RULES = "*-ruled/m.* unit newest-wins\n*.jsonl union event_id\n** text\n"
NAME = {"sqlite": "m.db", "duckdb": "m.duckdb", "lance": "tables", "chroma": "chroma", "postgres": "pg"}
# What the conflict is about, in the folder or file above.
UNIT = {"lance": "tables/t.lance"}


def make(kind, path):
    """Makes an empty database."""
    if kind == "sqlite":
        db = sqlite3.connect(path)
        db.execute("pragma journal_mode=wal")
        db.execute("create table t (v text)")
        db.close()
    elif kind == "duckdb":
        import duckdb
        with duckdb.connect(path) as db:
            db.execute("create table t (v text)")
    else:
        run = {"lance": "import lancedb, sys; lancedb.connect(sys.argv[1]).create_table('t', [{'v': 'base', 'vector': [0.0] * 8}])",
               "chroma": "import chromadb, sys; chromadb.PersistentClient(sys.argv[1]).create_collection('docs')"}[kind]
        subprocess.run([sys.executable, "-c", run, path], check=True, stderr=subprocess.DEVNULL)


def rows(kind, path):
    """Opens a database as after a crash, has it check itself, and returns all that it holds."""
    if kind == "sqlite":
        db = sqlite3.connect(path)
        try:
            checked = db.execute("pragma integrity_check").fetchone()[0]
            assert checked == "ok", checked
            return [row[0] for row in db.execute("select v from t")]
        finally:
            db.close()
    if kind == "duckdb":
        import duckdb
        with duckdb.connect(path) as db:
            return [row[0] for row in db.execute("select v from t").fetchall()]
    run = {"lance": "import lancedb, sys; print(*lancedb.connect(sys.argv[1]).open_table('t').to_arrow()['v'].to_pylist(), sep='\\n')",
           "chroma": "import chromadb, sys; t = chromadb.PersistentClient(sys.argv[1]).get_collection('docs')\n"
                     "found = t.get()['documents']; print(*found, sep='\\n')\n"
                     "assert not found or len(t.query(query_embeddings=[[.5] * 8], n_results=5)['ids'][0]) == min(5, len(found))"}[kind]
    done = subprocess.run([sys.executable, "-c", run, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]
    return done.stdout.split()


def side_of(found, reopened=()):
    """Returns which side the rows are of; none where there are none. Every transaction is whole, and none is left out.

    A parent that had it closed at the moment of the merge may have gone on in the child's, from a transaction before which
    it opened it anew."""
    seen = {}
    for row in found:
        if row != "base":
            side, transaction, number = row.split("-")[:3]
            seen.setdefault(side, {}).setdefault(int(transaction), []).append(int(number))
    for side, transactions in seen.items():
        first = min(transactions)
        assert first == 0 or side == "parent" and first in reopened, f"transactions of {side} before {first} are left out"
        assert sorted(transactions) == list(range(first, first + len(transactions))), f"transactions of {side} are left out"
        for numbers in transactions.values():
            assert sorted(numbers) == list(range(len(numbers))), f"a transaction of {side} is not whole"
    assert len(seen) <= 1 or min(seen["parent"]) in reopened, f"rows of {sorted(seen)}"
    return "child" if "child" in seen else next(iter(seen), None)


def ask(branch, verb):
    """Writes a verb and returns its outcome, or why it was refused."""
    handle = os.open(f"{branch}/ctl", os.O_RDWR)
    try:
        try:
            os.write(handle, f"{verb}\n".encode())
        except OSError:
            with open(f"{branch}/errors") as errors:
                return {"status": "refused", **json.loads(errors.read().splitlines()[-1])}
        answer = b""
        while chunk := os.read(handle, 1 << 20):
            answer += chunk
        return json.loads(answer.splitlines()[-1])
    finally:
        os.close(handle)


def end(writers):
    for writer in writers.values():
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    writers.clear()


def attempt(kind, root, number, seen):
    """One merge while both sides write."""
    ruled = kind in IDLE and random.random() < .4
    folder, child = f"{kind}{number}" + "-ruled" * ruled, f"{root}/branches/{kind}{number}"
    path = f"files/{folder}/{NAME[kind]}"
    unit = f"files/{folder}/{UNIT.get(kind, NAME[kind])}"
    shutil.rmtree(f"{root}/files/{folder}", ignore_errors=True)
    os.mkdir(f"{root}/files/{folder}")
    make(kind, f"{root}/{path}")
    if os.path.isdir(child):
        # Lance makes the folders above its files: a writer whose branch was merged so forked another one.
        os.rmdir(child)
    os.mkdir(child)
    codes = {"child": random.choices([WRITER[kind], None], [9, 1])[0],
             "parent": random.choices([WRITER[kind], IDLE.get(kind), None], [7, 2, 1])[0]}
    writers = {side: subprocess.Popen([sys.executable, "-c", code, f"{where}/{path}", side],
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
               for (side, code), where in zip(codes.items(), [child, root]) if code}
    for writer in writers.values():
        assert writer.stdout.readline(), "it can't be opened"
    time.sleep(random.random() / (2 if kind in IDLE else .5))
    # Some have ended by a crash, at any moment.
    for side, chance in [("parent", .3), ("child", .2)]:
        if side in writers and random.random() < chance:
            end({side: writers.pop(side)})
    outcome = ask(child, "merge")
    first = outcome.get("code", outcome["status"])
    assert first in ("merged", "conflicts", "unit_in_use"), outcome
    seen[first] += 1
    alive = writers.get("parent") if first == "merged" else None
    assert first != "unit_in_use" or "parent" in writers, "in use, and nobody has it open"
    end(writers)
    if outcome["status"] != "merged":
        outcome = ask(child, "merge")
    if outcome.get("code") == "conflicts":
        conflicts = ask(child, "merge --dry-run")["conflicts"]
        assert [it["path"] for it in conflicts] == [unit], conflicts
        ask(child, f"resolve {unit} {random.choice(['child', 'parent'])}")
        outcome = ask(child, "merge")
    assert outcome["status"] == "merged", f"resolved and not merged: {outcome}"
    reopened = {int(line) for line in alive.stdout} if alive else ()
    found = side_of(rows(kind, f"{root}/{path}"), reopened)
    for conflict in outcome["conflicts"]:
        may_go_on = reopened and conflict["decision"] == "child"
        assert conflict["path"] == unit and (may_go_on or found in (None, conflict["decision"])), f"holds what {found} wrote: {outcome}"
        assert conflict["lost"], f"nothing of what lost is named: {outcome}"
        for part in conflict["lost"]:
            assert part["side"] != conflict["decision"], outcome
            lost_path, lost_hash = part["text"].rsplit(" ", 1)
            shown = ask(root, f"show {lost_hash}")
            assert shown.get("kind") == "file", f"{lost_path} can't be read again: {shown}"
        seen["named"] += 1


def postgres(root, number, seen):
    """Forks a live PostgreSQL, writes to both, and merges."""
    folder, child = f"pg{number}", f"{root}/branches/pg{number}"
    shutil.rmtree(f"{root}/files/{folder}", ignore_errors=True)
    os.mkdir(f"{root}/files/{folder}")
    as_user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    call = lambda *words: subprocess.run([*as_user, *words], check=True, capture_output=True, text=True, cwd="/").stdout
    port = {root: 5500, child: 5501}
    sockets = "/tmp/databases-py"
    os.makedirs(sockets, exist_ok=True)
    os.chown(sockets, 65534, 65534)

    def start(where):
        data = f"{where}/files/{folder}/pg"
        if os.path.exists(f"{data}/postmaster.pid") and where == child:
            os.unlink(f"{data}/postmaster.pid")
        call("pg_ctl", "-D", data, "-w", "-l", f"{sockets}/{port[where]}", "-o", f"-p {port[where]} -k {sockets} -h ''", "start")

    def stop(where, how="fast"):
        call("pg_ctl", "-D", f"{where}/files/{folder}/pg", "-m", how, "-w", "stop")

    def sql(where, text):
        return call("psql", "-h", sockets, "-p", str(port[where]), "-U", "nobody", "-Atc", text, "postgres").split()

    os.chown(f"{root}/files/{folder}", 65534, 65534)
    call("initdb", "-D", f"{root}/files/{folder}/pg", "-U", "nobody")
    start(root)
    sql(root, "create table t (v text); insert into t values ('base')")
    os.mkdir(child)
    os.chown(child, 65534, -1)
    start(child)
    assert sql(child, "select v from t") == ["base"], "a fork of a live database opens"
    sql(child, "insert into t select 'child-0-' || i from generate_series(0, 999) i")
    sql(root, "insert into t select 'parent-0-' || i from generate_series(0, 999) i")
    stop(child, random.choice(["fast", "immediate"]))
    outcome = ask(child, "merge")
    if outcome.get("code") == "conflicts":
        ask(child, f"resolve files/{folder}/pg child")
        outcome = ask(child, "merge")
    # The server that runs writes now and then by itself, which opens the conflict again.
    assert outcome.get("code") in ("unit_in_use", "conflicts"), outcome
    seen[outcome["code"]] += 1
    stop(root, random.choice(["fast", "immediate"]))
    outcome = ask(child, "merge")
    assert outcome.get("code") == "conflicts", outcome
    expected = random.choice(["child", "parent"])
    ask(child, f"resolve files/{folder}/pg {expected}")
    outcome = ask(child, "merge")
    assert outcome["status"] == "merged" and outcome["conflicts"][0]["decision"] == expected, outcome
    seen["named"] += bool(outcome["conflicts"][0]["lost"])
    start(root)
    assert side_of(sql(root, "select v from t")) == expected
    stop(root)


def main():
    kind, count, root = sys.argv[1], int(sys.argv[2]), sys.argv[3].rstrip("/")
    module = {"duckdb": "duckdb", "lance": "lancedb", "chroma": "chromadb"}.get(kind)
    is_there = shutil.which("initdb") if kind == "postgres" else subprocess.run([sys.executable, "-c", f"import {module or 'sqlite3'}"]).returncode == 0
    if not is_there:
        print(f"SKIPPED: {kind} is not installed", file=sys.stderr)
        return 77
    random.seed(int(os.environ.get("ENGRAMFS_SEED", "1")))
    with open(f"{root}/config/rules", "w") as rules:
        rules.write(RULES)
    seen, torn = {"unit_in_use": 0, "conflicts": 0, "merged": 0, "named": 0}, 0
    for number in range(count):
        try:
            postgres(root, number, seen) if kind == "postgres" else attempt(kind, root, number, seen)
        except Exception as wrong:  # Whatever a driver says of a torn database.
            torn += 1
            print(f"merge {number}: {wrong!r} {getattr(wrong, 'stderr', '')}", file=sys.stderr)
    named = seen.pop("named")
    print(f"{kind}: {count} merges, at first " + ", ".join(f"{n} {what}" for what, n in seen.items())
          + f"; then all merged, the lost side named in {named}; {torn} torn")
    return 1 if torn else 0


sys.exit(main())
