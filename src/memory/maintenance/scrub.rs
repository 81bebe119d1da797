//! The scrubber: the thread that checks mapped files again, slowly, for as long as a store is open.
//!
//! What queries search is mapped, and was checked when it was first touched. What becomes wrong on the disk after that
//! is found here: from then on every use of the file is an error. While it works it holds neither the store nor a file,
//! so what a collection removes gives its room back at once.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::memory::{Error, Memory};
use crate::segment::{DerivedFile, GraphFile, Segment, SegmentError};
use crate::sync::{Condvar, Mutex};

/// So many bytes are checked without a pause; the thread ends after one such burst at most.
const BURST_BYTES: u64 = 1 << 20;
/// How long a pause is: some 8 MiB are checked a second, which costs half a hundredth of a processor.
const PAUSE: Duration = Duration::from_millis(125);
/// How long nothing is done before the first round and after each.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);

/// How far a round is, as `status` shows it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub(in crate::memory) struct ScrubProgress {
    /// Bytes that were checked in this round, or in the last one where none is under way.
    pub checked: u64,
    /// Bytes of all files of the round, those included that nobody uses any longer.
    pub total: u64,
}

#[derive(Default)]
struct ScrubState {
    progress: ScrubProgress,
    /// Grows with the progress, so that a status can be compared with a later one.
    change_count: u64,
    stop: bool,
}

/// The thread that checks files again, seen from outside.
#[derive(Clone, Default)]
pub(in crate::memory) struct Scrubber(Arc<(Mutex<ScrubState>, Condvar)>);

/// A file that is mapped. It is held only while a block is checked: what is removed meanwhile gives its room back.
struct ScrubTarget {
    bytes: u64,
    file: WeakFile,
}

enum WeakFile {
    Segment(Weak<Segment>),
    Graph(Weak<GraphFile>),
    Derived(Weak<DerivedFile>),
}

impl ScrubTarget {
    fn segment(segment: &Arc<Segment>) -> ScrubTarget {
        ScrubTarget { bytes: segment.file_bytes(), file: WeakFile::Segment(Arc::downgrade(segment)) }
    }

    fn graph(graph: &Arc<GraphFile>) -> ScrubTarget {
        ScrubTarget { bytes: graph.file_bytes(), file: WeakFile::Graph(Arc::downgrade(graph)) }
    }

    fn derived(derived: &Arc<DerivedFile>) -> ScrubTarget {
        ScrubTarget { bytes: derived.file_bytes(), file: WeakFile::Derived(Arc::downgrade(derived)) }
    }

    /// Checks a block; nothing after the last one, and where nobody uses the file any longer.
    fn recheck(&self, block: u64) -> Option<Result<u64, SegmentError>> {
        match &self.file {
            WeakFile::Segment(segment) => segment.upgrade()?.recheck(block),
            WeakFile::Graph(graph) => graph.upgrade()?.recheck(block),
            WeakFile::Derived(derived) => derived.upgrade()?.recheck(block),
        }
    }
}

impl Scrubber {
    /// Tells the thread to end: it checks one burst more at most.
    pub(in crate::memory) fn stop(&self) {
        self.0.0.lock().stop = true;
        self.0.1.notify_all();
    }

    /// Returns how far the round is; zeros before the first one.
    pub(in crate::memory) fn progress(&self) -> ScrubProgress {
        self.0.0.lock().progress
    }

    /// Returns a number that grows as the work goes on: a cached `status` with a smaller one is outdated.
    pub(in crate::memory) fn change_count(&self) -> u64 {
        self.0.0.lock().change_count
    }

    fn note_progress(&self, progress: ScrubProgress) {
        let mut state = self.0.0.lock();
        state.progress = progress;
        state.change_count += 1;
    }

    /// Waits for that time, or until it is to end; false to end.
    fn wait(&self, time: Duration) -> bool {
        let (state, _) = self.0.1.wait_timeout_while(self.0.0.lock(), time, |state| !state.stop);
        !state.stop
    }

    /// Checks every block of some files; `pause` is called after each burst and says whether to go on.
    fn run_round(&self, files: Vec<ScrubTarget>, pause: impl Fn() -> bool) {
        let mut progress = ScrubProgress { checked: 0, total: files.iter().map(|file| file.bytes).sum() };
        self.note_progress(progress);
        let mut ahead = 0;
        for file in files {
            let end = progress.checked + file.bytes;
            for outcome in (0..).map_while(|block| file.recheck(block)) {
                match outcome {
                    Ok(bytes) => ahead += bytes,
                    Err(error) => {
                        // The rest of this file is passed over: `recheck` has ended its use if it is damaged, and a
                        // failing disk would fail again.
                        log::error!("{}", Error::from(error));
                        break;
                    }
                }
                if ahead >= BURST_BYTES {
                    progress.checked += ahead;
                    ahead = 0;
                    self.note_progress(progress);
                    if !pause() {
                        return;
                    }
                }
            }
            // With the footer, which was read when the file was opened; what is behind damage counts, too.
            (progress.checked, ahead) = (end, 0);
        }
        self.note_progress(progress);
    }
}

impl Memory {
    /// Starts the thread that checks mapped files again. It ends with the store.
    pub(in crate::memory) fn start_scrubber(self: &Arc<Self>) {
        let (memory, scrubber) = (Arc::downgrade(self), self.maintenance.scrubber.clone());
        let life = move || {
            if let Err(error) = rustix::process::nice(19) {
                log::debug!("mapped files are checked at the usual priority: {error}");
            }
            while scrubber.wait(ROUND_INTERVAL)
                && let Some(files) = Weak::upgrade(&memory).map(|memory| memory.mapped_files())
            {
                scrubber.run_round(files, || scrubber.wait(PAUSE));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("scrubber".to_owned()).spawn(life) {
            log::warn!("mapped files are not checked again while the store is open: {error}");
        }
    }

    fn mapped_files(&self) -> Vec<ScrubTarget> {
        let segments = self.storage.segments.list();
        let graphs = segments.iter().flat_map(|segment| segment.graphs()).map(ScrubTarget::graph);
        let mut derived: Vec<_> = segments.iter().flat_map(|segment| segment.derived().list()).collect();
        derived.extend(self.storage.file_index.derived_files());
        let derived = derived.iter().map(ScrubTarget::derived);
        segments.iter().map(ScrubTarget::segment).chain(graphs).chain(derived).collect()
    }

    /// Checks all mapped files again, at once and without pauses.
    #[cfg(test)]
    fn scrub(&self) {
        self.maintenance.scrubber.run_round(self.mapped_files(), || true);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Environment, Kind, OpenMode, Query, RecordEdit, RecordInput, View};

    thread_local! {
        static LOGGED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// A log that keeps the lines of each thread for that thread, as tests run side by side in one process.
    struct ThreadLog;

    impl log::Log for ThreadLog {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let line = format!("{}: {}", record.level(), record.args());
            // A thread that ends may log when its variables are gone.
            let _ = LOGGED.try_with(|lines| lines.borrow_mut().push(line));
        }

        fn flush(&self) {}
    }

    #[test]
    fn what_goes_wrong_after_its_check_ends_the_use_of_its_file() {
        log::set_logger(&ThreadLog).unwrap();
        log::set_max_level(log::LevelFilter::Error);
        let (disk, owner) = (ForgetfulDisk::new(), Actor { uid: 1, gid: 1, name: "ann".into() });
        let environment = Environment::real(owner.clone());
        let memory = Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        let input = |n: u32| RecordInput { vector: Some([n as f32, 1.0].into()), text: None, metadata: "{}".into() };
        let edits = (0..30).map(|n| RecordEdit::Put { id: format!("r{n}").into(), input: input(n) }).collect();
        memory.commit(&owner, main, edits).unwrap();
        memory.seal().unwrap();
        let query = Query::parse(r#"{"vector":[3,1],"k":1}"#).unwrap();
        let ask = || memory.query(&View::Branch(main), &query).map(drop);
        ask().unwrap();
        let shown = || memory.status(&View::Branch(main)).unwrap()["scrub"].clone();
        assert_eq!(shown(), serde_json::json!({ "checked": 0, "total": 0 }));
        memory.scrub();
        let whole = memory.maintenance.scrubber.progress();
        assert!(whole.total > 0 && whole.checked == whole.total, "{whole:?}");
        assert_eq!(shown(), serde_json::json!({ "checked": whole.checked, "total": whole.total }));
        ask().unwrap();
        let path = memory.storage.segments.blobs.path(&memory.storage.segments.list()[0].name());
        // The first section, of the vectors: mapped, checked when the query came, and not looked at again by it.
        disk.flip(&path, 64, 1).unwrap();
        ask().unwrap();
        assert!(LOGGED.take().is_empty());
        memory.scrub();
        let (logged, name) = (LOGGED.take(), memory.storage.segments.list()[0].name());
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(logged[0].starts_with(&format!("ERROR: the segment {name} is damaged: ")), "{logged:?}");
        let error = ask().unwrap_err();
        assert!(error.kind() == Kind::Damaged && error.to_string().contains("block 0 does not match"), "{error}");
        // What needs other sections of the file alone fails, too.
        let snapshot = memory.snapshot(&View::Branch(main)).unwrap();
        assert!(snapshot.get("r3").is_err_and(|error| error.kind() == Kind::Damaged));
        assert!(snapshot.stat("r3").is_err_and(|error| error.kind() == Kind::Damaged));
        assert_eq!(memory.maintenance.scrubber.progress(), whole);
    }

    #[test]
    fn a_round_holds_no_file_that_nobody_needs_any_longer() {
        let (disk, owner) = (ForgetfulDisk::new(), Actor { uid: 1, gid: 1, name: "ann".into() });
        let environment = Environment::real(owner.clone());
        let memory = Memory::open_on(Arc::new(disk), OpenMode::Create, None, environment).unwrap();
        let main = memory.root("main").unwrap();
        memory.set(&owner, main, crate::memory::Setting::Keep, "0s").unwrap();
        let input = || RecordInput { vector: None, text: Some("a".into()), metadata: "{}".into() };
        memory.commit(&owner, main, vec![RecordEdit::Put { id: "r".into(), input: input() }]).unwrap();
        memory.seal().unwrap();
        let files = memory.mapped_files();
        let segment = Arc::downgrade(&memory.storage.segments.list()[0]);
        memory.commit(&owner, main, vec![RecordEdit::Delete { id: "r".into() }]).unwrap();
        memory.gc(&owner, None, false).unwrap();
        assert!(!files.is_empty() && segment.upgrade().is_none());
        memory.maintenance.scrubber.run_round(files, || true);
    }
}
