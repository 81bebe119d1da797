//! Earlier states and taking back, in process.

use engramfs::memory::{
    BranchId, Hash, Memory, MergeOptions, MergeVerb, Query, RecordEdit, RecordInput, Revision, Setting, View,
};

use crate::store::{bytes_of, edit, fill, open, who};
use crate::{micros, p50, row};

/// Entries whose states are kept, and states that are looked at.
const KEPT: u64 = 100_000;
const LOOKS: u64 = 200;
/// Entries of a branch that is written all the time, with the default of `keep_every`.
const MANY: u64 = 1_000_000;

pub fn run() {
    // First: memory is measured, of which more is to be had after the others.
    many();
    looks();
    reverts();
}

fn record(number: u64) -> Vec<RecordEdit> {
    let text = format!("note {number} of an agent");
    let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
    vec![RecordEdit::Put { id: format!("r{}", number % 10_000).into(), input }]
}

fn view(memory: &Memory, main: BranchId, entry: u64) -> View {
    memory.view_at(main, &Revision::parse(&entry.to_string()).unwrap()).unwrap()
}

/// The first look at a state among many, and questions there against those in the present.
fn looks() {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let main = memory.root("main").unwrap();
    memory.set(&who(), main, Setting::KeepEvery, "0s").unwrap();
    let commit = |number| {
        let head = memory.commit(&who(), main, record(number)).unwrap().head;
        (memory.last_seq(), head)
    };
    let entries: Vec<(u64, Hash)> = (0..KEPT).map(commit).collect();
    memory.gc(&who(), None, false).unwrap();
    let at = |look: u64| &entries[(look * 7_919 % KEPT) as usize];
    let look = |look| {
        let (entry, _) = at(look);
        micros(|| assert!(memory.snapshot(&view(&memory, main, *entry)).unwrap().stat("none").unwrap().is_none()))
    };
    let seen: Vec<f64> = (0..LOOKS).map(look).collect();
    let how = format!("{KEPT} commits of one record, all kept, gc; median and worst of {LOOKS} states");
    let worst = seen.iter().copied().fold(0.0, f64::max);
    row("first look at a kept state", "< 100 ms", &format!("{:.2} ms, {:.2} ms", p50(seen) / 1e3, worst / 1e3), &how);
    let is_wrong =
        |(entry, head): &&(u64, Hash)| memory.snapshot(&view(&memory, main, *entry)).unwrap().head() != *head;
    let wrong = (0..10_000).map(at).filter(is_wrong);
    row("heads of states that differ from what entries say", "0", &wrong.count().to_string(), "10,000 of them");
    let old = view(&memory, main, entries[entries.len() / 2 + 5_000].0);
    let ask = |view: &View, words: &str| {
        let query = Query::from_text(words).unwrap();
        drop(memory.query(view, &query).unwrap());
        p50((0..50).map(|_| micros(|| drop(memory.query(view, &query).unwrap()))).collect())
    };
    // Each record was overwritten nine times, so that the segments hold ten times what either state has.
    for (words, then, now) in [("all records match", "note agent", "note agent"), ("one does", "54321", "94321")] {
        let (then, now) = (ask(&old, then), ask(&View::Branch(main), now));
        let how = format!("{then:.0} µs, {now:.0} µs; {words}");
        row("further query there / in the present", "≤ 1.2", &format!("{:.2}", then / now), &how);
    }
}

/// A merge of 10,000 edits is taken back after as many later ones.
fn reverts() {
    let times = (0..5).map(|_| {
        let folder = tempfile::tempdir().unwrap();
        let memory = open(folder.path());
        let main = fill(&memory, 20_000);
        let (fork, mut seed) = (memory.fork(&who(), main, "agent-7", None).unwrap(), 3);
        let mut write = |branch: BranchId, odd: usize| {
            for start in (0..10_000).step_by(500) {
                let batch = (start..start + 500).map(|n| edit(format!("row-{:08}", n * 2 + odd), &mut seed));
                memory.commit(&who(), branch, batch.collect()).unwrap();
            }
        };
        write(fork, 0);
        memory.merge(&who(), fork, MergeVerb::Merge, false).unwrap();
        let merge = memory.last_seq();
        write(main, 1);
        let entry = Revision::parse(&merge.to_string()).unwrap();
        micros(|| {
            let done = memory.revert(&who(), main, &entry, MergeOptions::default(), false).unwrap();
            assert_eq!((done.counts.put, done.conflicts.len()), (10_000, 0));
        })
    });
    let time = format!("{:.1} ms", p50(times.collect()) / 1e3);
    row("revert of a merge of 10,000 edits, 10,000 later ones", "< 200 ms", &time, "20,000 records; median of 5");
}

/// What a branch costs that is written all the time.
fn many() {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let main = memory.root("main").unwrap();
    let before = resident_of_this();
    for number in 0..MANY {
        memory.commit(&who(), main, record(number)).unwrap();
    }
    memory.gc(&who(), None, false).unwrap();
    let states = memory.status(&View::Branch(main)).unwrap();
    let more = resident_of_this().saturating_sub(before) as f64 / 1e6;
    let disk = bytes_of(&folder.path().join("segments")) as f64 / 1e6;
    let kept = states["bytes_kept"].as_u64().unwrap_or(0) as f64 / 1e6;
    let how = format!("{MANY} commits of one record; {disk:.1} MB in segments, bytes_kept {kept:.1} MB");
    row("memory of a branch with a million entries", "+ < 20 MB", &format!("{more:.1} MB"), &how);
}

/// Bytes of memory, without what is free: the server gives that back when it is idle.
fn resident_of_this() -> u64 {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only gives back what is free.
    unsafe {
        libc::malloc_trim(0)
    };
    crate::resident(std::process::id())
}
