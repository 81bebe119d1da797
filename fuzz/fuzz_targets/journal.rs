//! One or two journal files. What was replayed is replayed again after the journal was carried on.
#![no_main]

use std::sync::Arc;

use engramfs::disk::Disk;
use engramfs::journal::{FrameKind, Journal, JournalError, JournalFiles, ReplayedFiles};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (first, second) = engramfs_fuzz::split(bytes);
    let (one, two) = (Journal::file_path(1), Journal::file_path(2));
    let files = [(one.as_str(), first), (two.as_str(), second)];
    let disk = engramfs_fuzz::disk_with(&files[..if second.is_empty() { 1 } else { 2 }]);
    let Ok((mut frames, replayed)) = replay(&disk) else { return };
    let Ok(journal) = replayed.resume(&disk) else { return };
    journal.append(FrameKind::Command, &[b"more"]).expect("there is room in memory");
    journal.sync(journal.length()).expect("memory can be flushed");
    frames.push((FrameKind::Command, b"more".to_vec()));
    let (again, _) = replay(&disk).expect("what was carried on can be replayed");
    let told = |frames: Vec<(FrameKind, Vec<u8>)>| {
        frames.into_iter().filter(|(kind, _)| *kind != FrameKind::Mark).collect::<Vec<_>>()
    };
    assert!(told(frames) == told(again));
});

fn replay(disk: &Arc<dyn Disk>) -> Result<(Vec<(FrameKind, Vec<u8>)>, ReplayedFiles), JournalError> {
    let mut frames = Vec::new();
    let replayed = JournalFiles::list(disk, 1)?.replay::<JournalError>(true, |frame| {
        frames.push((frame.kind, frame.payload.to_vec()));
        Ok(true)
    })?;
    Ok((frames, replayed))
}
