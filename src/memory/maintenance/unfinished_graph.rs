//! The graph that was being built when the store was closed, so that the work is not lost.
//!
//! ```text
//!  "engrGRP1" · hash of what follows · segment · metric · the builder's own bytes
//! ```
//!
//! It is worth time only: what can't be read or does not fit is dropped, and the graph built again.

use std::sync::Arc;

use crate::disk::{Disk, remove_if_exists};
use crate::graph::{GraphBuilder, Params, VectorRows};
use crate::memory::Error;
use crate::memory::storage::read_file;
use crate::object::{Context, Hash};
use crate::vector::Metric;

/// Kept until the graph is in use, or another unfinished one takes its place.
pub const PATH: &str = "graph.part";
/// Written and synced under this name, then renamed. A crash may leave it.
pub const NEW_PATH: &str = "graph.part.new";
const MAGIC: &[u8; 8] = b"engrGRP1";
static CONTEXT: Context = Context::new("engramfs 2026 unfinished graph v1");
/// Bytes before the builder's own: magic, hash, segment, metric.
const HEADER_BYTES: usize = MAGIC.len() + 32 + 32 + 1;

/// Keeps a builder's work, in place of any kept before. `ENOSPC` where it would take more than a quarter of what the
/// disk has left, else the error of the disk; the one before stays then.
pub fn save(disk: &dyn Disk, segment: &Hash, metric: Metric, builder: &GraphBuilder<'_>) -> std::io::Result<()> {
    let payload = [&segment.0[..], &[metric.to_code()], &builder.save()].concat();
    let bytes = [&MAGIC[..], &Hash::digest(&CONTEXT, &payload).0, &payload].concat();
    // A saved build only saves time, so it must not take the last room of a disk.
    if disk.space()?.available_bytes / 4 < bytes.len() as u64 {
        return Err(std::io::Error::from_raw_os_error(libc::ENOSPC));
    }
    remove_if_exists(disk, NEW_PATH)?;
    let file = disk.create(NEW_PATH)?;
    file.write_all_at(&bytes, 0)?;
    file.sync()?;
    // The folder is not synced: a name that is lost costs time only.
    disk.rename(NEW_PATH, PATH)
}

/// Returns the builder whose work was kept; `None` if nothing was, it is damaged, or of another segment or metric.
pub fn resume<'a>(
    disk: &dyn Disk,
    segment: &Hash,
    metric: Metric,
    rows: impl FnOnce() -> VectorRows<'a>,
    params: Params,
) -> Option<GraphBuilder<'a>> {
    let bytes = read_file(disk, PATH).ok()?;
    let payload = payload(&bytes)?;
    let fits = payload[..32] == segment.0 && payload[32] == metric.to_code();
    fits.then(|| GraphBuilder::resume(rows(), metric, params, &payload[33..]))?
}

/// Drops what was kept, and what a crash left of keeping it; a failure is logged alone.
pub fn discard(disk: &dyn Disk) {
    for path in [PATH, NEW_PATH] {
        if let Err(error) = remove_if_exists(disk, path) {
            log::warn!("the file {path} is not needed any longer and stays: {error}");
        }
    }
}

/// Checks the file, where it is there. Fails with `Error::Damaged` if it is not what was written.
pub fn verify(disk: &Arc<dyn Disk>, names: &[String]) -> Result<(), Error> {
    if names.iter().any(|name| name == PATH) && payload(&read_file(&**disk, PATH)?).is_none() {
        return Err(Error::damaged(format!("the file {PATH} is not what was written; remove it")));
    }
    Ok(())
}

fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let (hash, payload) = bytes.strip_prefix(MAGIC)?.split_at_checked(32)?;
    (bytes.len() >= HEADER_BYTES && Hash::digest(&CONTEXT, payload).0 == hash).then_some(payload)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};

    const DIM: usize = 4;
    const SEGMENT_NAME: Hash = Hash([7; 32]);
    /// How many steps are done when a build is kept for the first time, and for the second.
    const FIRST_SAVE_STEPS: usize = 40;
    const SECOND_SAVE_STEPS: usize = 90;

    /// The columns of 60 rows.
    struct Columns {
        codes: Vec<i8>,
        scales: Vec<f32>,
        norms: Vec<f32>,
    }

    impl Columns {
        fn new() -> Self {
            let codes: Vec<i8> = (0..60 * DIM as i32).map(|at| (at * at * 37 % 201 - 100) as i8).collect();
            let norm = |code: &[i8]| code.iter().map(|&step| f32::from(step) * f32::from(step)).sum::<f32>().sqrt();
            Self { norms: codes.chunks_exact(DIM).map(norm).collect(), scales: vec![1.0; 60], codes }
        }

        fn rows(&self) -> VectorRows<'_> {
            VectorRows { dim: DIM, codes: &self.codes, scales: &self.scales, norms: &self.norms }
        }

        fn begin(&self) -> GraphBuilder<'_> {
            GraphBuilder::new(self.rows(), Metric::L2, Params::default())
        }

        fn resume(&self, disk: &dyn Disk) -> Option<GraphBuilder<'_>> {
            resume(disk, &SEGMENT_NAME, Metric::L2, || self.rows(), Params::default())
        }
    }

    /// Keeps a build twice, and cuts the power at every call of the second time, with several outcomes each. Returns what the
    /// file may be then; nothing where there is none.
    fn cut_at_every_call(columns: &Columns, ignore_sync: bool) -> BTreeSet<Option<Vec<u8>>> {
        let [first, second] = [FIRST_SAVE_STEPS, SECOND_SAVE_STEPS].map(|steps| {
            let mut builder = columns.begin();
            builder.step(steps);
            builder
        });
        let mut outcomes = BTreeSet::new();
        for nth in 1.. {
            let faulty = FaultyDisk::new(ForgetfulDisk::new());
            faulty.inner().ignore_sync(ignore_sync);
            save(&faulty, &SEGMENT_NAME, Metric::L2, &first).unwrap();
            faulty.sync_dir("").unwrap();
            faulty.plan(Fault { sticky: true, short_write: true, ..Fault::once(nth, DiskCall::CHANGES, libc::EIO) });
            let is_kept = save(&faulty, &SEGMENT_NAME, Metric::L2, &second).is_ok();
            let disk = faulty.inner();
            let cuts = [disk.power_cut_keep_nothing(), disk.power_cut_keep_all()];
            outcomes.extend(
                cuts.into_iter().chain((0..8).map(|seed| disk.power_cut(seed))).map(|cut| cut.bytes(PATH).ok()),
            );
            if is_kept {
                break;
            }
        }
        outcomes
    }

    /// How many steps are done of what the file holds, where it is taken at all: it ends in the same graph then.
    fn resumed(columns: &Columns, bytes: &[u8]) -> Option<usize> {
        let disk = ForgetfulDisk::new();
        disk.create(PATH).unwrap().write_all_at(bytes, 0).unwrap();
        let builder = columns.resume(&disk)?;
        let done = builder.steps_done();
        assert!(builder.finish() == columns.begin().finish(), "it is that of a build without an interruption");
        Some(done)
    }

    #[test]
    fn a_power_cut_while_a_build_is_kept_leaves_the_one_kept_before_or_the_new_one() {
        let columns = Columns::new();
        let found = cut_at_every_call(&columns, false);
        let done = found.iter().map(|bytes| bytes.as_ref().and_then(|bytes| resumed(&columns, bytes)));
        assert_eq!(done.collect::<BTreeSet<_>>(), BTreeSet::from([Some(FIRST_SAVE_STEPS), Some(SECOND_SAVE_STEPS)]));
        assert_eq!(found.len(), 2);
    }

    /// The negative control: on a drive that ignores syncs files are torn, which the flush before the renaming prevents. They are
    /// found by their hash and not built on.
    #[test]
    fn a_torn_build_is_found_out_and_dropped() {
        let columns = Columns::new();
        let (found, whole) = (cut_at_every_call(&columns, true), cut_at_every_call(&columns, false));
        let torn: Vec<_> = found.difference(&whole).flatten().filter(|bytes| !bytes.is_empty()).collect();
        assert!(!torn.is_empty(), "no file was torn");
        assert!(torn.into_iter().all(|bytes| resumed(&columns, bytes).is_none()));
    }

    #[test]
    fn what_is_left_of_keeping_a_build_goes_with_it() {
        let (columns, disk) = (Columns::new(), ForgetfulDisk::new());
        save(&disk, &SEGMENT_NAME, Metric::L2, &columns.begin()).unwrap();
        disk.create(NEW_PATH).unwrap();
        discard(&disk);
        assert_eq!(disk.files(), []);
    }
}
