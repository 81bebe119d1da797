//! Room on the disk that only giving back may use: files that are there to be removed.
//!
//! A delete appends to the journal, and a seal or a collection writes new files before it removes larger ones. On a
//! full disk a delete goes on with the room and the inode of one of these files after the other, a seal with those of
//! all that are left; what they gave back makes the reserve whole again.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::disk::{Disk, FILLER_BYTES, filler, remove_if_exists};
use crate::memory::Error;
use crate::sync::Mutex;

/// The folder below the store's root, made by the first fill.
pub const FOLDER: &str = "reserve";
/// Files of a whole reserve: more than a seal makes.
const PIECES: u64 = 16;
/// The reserve takes at most one part in this many of the disk's bytes and inodes.
const DISK_ONE_IN: u64 = 8;
/// What a power cut leaves whole of bytes that were not synced; pieces never are.
const SECTOR_BYTES: usize = 512;

/// The reserve of an open store: files that only take up room, given up one by one where what frees room finds the disk full.
pub(in crate::memory) struct Reserve {
    disk: Arc<dyn Disk>,
    /// How many files a whole reserve has; 0 if the store keeps none.
    pieces: usize,
    piece_bytes: u64,
    present: Mutex<BTreeSet<usize>>,
    /// How many of them there are, for whoever asks without the lock.
    present_count: AtomicUsize,
    /// Grows with each change, so that a status can be compared with a later one.
    change_count: AtomicU64,
    /// Whether the log says that it is short, so that not each attempt to fill it says it again.
    has_warned: AtomicBool,
}

/// How much of the reserve is there, in bytes, and how much a whole one has.
#[derive(Clone, Copy, Default, serde::Serialize)]
pub(in crate::memory) struct ReserveFill {
    bytes: u64,
    total: u64,
}

fn piece_path(piece: usize) -> String {
    format!("{FOLDER}/{piece:02}")
}

impl Reserve {
    /// Looks for the reserve of a store that may take `bytes`, or a part of a small disk; makes nothing yet.
    pub fn open(disk: Arc<dyn Disk>, bytes: u64) -> Reserve {
        let size = disk.space().ok().filter(|_| bytes > 0);
        let part = |most: u64, of: u64| if of == 0 { most } else { most.min(of / DISK_ONE_IN) };
        let pieces = size.map_or(0, |size| part(PIECES, size.inodes_total));
        let piece_bytes = size.map_or(0, |size| part(bytes, size.total_bytes)) / pieces.max(1);
        let piece_bytes = piece_bytes.next_multiple_of(FILLER_BYTES as u64);
        let is_there = |piece: &usize| {
            let length = disk.open(&piece_path(*piece)).and_then(|file| file.len());
            // A piece that is too short is none, as after a crash while it was made; `fill` makes it again.
            length.is_ok_and(|length| length >= piece_bytes)
        };
        let there: BTreeSet<usize> = (0..pieces as usize).filter(is_there).collect();
        Reserve {
            disk,
            pieces: pieces as usize,
            piece_bytes,
            present_count: AtomicUsize::new(there.len()),
            present: Mutex::new(there),
            change_count: AtomicU64::default(),
            has_warned: AtomicBool::default(),
        }
    }

    /// Returns whether the reserve has its full size, without its lock. A reserve of no files has.
    pub fn is_whole(&self) -> bool {
        self.present_count.load(Ordering::Acquire) == self.pieces
    }

    /// Returns how many bytes of it are on the disk now, without its lock.
    pub fn bytes(&self) -> u64 {
        self.present_count.load(Ordering::Acquire) as u64 * self.piece_bytes
    }

    /// Returns how many bytes a full reserve has; 0 for a store that keeps none.
    pub fn bytes_wanted(&self) -> u64 {
        self.pieces as u64 * self.piece_bytes
    }

    /// Returns both figures, as `status` shows them.
    pub fn fill_state(&self) -> ReserveFill {
        ReserveFill { bytes: self.bytes(), total: self.bytes_wanted() }
    }

    /// Returns a number that grows when more or less of it is there: a cached `status` with a smaller one is outdated.
    pub fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    fn note(&self, count: usize) {
        self.present_count.store(count, Ordering::Release);
        self.change_count.fetch_add(1, Ordering::AcqRel);
    }

    /// Extends the reserve to its full size, as far as there is room.
    pub fn fill(&self) {
        if self.is_whole() {
            return;
        }
        let mut there = self.present.lock();
        let before = there.len();
        let missing: Vec<usize> = (0..self.pieces).filter(|piece| !there.contains(piece)).collect();
        let made = self.disk.create_dir(FOLDER).and_then(|()| {
            missing.into_iter().try_for_each(|piece| {
                self.create_piece(piece)?;
                there.insert(piece);
                Ok(())
            })
        });
        // Noted under the lock of `present`, so that the count never says less or more than is there.
        self.note(there.len());
        self.log_fill(made, there.len() > before);
    }

    /// Says in the log how much of it is there; that nothing more of it could be made, once until it is whole.
    fn log_fill(&self, made: io::Result<()>, has_grown: bool) {
        let (bytes, wanted) = (self.bytes(), self.bytes_wanted());
        let was_told = self.has_warned.swap(made.is_err(), Ordering::AcqRel);
        match made {
            Ok(()) => log::info!("the reserve of {wanted} bytes for deletes and gc on a full disk is whole"),
            Err(error) if was_told && !has_grown => log::debug!("the reserve stays short: {error}"),
            Err(error) => log::warn!(
                "of the reserve of {wanted} bytes for deletes and gc on a full disk {bytes} are there: {error}; free \
                 space on the store's disk"
            ),
        }
    }

    fn create_piece(&self, piece: usize) -> io::Result<()> {
        let path = piece_path(piece);
        remove_if_exists(&*self.disk, &path)?;
        let made = self.disk.create(&path).and_then(|file| file.allocate(self.piece_bytes));
        if made.is_err() {
            // Half of a piece would be taken for none, and take up room.
            let _ = self.disk.remove(&path);
        }
        made
    }

    /// Gives the room of one file back to the disk; returns whether there was one.
    pub fn release_piece(&self) -> bool {
        let mut there = self.present.lock();
        while let Some(piece) = there.pop_last() {
            // One that can't be removed is not counted any longer; `fill` makes it anew.
            let removed = self.disk.remove(&piece_path(piece));
            self.note(there.len());
            match removed {
                Ok(()) => {
                    log::debug!("the disk is full: a piece of the reserve is given up, {} are left", there.len());
                    return true;
                }
                Err(error) => log::warn!("a piece of the reserve can't be given up: {error}"),
            }
        }
        false
    }

    /// Gives up all of it, for a seal that the disk had no room for; returns whether there was any.
    pub fn release_all(&self) -> bool {
        let had = self.release_piece();
        while self.release_piece() {}
        had
    }
}

/// Checks that the files of the reserve hold nothing but what takes up room. Kind `Damaged` for a file that is not a
/// piece of the reserve or holds other bytes. A missing folder is right.
pub fn verify(disk: &dyn Disk) -> Result<(), Error> {
    let names = match disk.list(FOLDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names.map_err(|error| Error::io("the reserve could not be read", error))?,
    };
    for name in names {
        let path = format!("{FOLDER}/{name}");
        let is_piece = name.parse().is_ok_and(|piece: usize| piece_path(piece) == path);
        if !is_piece || !is_filled(disk, &path)? {
            return Err(Error::damaged(format!("the file {path} holds something that is not of a store")));
        }
    }
    Ok(())
}

fn is_filled(disk: &dyn Disk, path: &str) -> Result<bool, Error> {
    let read = || -> io::Result<bool> {
        let file = disk.open(path)?;
        let length = file.len()?;
        let mut block = [0; FILLER_BYTES];
        for (at, number) in (0..length).step_by(FILLER_BYTES).zip(0..) {
            let block = &mut block[..(length - at).min(FILLER_BYTES as u64) as usize];
            file.read_exact_at(block, at)?;
            let expected = filler(number);
            // After a power cut any of its sectors may be zeros, whatever the others are.
            let mut sectors = block.chunks(SECTOR_BYTES).zip(expected.chunks(SECTOR_BYTES));
            if !sectors.all(|(found, made)| found.iter().all(|byte| *byte == 0) || made.starts_with(found)) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match read() {
        // The piece was released by another thread meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        filled => filled.map_err(|error| Error::io(format!("the file {path} could not be read"), error)),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::disk::ForgetfulDisk;

    fn disk() -> (ForgetfulDisk, Arc<dyn Disk>) {
        let disk = ForgetfulDisk::new();
        disk.limit(1 << 20, 80);
        (disk.clone(), Arc::new(disk))
    }

    #[test]
    fn it_takes_an_eighth_of_a_small_disk_and_of_its_inodes_and_is_given_up_piece_by_piece() {
        let (_, disk) = disk();
        let reserve = Reserve::open(disk.clone(), 1 << 30);
        assert!(!reserve.is_whole() && reserve.bytes() == 0);
        reserve.fill();
        assert!(reserve.is_whole() && (1 << 17..1 << 18).contains(&reserve.bytes()), "{}", reserve.bytes());
        assert_eq!(disk.list(FOLDER).unwrap().len(), 10);
        let free = disk.space().unwrap().free_bytes;
        assert!(reserve.release_piece() && disk.space().unwrap().free_bytes > free && !reserve.is_whole());
        assert!(reserve.release_all() && !reserve.release_all() && reserve.bytes() == 0);
        verify(&*disk).unwrap();
    }

    #[test]
    fn it_is_8_mib_in_16_files_where_the_disk_is_large() {
        let who = crate::memory::Actor { uid: 0, gid: 0, name: "root".into() };
        let disk: Arc<dyn Disk> = Arc::new(ForgetfulDisk::new());
        let reserve = Reserve::open(disk.clone(), crate::memory::Environment::real(who).reserve_bytes);
        reserve.fill();
        assert_eq!((reserve.bytes(), disk.list(FOLDER).unwrap().len()), (8 << 20, 16));
    }

    #[test]
    fn what_is_left_of_it_is_found_and_the_rest_made_when_there_is_room() {
        let (forgetful, disk) = disk();
        let reserve = Reserve::open(disk.clone(), 1 << 16);
        reserve.fill();
        let whole = reserve.bytes();
        assert!(reserve.release_piece() && reserve.release_piece());
        disk.create("other").unwrap().allocate(disk.space().unwrap().free_bytes).unwrap();
        let again = Reserve::open(disk.clone(), 1 << 16);
        again.fill();
        assert!(!again.is_whole() && again.bytes() > 0);
        forgetful.remove("other").unwrap();
        again.fill();
        assert!(again.is_whole() && again.bytes() == whole);
    }

    /// The real disk fills a piece so where the file system can't set room aside.
    #[test]
    fn sectors_of_a_piece_that_a_power_cut_lost_are_no_damage() {
        let (forgetful, disk) = disk();
        disk.create_dir(FOLDER).unwrap();
        let file = disk.create(&piece_path(0)).unwrap();
        for number in 0..4 {
            file.write_all_at(&filler(number), number * FILLER_BYTES as u64).unwrap();
        }
        ["", FOLDER].into_iter().for_each(|folder| disk.sync_dir(folder).unwrap());
        let is_torn = |block: &&[u8]| {
            let sectors = block.chunks(SECTOR_BYTES);
            (1..sectors.len()).contains(&sectors.filter(|sector| sector.iter().all(|byte| *byte == 0)).count())
        };
        let (mut torn_blocks, mut short_pieces) = (0, 0);
        for seed in 0..64 {
            let cut = forgetful.power_cut(seed);
            verify(&cut).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let bytes = cut.bytes(&piece_path(0)).unwrap();
            torn_blocks += bytes.chunks(FILLER_BYTES).filter(is_torn).count();
            short_pieces += usize::from(bytes.len() < 4 * FILLER_BYTES);
            let reserve = Reserve::open(Arc::new(cut.clone()), 1 << 17);
            reserve.fill();
            assert!(reserve.is_whole(), "seed {seed}");
            assert_eq!(cut.bytes(&piece_path(0)).unwrap().len(), 4 * FILLER_BYTES, "seed {seed}");
            verify(&cut).unwrap_or_else(|error| panic!("seed {seed}, filled again: {error}"));
        }
        assert!(torn_blocks > 0 && short_pieces > 0, "{torn_blocks} blocks were torn, {short_pieces} pieces too short");
    }

    #[test]
    fn what_stands_in_it_is_found() {
        let (forgetful, disk) = disk();
        Reserve::open(disk.clone(), 1 << 16).fill();
        verify(&*disk).unwrap();
        forgetful.replace("reserve/03", filler(0).to_vec()).unwrap();
        verify(&*disk).unwrap();
        forgetful.flip("reserve/03", 7, 1).unwrap();
        assert!(verify(&*disk).is_err());
        forgetful.replace("reserve/03", Vec::new()).unwrap();
        forgetful.replace("reserve/note", Vec::new()).unwrap();
        assert!(verify(&*disk).is_err());
    }
}
