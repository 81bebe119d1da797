//! The server dies at random moments while programs write files: what was acknowledged is there, and nothing is torn.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Site, command, engramfs, json, read, succeed};
use crate::support::{Chance, rounds};

/// How long a program may take to see that its file system is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commits on and on; prints the number of each that git called done.
const GIT: &str = "cd git; n=$1
while n=$((n + 1)); do
  echo $n > f$((n % 20)) && mkdir -p d$((n % 7)) && echo $n >> d$((n % 7))/log && git add -A && git commit -qm $n || exit 0
  echo $n
done";

/// Inserts on and on, in both journal modes; prints the number of each insert that was committed.
const SQLITE: &str = "import sqlite3, sys
n = int(sys.argv[1])
dbs = [sqlite3.connect(mode + '.db') for mode in ('wal', 'delete')]
try:
    while True:
        n += 1
        for db in dbs:
            db.execute('pragma synchronous=full')
            with db: db.executemany('insert into t values (?, ?)', [(n * 10 + i, str(n) * 100) for i in range(10)])
        print(n, flush=True)
except sqlite3.Error: pass";

/// Forks, writes a record and a file that say the same, merges; prints what was merged.
const MERGES: &str = "cd ../branches; n=$1
while n=$((n + 1)); do
  mkdir x$n && echo \"{\\\"text\\\":\\\"$n\\\"}\" > x$n/vectors/same.json && printf $n > x$n/files/same && mv x$n ../ || exit 0
  echo $n
done";

/// Makes files under a name of their own and puts each in the place of the last; prints the number of each.
const SAVES: &str = "n=$1
while n=$((n + 1)); do
  (for i in $(seq 500); do echo $n || exit 1; done) > saved.new && mv saved.new saved || exit 0
  echo $n
done";

/// Writes, goes back to a checkpoint, promotes; prints what was promoted.
const ROLLS: &str = "cd ../branches; n=$1; mkdir r || exit 0
while n=$((n + 1)); do
  printf $n > r/files/rolled && mkdir r/checkpoints/c && printf wrong > r/files/rolled && touch r/files/wrong \\
    && echo 'rollback c' > r/ctl && rmdir r/checkpoints/c && echo promote > r/ctl || exit 0
  echo $n
done";

/// Writes to files that have no name any longer, while the store is sealed; prints the number of each that was right.
const HIDDEN: &str = "import os, sys
n = int(sys.argv[1])
try:
    while True:
        n += 1
        with open('hidden', 'w+b', buffering=0) as file:
            os.unlink('hidden')
            bytes = os.urandom(100000)
            file.write(bytes)
            with open('../ctl', 'w') as ctl: ctl.write('gc\\n')
            file.write(bytes)
            file.seek(0)
            if file.read() != bytes * 2: sys.exit(print('wrong bytes'))
        with open('seen.new', 'w') as seen: seen.write(str(n))
        os.rename('seen.new', 'seen')
        print(n, flush=True)
except OSError: pass";

/// Writes its number a mebibyte full, in turn to four places of a file; prints the number
/// of each.
const LONG: &str = "import os, sys
n = int(sys.argv[1])
try:
    file = os.open('long', os.O_RDWR | os.O_CREAT)
    while True:
        n += 1
        os.pwrite(file, n.to_bytes(8, 'little') * 131072, (n % 4) << 20)
        print(n, flush=True)
except OSError: pass";

/// What works in `files/` until the server dies, and notes beside the mount what was acknowledged.
struct Programs {
    notes: PathBuf,
    children: Vec<Child>,
    appender: Option<JoinHandle<u64>>,
    appended: u64,
}

impl Programs {
    fn start(site: &Site, last: &Done) -> Programs {
        let files = site.mnt.join("main/files");
        let notes = site.beside("notes");
        fs::create_dir_all(&notes).unwrap();
        let run = |name: &str, program: &str, code: &str, from: u64| {
            let note = File::create(notes.join(name)).unwrap();
            let mut child = command(program, &["-c", code]);
            if program == "bash" {
                child.arg("loop");
            }
            child.arg(from.to_string()).current_dir(&files).stdout(note).stderr(Stdio::null()).spawn().unwrap()
        };
        let children = vec![
            run("git", "bash", GIT, last.git),
            run("sqlite", "python3", SQLITE, last.sqlite),
            run("merges", "bash", MERGES, last.merges),
            run("saves", "bash", SAVES, last.saves),
            run("rolls", "bash", ROLLS, last.rolls),
            run("hidden", "python3", HIDDEN, last.hidden),
            run("long", "python3", LONG, last.long),
        ];
        let (log, from) = (files.join("log"), last.appended);
        let appender = Some(std::thread::spawn(move || append(&log, from)));
        Programs { notes, children, appender, appended: from }
    }

    /// Waits until all have seen that the server is gone, and returns what they were told before.
    fn end(mut self) -> Done {
        let end = Instant::now() + PATIENCE;
        let appender = self.appender.take().unwrap();
        while !(appender.is_finished() && self.children.iter_mut().all(|child| child.try_wait().unwrap().is_some())) {
            assert!(Instant::now() < end, "a program still waits for a server that was killed {PATIENCE:?} ago");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.appended = appender.join().unwrap();
        let note = |name: &str| {
            let text = read(self.notes.join(name));
            text.lines().last().map_or(0, |line| line.parse().unwrap())
        };
        Done {
            git: note("git"),
            sqlite: note("sqlite"),
            merges: note("merges"),
            saves: note("saves"),
            rolls: note("rolls"),
            hidden: note("hidden"),
            long: note("long"),
            appended: self.appended,
        }
    }
}

/// The last number that each program called done.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Done {
    git: u64,
    sqlite: u64,
    merges: u64,
    saves: u64,
    rolls: u64,
    hidden: u64,
    long: u64,
    appended: u64,
}

impl Done {
    fn each(self, other: Done, choose: impl Fn(u64, u64) -> u64) -> Done {
        Done {
            git: choose(self.git, other.git),
            sqlite: choose(self.sqlite, other.sqlite),
            merges: choose(self.merges, other.merges),
            saves: choose(self.saves, other.saves),
            rolls: choose(self.rolls, other.rolls),
            hidden: choose(self.hidden, other.hidden),
            long: choose(self.long, other.long),
            appended: choose(self.appended, other.appended),
        }
    }
}

/// Appends lines of growing length, syncing each, until it fails; returns the last that was synced.
fn append(path: &Path, from: u64) -> u64 {
    let mut last = from;
    let mut one = || -> io::Result<()> {
        let mut log = File::options().append(true).create(true).open(path)?;
        loop {
            log.write_all(line(last + 1).as_bytes())?;
            log.sync_all()?;
            last += 1;
        }
    };
    one().unwrap_err();
    last
}

fn line(n: u64) -> String {
    format!("{n} {}\n", "x".repeat((n * 37 % 5_000) as usize))
}

/// Makes what the programs work on.
fn prepare(files: &Path) {
    let code = "import sqlite3
for mode in ('wal', 'delete'):
    db = sqlite3.connect(mode + '.db'); db.execute('pragma journal_mode=' + mode)
    db.execute('create table t (k integer primary key, v text)'); db.execute('create index i on t (v)'); db.commit()";
    succeed(command("python3", &["-c", code]).current_dir(files));
    let script = "git init -q git; cd git; git config user.email a@b; git config user.name ann; git config gc.auto 0; \
                  git config core.fsync all; git commit -q --allow-empty -m 0";
    succeed(command("bash", &["-ec", script]).current_dir(files));
}

/// Looks at everything after a crash: what was done is there, and at most one step more of each program.
fn check(main: &Path, done: &Done) -> Done {
    let files = main.join("files");
    let found = Done {
        git: git(&files),
        sqlite: sqlite(&files),
        merges: merges(main),
        saves: saved(&files),
        rolls: number(&files.join("rolled")),
        hidden: number(&files.join("seen")),
        long: long(&files),
        appended: appended(&files),
    };
    let lost = found.each(*done, |found, done| done.saturating_sub(found));
    let invented = found.each(*done, |found, done| found.saturating_sub(done + 1));
    assert!(lost == Done::default() && invented == Done::default(), "acknowledged {done:?}, found {found:?}");
    assert!(!files.join("wrong").exists(), "a promote brought what was rolled back");
    found
}

fn git(files: &Path) -> u64 {
    // A lock of a process that died is for people to remove, as git says.
    let script = "find .git -name '*.lock' -delete; git fsck --strict --no-dangling --no-progress; \
                  git log -1 --format=%s; git reset -q --hard; git clean -fdq; git status --porcelain";
    let said = succeed(command("bash", &["-ec", script]).current_dir(files.join("git")));
    let mut lines = said.lines();
    let last = lines.next().unwrap().parse().unwrap();
    assert_eq!(lines.next(), None, "{said}");
    last
}

fn sqlite(files: &Path) -> u64 {
    let code = "import sqlite3
least = []
for mode in ('wal', 'delete'):
    db = sqlite3.connect(mode + '.db')
    assert db.execute('pragma integrity_check').fetchall() == [('ok',)], mode
    rows = db.execute('select k, v from t order by k').fetchall()
    assert [k for k, _ in rows] == list(range(10, len(rows) + 10)) and len(rows) % 10 == 0, (mode, len(rows))
    assert all(v == str(k // 10) * 100 for k, v in rows), mode
    least.append(len(rows) // 10)
# The second database is written after the first.
assert 0 <= least[0] - least[1] <= 1, least
db.execute('delete from t where k >= ?', (least[1] * 10 + 10,)); db.commit()
db = sqlite3.connect('wal.db'); db.execute('delete from t where k >= ?', (least[1] * 10 + 10,)); db.commit()
print(least[1])";
    succeed(command("python3", &["-c", code]).current_dir(files)).trim().parse().unwrap()
}

/// A record and a file of one merge are there together or not at all; what did not merge is still a branch.
fn merges(main: &Path) -> u64 {
    for fork in fs::read_dir(main.join("branches")).unwrap() {
        fs::remove_dir(fork.unwrap().path()).unwrap();
    }
    let (record, file) = (main.join("vectors/same.json"), main.join("files/same"));
    if !record.exists() && !file.exists() {
        return 0;
    }
    let record = json(record)["text"].as_str().unwrap().to_owned();
    assert_eq!(record, read(file));
    record.parse().unwrap()
}

/// The number that a file holds, 0 where it is not there yet.
fn number(file: &Path) -> u64 {
    if file.exists() { read(file).parse().unwrap() } else { 0 }
}

fn saved(files: &Path) -> u64 {
    if !files.join("saved").exists() {
        return 0;
    }
    let text = read(files.join("saved"));
    let number = text.lines().next().unwrap();
    assert_eq!(text, format!("{number}\n").repeat(500));
    number.parse().unwrap()
}

/// The last four are there, and of the next at most a beginning: the kernel may hand it over in pieces.
fn long(files: &Path) -> u64 {
    let Ok(bytes) = fs::read(files.join("long")) else { return 0 };
    let numbers: Vec<u64> = bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
    let at_end_of = |place: u64| numbers.get((place as usize + 1) * 131_072 - 1).copied().unwrap_or(0);
    let last = (0..4).map(at_end_of).max().unwrap_or(0);
    assert!((1..=last).rev().take(4).all(|number| at_end_of(number % 4) == number), "a write before the last is lost");
    for (place, part) in (0..).zip(numbers.chunks(131_072)) {
        let whole = at_end_of(place);
        let begun = part.iter().take_while(|number| **number != whole).count();
        let is_next = |number: &u64| *number == last + 1 && number % 4 == place;
        assert!(part[..begun].iter().all(is_next) && part[begun..].iter().all(|number| *number == whole));
    }
    last
}

/// The kernel may hand over one write(2) page by page, so that the last line may be a part of one, as anywhere; it goes.
fn appended(files: &Path) -> u64 {
    let Ok(text) = fs::read_to_string(files.join("log")) else { return 0 };
    let (whole, rest) = text.split_at(text.rfind('\n').map_or(0, |end| end + 1));
    let count = whole.lines().count() as u64;
    assert!(whole == (1..=count).map(line).collect::<String>(), "the log is no row of whole lines");
    assert!(line(count + 1).starts_with(rest), "the log ends in something that was never written");
    File::options().write(true).open(files.join("log")).unwrap().set_len(whole.len() as u64).unwrap();
    count
}

#[test]
fn what_programs_were_told_is_there_after_the_server_died() {
    for story in 0..rounds(1) {
        die_again_and_again(&mut Chance(story as u64));
    }
}

/// One store whose server dies five times.
fn die_again_and_again(chance: &mut Chance) {
    let site = Site::new();
    let main = site.mnt.join("main");
    let mut server = site.serve(&[]);
    prepare(&main.join("files"));
    let mut done = Done::default();
    for round in 0..5 {
        let programs = Programs::start(&site, &done);
        std::thread::sleep(Duration::from_millis(50 + chance.below(600) as u64));
        server.crash();
        // Whoever did nothing in this round has nothing to lose but what was there before.
        done = programs.end().each(done, u64::max);
        let verified = super::output(engramfs(&["verify"]).arg(&site.store));
        assert!(verified.status.success(), "round {round}: {}", String::from_utf8_lossy(&verified.stderr));
        server = site.serve(&[]);
        done = check(&main, &done);
    }
    assert!(done != Done::default(), "the programs never came to anything");
    drop(server);
}
