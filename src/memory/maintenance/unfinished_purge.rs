//! The purge that is not finished: which files hold bytes that are to go, so that the next opening can finish it.
//!
//! ```text
//!  "engrPUR1" · hash of what follows · number of the last entry before it · segments n, n × name ·
//!  quotes n, n × (entry, which of its decisions)
//! ```
//!
//! It is there, durably, before the purge's entry is written, and goes when the bytes are gone. If no entry `purge` is
//! behind the one it names, there was no purge.

use std::collections::BTreeSet;

use crate::disk::{Disk, remove_if_exists};
use crate::memory::Error;
use crate::memory::history::DecisionRef;
use crate::memory::storage::read_file;
use crate::object::{CodecError, Context, Hash, Reader, Writer};

/// There from before the purge's entry until its bytes are gone.
pub const PATH: &str = "purge.part";
/// Written and synced under this name, then renamed. A crash may leave it.
pub const NEW_PATH: &str = "purge.part.new";
const MAGIC: &[u8; 8] = b"engrPUR1";
static CONTEXT: Context = Context::new("engramfs 2026 unfinished purge v1");

/// What a purge still has to rewrite; kept in a file until that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedPurge {
    /// Number of the newest entry when the purge was worked out.
    pub before: u64,
    /// Segments that hold rows of what is purged, by name.
    pub segments: BTreeSet<Hash>,
    /// Decisions of entries that quote it, up to entry `before`.
    pub quotes: Vec<DecisionRef>,
}

impl UnfinishedPurge {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.number(self.before).number(self.segments.len() as u64);
        self.segments.iter().fold(&mut out, |out, name| out.hash(name)).number(self.quotes.len() as u64);
        for (seq, at) in &self.quotes {
            out.number(*seq).number(u64::from(*at));
        }
        out.finish()
    }

    fn from_bytes(bytes: &[u8]) -> Result<UnfinishedPurge, CodecError> {
        let mut input = Reader::new(bytes);
        let before = input.number()?;
        let segments = (0..input.length()?).map(|_| input.hash()).collect::<Result<_, _>>()?;
        let mut quotes = Vec::new();
        for _ in 0..input.length()? {
            quotes.push((input.number()?, u32::try_from(input.number()?).map_err(|_| CodecError::Number)?));
        }
        // Bytes behind the last field would be a second form of the same note, and are taken for damage.
        if input.is_empty() { Ok(UnfinishedPurge { before, segments, quotes }) } else { Err(CodecError::Number) }
    }

    /// Writes it durably, in place of one that is there. Fails with `Error::Disk`; one that was there before may still
    /// count then.
    pub fn save(&self, disk: &dyn Disk) -> Result<(), Error> {
        let payload = self.to_bytes();
        let bytes = [&MAGIC[..], &Hash::digest(&CONTEXT, &payload).0, &payload].concat();
        let put = || -> std::io::Result<()> {
            remove_if_exists(disk, NEW_PATH)?;
            let file = disk.create(NEW_PATH)?;
            file.write_all_at(&bytes, 0)?;
            // The bytes come before the name: a crash in between leaves the note of before, or none, and never half of
            // one.
            file.sync()?;
            disk.rename(NEW_PATH, PATH)?;
            disk.sync_dir("")
        };
        put().map_err(|error| Error::io("what a purge is about to remove could not be noted", error))
    }

    /// Reads it; `None` if no purge is under way. Kind `Damaged` if it is not what was written.
    pub fn read(disk: &dyn Disk) -> Result<Option<UnfinishedPurge>, Error> {
        let names = disk.list("").map_err(|error| Error::io("the store's folder could not be read", error))?;
        if !names.iter().any(|name| name == PATH) {
            return Ok(None);
        }
        let bytes = read_file(disk, PATH)?;
        let payload = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(32));
        let payload = payload.filter(|(hash, payload)| Hash::digest(&CONTEXT, payload).0 == **hash);
        let damaged = || Error::damaged(format!("the file {PATH} is not what was written"));
        let (_, payload) = payload.ok_or_else(damaged)?;
        UnfinishedPurge::from_bytes(payload).map(Some).map_err(|_| damaged())
    }

    /// Removes it: the purge is finished, or was never done. Fails with `Error::Disk` if the disk refuses; none that is
    /// there is not an error.
    pub fn remove(disk: &dyn Disk) -> Result<(), Error> {
        let gone = remove_if_exists(disk, PATH).and_then(|()| disk.sync_dir(""));
        gone.map_err(|error| Error::io("the note of a finished purge could not be removed", error))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;

    #[test]
    fn what_was_noted_is_read_back_until_it_is_removed_and_a_wrong_byte_is_found() {
        let disk = ForgetfulDisk::new();
        assert_eq!(UnfinishedPurge::read(&disk).unwrap(), None);
        let mark = UnfinishedPurge { before: 7, segments: [Hash([3; 32])].into(), quotes: vec![(300, 2)] };
        mark.save(&disk).unwrap();
        assert_eq!(UnfinishedPurge::read(&disk.power_cut_keep_nothing()).unwrap(), Some(mark.clone()));
        for at in 0..disk.bytes(PATH).unwrap().len() as u64 {
            let broken = disk.power_cut_keep_all();
            broken.flip(PATH, at, 1).unwrap();
            assert_eq!(UnfinishedPurge::read(&broken).unwrap_err().kind(), crate::memory::Kind::Damaged, "byte {at}");
        }
        UnfinishedPurge::remove(&disk).unwrap();
        assert_eq!(UnfinishedPurge::read(&disk).unwrap(), None);
    }
}
