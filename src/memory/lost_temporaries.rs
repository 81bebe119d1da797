//! The temporaries that were in RAM when a mount ended, for the next mount to tell of.
//!
//! ```text
//!  "engrLST1" · hash of what follows · count varint · each: branch, uid varints · time · name text
//! ```

use std::sync::Arc;

use super::storage::read_file;
use super::{BranchId, Error, Memory};
use crate::disk::Disk;
use crate::object::{CodecError, Context, Hash, Reader, Time, Writer};

/// The note that one mount leaves the next. It is removed once it was read.
pub(in crate::memory) const PATH: &str = "temporaries.lost";
/// Written and synced under this name, then renamed; a crash may leave it.
pub(in crate::memory) const NEW_PATH: &str = "temporaries.lost.new";
const MAGIC: &[u8; 8] = b"engrLST1";
static CONTEXT: Context = Context::new("engramfs 2026 lost temporaries v1");
/// Most that are kept, of all branches together; the oldest go first.
const KEPT_MAX: usize = 10_000;

/// A file in `vectors/` that was no record and is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostTemporary {
    /// The branch whose `vectors/` held it; it may have ended since.
    pub branch: BranchId,
    /// Uid of its owner, whom the next mount tells.
    pub uid: u32,
    /// When the mount ended and the file was lost.
    pub time: Time,
    /// Its name in `vectors/`, as it was created there.
    pub name: String,
}

impl Memory {
    /// Notes the temporary files that a mount lost at its end, beside those of earlier mounts that nobody has read. At
    /// most 10,000 are kept; the oldest go first. An empty list writes nothing.
    ///
    /// Kind `Io` or `Damaged` if the earlier note can't be read.
    pub fn keep_lost_temporaries(&self, lost: Vec<LostTemporary>) -> Result<(), Error> {
        if lost.is_empty() {
            return Ok(());
        }
        // What is there was read by nobody yet, so it is kept in front of what is new.
        let mut all = self.lost_temporaries()?;
        all.extend(lost);
        all.drain(..all.len().saturating_sub(KEPT_MAX));
        write(&*self.disk, &all)
            .map_err(|error| Error::io("what temporaries were lost could not be written down", error))
    }

    /// Returns the temporary files that mounts have lost, and removes the note unless the store is read-only. Kind
    /// `Damaged` if the note is not what was written; it stays then.
    pub fn take_lost_temporaries(&self) -> Result<Vec<LostTemporary>, Error> {
        let lost = self.lost_temporaries()?;
        if !lost.is_empty() && !self.is_read_only() {
            self.disk.remove(PATH).map_err(|error| Error::io("an old note could not be removed", error))?;
        }
        Ok(lost)
    }

    fn lost_temporaries(&self) -> Result<Vec<LostTemporary>, Error> {
        let names = self.disk.list("").map_err(|error| Error::io("the store can't be listed", error))?;
        if names.iter().any(|name| name == PATH) { read(&read_file(&*self.disk, PATH)?) } else { Ok(Vec::new()) }
    }
}

/// Checks the file, where it is there. Kind `Damaged` if it is not what was written.
pub(in crate::memory) fn verify(disk: &Arc<dyn Disk>, names: &[String]) -> Result<(), Error> {
    if names.iter().any(|name| name == PATH) { read(&read_file(&**disk, PATH)?).map(drop) } else { Ok(()) }
}

fn write(disk: &dyn Disk, lost: &[LostTemporary]) -> std::io::Result<()> {
    let mut payload = Writer::new();
    payload.number(lost.len() as u64);
    for file in lost {
        payload.number(file.branch.0).number(u64::from(file.uid)).signed(file.time.0).text(&file.name);
    }
    let bytes = [&MAGIC[..], &Hash::digest(&CONTEXT, payload.as_slice()).0, payload.as_slice()].concat();
    // A crash may have left it, and `create` refuses a name that is taken.
    if disk.list("")?.iter().any(|name| name == NEW_PATH) {
        disk.remove(NEW_PATH)?;
    }
    let file = disk.create(NEW_PATH)?;
    file.write_all_at(&bytes, 0)?;
    file.sync()?;
    disk.rename(NEW_PATH, PATH)?;
    // Of the directory, too: the mount ends next, and a crash of the machine must not take the new name back.
    disk.sync_dir("")
}

fn read(bytes: &[u8]) -> Result<Vec<LostTemporary>, Error> {
    let checked = || {
        let (hash, payload) = bytes.strip_prefix(MAGIC)?.split_at_checked(32)?;
        (Hash::digest(&CONTEXT, payload).0 == hash).then_some(payload)
    };
    let damaged = || Error::damaged(format!("the file {PATH} is not what was written; remove it"));
    // The hash first, so that a count or a length that is read here is one that was written.
    let mut input = Reader::new(checked().ok_or_else(damaged)?);
    let count = input.length()?;
    (0..count).map(|_| Ok(read_one(&mut input)?)).collect()
}

fn read_one(input: &mut Reader<'_>) -> Result<LostTemporary, CodecError> {
    let branch = BranchId(input.number()?);
    let uid = u32::try_from(input.number()?).map_err(|_| CodecError::Number)?;
    Ok(LostTemporary { branch, uid, time: Time(input.signed()?), name: input.text()?.to_owned() })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::{DiskCall, Fault, FaultyDisk, ForgetfulDisk};

    #[test]
    fn a_power_cut_after_the_note_leaves_it() {
        let disk = ForgetfulDisk::new();
        let lost = [LostTemporary { branch: BranchId(7), uid: 1000, time: Time(5), name: "a~".into() }];
        write(&disk, &lost).unwrap();
        let after = disk.power_cut_keep_nothing();
        assert_eq!(read(&read_file(&after, PATH).unwrap()).unwrap(), lost);
    }

    /// If the rename came before the sync, a power cut between them could leave part of the new note, and the one before
    /// would be gone.
    #[test]
    fn a_power_cut_while_the_note_is_written_leaves_the_old_or_the_new_one() {
        let old = LostTemporary { branch: BranchId(7), uid: 1000, time: Time(5), name: "a~".into() };
        let new = [old.clone(), LostTemporary { name: "b~".into(), ..old.clone() }];
        let old = [old];
        let (mut kept, mut replaced, mut left_over) = (0, 0, 0);
        for nth in 1.. {
            let disk = ForgetfulDisk::new();
            write(&disk, &old).unwrap();
            let faulty = FaultyDisk::new(disk.clone());
            faulty.plan(Fault { sticky: true, ..Fault::once(nth, DiskCall::CHANGES, libc::EIO) });
            let is_written = write(&faulty, &new).is_ok();
            for seed in 0..32 {
                let cut = disk.power_cut(seed);
                let found = read(&read_file(&cut, PATH).unwrap()).unwrap();
                assert!(found == new || (found == old && !is_written), "call {nth}, seed {seed}: {found:?}");
                kept += usize::from(found == old);
                replaced += usize::from(found == new && !is_written);
                // What was left under the other name is not in the way, and does not stay.
                left_over += usize::from(cut.bytes(NEW_PATH).is_ok());
                write(&cut, &new).unwrap();
                assert_eq!(read(&read_file(&cut, PATH).unwrap()).unwrap(), new, "call {nth}, seed {seed}");
                assert!(cut.bytes(NEW_PATH).is_err(), "call {nth}, seed {seed}");
            }
            if is_written {
                break;
            }
        }
        assert!(kept > 0 && replaced > 0, "{kept} cuts left the old note, {replaced} the new one");
        assert!(left_over > 0, "no cut left a file under the other name");
    }

    #[test]
    fn what_was_lost_reads_back_and_no_flipped_bit_passes() {
        let disk = ForgetfulDisk::new();
        let one = LostTemporary { branch: BranchId(7), uid: 1000, time: Time(-5), name: ".a.json".into() };
        let lost = vec![one.clone(), LostTemporary { name: "é~".into(), ..one }];
        for _ in 0..2 {
            write(&disk, &lost).unwrap();
        }
        let bytes = read_file(&disk, PATH).unwrap();
        assert_eq!(read(&bytes).unwrap(), lost);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped).is_err(), "bit {bit}");
        }
        assert!(read(&bytes[..bytes.len() - 1]).is_err() && read(b"").is_err());
    }
}
