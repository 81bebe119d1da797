//! Bytes that edits take.

use crate::row;
use crate::store::{bytes_of, edit, fill, open, rows_of_large, who};

/// Bytes of id, vector, text and metadata of one record of [`edit`].
const RAW: f64 = (10 + 1536 + 111 + 32) as f64;

pub fn run() {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let main = memory.root("main").unwrap();
    let mut seed = 1;
    let mut added = |count: usize, batch: usize, prefix: &str| {
        let before = bytes_of(folder.path());
        for start in (0..count).step_by(batch) {
            let edits = (start..start + batch).map(|n| edit(format!("{prefix}{n:06}"), &mut seed));
            memory.commit(&who(), main, edits.collect()).unwrap();
        }
        (bytes_of(folder.path()) - before) as f64 / count as f64
    };
    for (count, batch, prefix) in [(500, 1, "one-"), (1000, 1, "two-"), (500, 500, "bat-"), (1000, 500, "cat-")] {
        let each = added(count, batch, prefix);
        let how = format!("{count} records, {batch} a commit; {each:.0} bytes each, raw {RAW:.0}");
        row("bytes of an edited record in the journal", "≤ 1.15 × raw", &format!("{:.3} ×", each / RAW), &how);
    }
    memory.seal().unwrap();
    for count in [5_000, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let memory = open(folder.path());
        let main = memory.root("main").unwrap();
        let empty = bytes_of(folder.path());
        for start in (0..count).step_by(500) {
            let edits = (start..start + 500).map(|n| edit(format!("sea-{n:06}"), &mut seed));
            memory.commit(&who(), main, edits.collect()).unwrap();
        }
        memory.seal().unwrap();
        let each = (bytes_of(folder.path()) - empty) as f64 / count as f64;
        row(
            "the same sealed (no graph yet)",
            "≤ 1.45 × raw",
            &format!("{:.3} ×", each / RAW),
            &format!("{count} records"),
        );
    }
    hundred_on_large();
}

fn hundred_on_large() {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let rows = rows_of_large();
    let main = fill(&memory, rows);
    // What the store does by itself after so much is done.
    memory.seal().unwrap();
    let fork = memory.fork(&who(), main, "agent-7", None).unwrap();
    let before = bytes_of(folder.path());
    let mut seed = 9;
    let edits = (0..100).map(|n| edit(format!("row-{:08}", n * (rows / 100)), &mut seed));
    memory.commit(&who(), fork, edits.collect()).unwrap();
    let bytes = (bytes_of(folder.path()) - before) as f64 / 1e3;
    row(
        "100 edits on a large parent, not sealed yet",
        "≤ 200 KB",
        &format!("{bytes:.0} KB"),
        &format!("{rows} records"),
    );
}
