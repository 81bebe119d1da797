//! Merges in process.

use engramfs::memory::MergeKind;

use crate::store::{edit, fill, open, who};
use crate::{micros, p50, row};

pub fn run() {
    for (edits, figure) in [(100, "< 2 ms"), (10_000, "< 100 ms")] {
        let mut times = Vec::new();
        for _ in 0..5 {
            times.push(merge(edits));
        }
        let how = format!("20,000 records, 1 % conflicts, newest-wins; median of {} merges", times.len());
        row(&format!("merge of {edits} edits"), figure, &format!("{:.2} ms", p50(times) / 1e3), &how);
    }
}

fn merge(edits: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let memory = open(folder.path());
    let main = fill(&memory, 20_000);
    let fork = memory.fork(&who(), main, "agent-7", None).unwrap();
    let mut seed = 3;
    // Below the size from which a commit goes into a segment, as agents write.
    for start in (0..edits).step_by(500) {
        let batch = (start..edits.min(start + 500)).map(|n| edit(format!("row-{:08}", n * 2), &mut seed));
        memory.commit(&who(), fork, batch.collect()).unwrap();
    }
    let both = (0..edits / 100).map(|n| edit(format!("row-{:08}", n * 200), &mut seed));
    memory.commit(&who(), main, both.collect()).unwrap();
    micros(|| {
        let outcome = memory.merge(&who(), fork, MergeKind::Merge, false).unwrap();
        assert_eq!(outcome.conflicts.len(), edits / 100);
    })
}
