//! The graph that was being built when the store was closed, so that the work is not lost.
//!
//! ```text
//!  "engrGRP1" · hash of what follows · segment · metric · the builder's own bytes
//! ```
//!
//! It is worth time only: what can't be read or does not fit is dropped, and the graph built again.

use std::sync::Arc;

use crate::disk::Disk;
use crate::graph::{GraphBuilder, Params, VectorRows};
use crate::memory::Error;
use crate::memory::storage::read_file;
use crate::object::{Context, Hash};
use crate::vector::Metric;

/// The file.
pub const PATH: &str = "graph.part";
/// The file while it is being written.
pub const NEW_PATH: &str = "graph.part.new";
const MAGIC: &[u8; 8] = b"engrGRP1";
static CONTEXT: Context = Context::new("engramfs 2026 unfinished graph v1");
/// Bytes before the builder's own: magic, hash, segment, metric.
const HEADER_BYTES: usize = MAGIC.len() + 32 + 32 + 1;

/// Keeps a builder's work, in place of any kept before.
pub fn save(disk: &dyn Disk, segment: &Hash, metric: Metric, builder: &GraphBuilder<'_>) -> std::io::Result<()> {
    let payload = [&segment.0[..], &[metric.to_code()], &builder.save()].concat();
    let bytes = [&MAGIC[..], &Hash::of(&CONTEXT, &payload).0, &payload].concat();
    // It saves time alone: a disk that is nearly full is not filled with it.
    if disk.space()?.available_bytes / 4 < bytes.len() as u64 {
        return Err(std::io::Error::from_raw_os_error(libc::ENOSPC));
    }
    remove(disk, NEW_PATH)?;
    let file = disk.create(NEW_PATH)?;
    file.write_all_at(&bytes, 0)?;
    file.sync()?;
    disk.rename(NEW_PATH, PATH)
}

/// Returns the builder whose work was kept, where it is of that segment and metric.
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

/// Drops what was kept.
pub fn drop_kept(disk: &dyn Disk) {
    if let Err(error) = remove(disk, PATH) {
        log::warn!("the file {PATH} is not needed any longer and stays: {error}");
    }
}

/// Checks the file, where it is there.
pub fn verify(disk: &Arc<dyn Disk>, names: &[String]) -> Result<(), Error> {
    if names.iter().any(|name| name == PATH) && payload(&read_file(&**disk, PATH)?).is_none() {
        return Err(Error::damaged(format!("the file {PATH} is not what was written; remove it")));
    }
    Ok(())
}

fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let (hash, payload) = bytes.strip_prefix(MAGIC)?.split_at_checked(32)?;
    (bytes.len() >= HEADER_BYTES && Hash::of(&CONTEXT, payload).0 == hash).then_some(payload)
}

fn remove(disk: &dyn Disk, path: &str) -> std::io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
