//! Journal files one after the other: what counts of them after a crash.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::file_header::{FILE_HEADER_BYTES, FileHeader};
use super::super::frame::{FRAME_HEADER_BYTES, FrameChecksum};
use super::super::{FrameKind, Salt};
use super::*;
use crate::disk::{DiskCall, DiskFile, Fault, FaultyDisk, ForgetfulDisk, Mapped};

const SALT: Salt = [7; 16];

fn disk() -> (ForgetfulDisk, Arc<dyn Disk>) {
    let disk = ForgetfulDisk::new();
    disk.create_dir(FOLDER).unwrap();
    disk.sync_dir("").unwrap();
    (disk.clone(), Arc::new(disk))
}

fn append(journal: &Journal, text: &str) {
    journal.append(FrameKind::Command, &[text.as_bytes()]).unwrap();
}

/// A file with a frame that is flushed and one that is not, and the file behind it.
fn followed(disk: &Arc<dyn Disk>) -> (Arc<Journal>, Journal) {
    let old = Arc::new(Journal::create(disk, &SALT).unwrap());
    append(&old, "one");
    old.sync(old.length()).unwrap();
    append(&old, "two");
    let new = Journal::create_after(disk, &old, &SALT).unwrap();
    new.begin().unwrap();
    append(&new, "three");
    (old, new)
}

fn read(disk: &Arc<dyn Disk>) -> Result<(Vec<String>, ReplayedFiles), JournalError> {
    let mut texts = Vec::new();
    let replayed = JournalFiles::list(disk, 1)?.replay::<JournalError>(true, |frame| {
        if frame.kind == FrameKind::Command {
            texts.push(String::from_utf8(frame.payload.to_vec()).unwrap());
        }
        Ok(true)
    })?;
    Ok((texts, replayed))
}

/// An opening removes a last file without a header, so the header must be durable before a frame can follow it.
#[test]
fn a_new_file_has_its_header_on_the_device_before_its_name_is_synced() {
    let (forgetful, _) = disk();
    let faulty = FaultyDisk::new(forgetful.clone());
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    // The file can't be removed either, so it stays as it was when its name was to be synced.
    let kinds = &[DiskCall::SyncDir, DiskCall::Remove];
    faulty.plan(Fault { sticky: true, ..Fault::once(1, kinds, libc::EIO) });
    assert!(Journal::create(&disk, &SALT).is_err());
    let path = Journal::file_path(1);
    let (header, mut found) = (forgetful.bytes(&path).unwrap(), 0);
    assert_eq!(header.len() as u64, FILE_HEADER_BYTES);
    for seed in 0..32 {
        if let Ok(bytes) = forgetful.power_cut(seed).bytes(&path) {
            assert_eq!(bytes, header, "seed {seed}");
            found += 1;
        }
    }
    assert!(found > 0, "no cut left the name, so nothing was tested");
}

/// It holds no frame: one is written only once the header is on the device.
#[test]
fn a_last_file_without_a_whole_header_is_passed_over_and_removed() {
    let header = FileHeader::create(2, &SALT).1;
    let cut = (0..header.len()).map(|length| header[..length].to_vec());
    let mut magic_alone = header;
    magic_alone[8..].fill(0);
    let with_second = |bytes: Vec<u8>| {
        let (forgetful, disk) = disk();
        append(&Journal::create(&disk, &SALT).unwrap(), "one");
        forgetful.replace(&Journal::file_path(2), bytes).unwrap();
        disk
    };
    for bytes in cut.chain([magic_alone.to_vec()]) {
        let disk = with_second(bytes.clone());
        let (texts, replayed) = read(&disk).unwrap();
        assert_eq!((texts, replayed.torn_tail().is_none()), (vec!["one".to_owned()], true), "{bytes:?}");
        append(&replayed.resume(&disk).unwrap(), "two");
        assert_eq!(disk.list(FOLDER).unwrap().len(), 1, "{bytes:?}");
        assert_eq!(read(&disk).unwrap().0, ["one", "two"], "{bytes:?}");
    }
    // One with a byte behind its header was in use.
    let longer = [&magic_alone[..], b"x"].concat();
    assert!(matches!(read(&with_second(longer)), Err(JournalError::Damaged { .. })));
}

#[test]
fn what_follows_a_lost_tail_goes_with_it_if_it_was_never_flushed() {
    let (forgetful, disk) = disk();
    let (_old, new) = followed(&disk);
    assert_eq!(read(&disk).unwrap().0, ["one", "two", "three"]);
    // The new file reached the device by itself, the end of the old one did not.
    new.file().sync().unwrap();
    let after: Arc<dyn Disk> = Arc::new(forgetful.power_cut_keep_nothing());
    let (texts, replayed) = read(&after).unwrap();
    assert_eq!(texts, ["one"]);
    assert_eq!(replayed.torn_tail().unwrap().bytes, new.length() - FILE_HEADER_BYTES, "all frames of the new file");
    append(&replayed.resume(&after).unwrap(), "four");
    assert_eq!(after.list(FOLDER).unwrap().len(), 1);
    assert_eq!(read(&after).unwrap().0, ["one", "four"]);
}

/// A frame that a power cut lost, and behind it one that was not flushed either and is there.
fn torn_in_one_file() -> ForgetfulDisk {
    let (forgetful, disk) = disk();
    let journal = Journal::create(&disk, &SALT).unwrap();
    append(&journal, "one");
    journal.sync(journal.length()).unwrap();
    let start = journal.length() as usize;
    append(&journal, "two");
    let end = journal.length() as usize;
    append(&journal, "three");
    let path = Journal::file_path(1);
    let mut bytes = forgetful.bytes(&path).unwrap();
    bytes[start..end].fill(0);
    forgetful.replace(&path, bytes).unwrap();
    forgetful
}

/// The same where the second frame is in the next file, and nothing is left of the first.
fn torn_before_another_file() -> ForgetfulDisk {
    let (forgetful, disk) = disk();
    let (_old, new) = followed(&disk);
    new.file().sync().unwrap();
    forgetful.power_cut_keep_nothing()
}

/// Two files that the kernel has whole and the device has not.
fn killed_with_two_files() -> ForgetfulDisk {
    let (forgetful, disk) = disk();
    drop(followed(&disk));
    forgetful
}

/// Opens the journal and appends two frames, the first as long as the one that was lost. `safe` becomes the number of
/// frames that are flushed.
fn repair_and_append(disk: &Arc<dyn Disk>, safe: &mut usize) -> Result<(), JournalError> {
    let (texts, replayed) = read(disk)?;
    let journal = replayed.resume(disk)?;
    for (text, count) in ["TWO", "four"].into_iter().zip(texts.len() + 1..) {
        journal.append(FrameKind::Command, &[text.as_bytes()])?;
        journal.sync(journal.length())?;
        *safe = count;
    }
    Ok(())
}

/// Says what is wrong with a journal that should hold the first of the `expected` frames, at least as many as are safe.
fn check_frames(disk: &Arc<dyn Disk>, expected: &[String], safe: usize) -> Result<(), String> {
    let (texts, replayed) = read(disk).map_err(|error| error.to_string())?;
    if texts.len() < safe || !expected.starts_with(&texts) {
        return Err(format!("it has {texts:?}, of which {safe} are safe"));
    }
    replayed.resume(disk).map_err(|error| error.to_string())?;
    let again = read(disk).map_err(|error| error.to_string())?.0;
    if again == texts { Ok(()) } else { Err(format!("it has {texts:?}, and then {again:?}")) }
}

/// Cuts the power at every call of an opening and of what is appended behind it; returns what went wrong.
fn cut_again(crashed: fn() -> ForgetfulDisk, ignore_sync: bool) -> Vec<String> {
    let disk: Arc<dyn Disk> = Arc::new(crashed());
    let mut expected = read(&disk).unwrap().0;
    expected.extend(["TWO", "four"].map(str::to_owned));
    let mut wrong = Vec::new();
    for nth in 1.. {
        let faulty = FaultyDisk::new(crashed());
        faulty.inner().ignore_sync(ignore_sync);
        faulty.plan(Fault { sticky: true, ..Fault::once(nth, DiskCall::CHANGES, libc::EIO) });
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let mut safe = 1;
        let is_done = repair_and_append(&disk, &mut safe).is_ok();
        for seed in 0..64 {
            let after: Arc<dyn Disk> = Arc::new(faulty.inner().power_cut(seed));
            if let Err(error) = check_frames(&after, &expected, safe) {
                wrong.push(format!("call {nth}, seed {seed}: {error}"));
            }
        }
        if is_done {
            return wrong;
        }
    }
    unreachable!("an opening ends")
}

#[test]
fn a_power_cut_while_an_opening_repairs_the_journal_brings_nothing_back_that_was_cut() {
    for crashed in [torn_in_one_file, torn_before_another_file, killed_with_two_files] {
        let wrong = cut_again(crashed, false);
        assert!(wrong.is_empty(), "{} of the cuts: {wrong:#?}", wrong.len());
    }
}

/// The negative control: where a drive lies about syncs, the same checks find a frame that comes back.
#[test]
fn a_torn_tail_whose_cut_was_never_flushed_comes_back() {
    let wrong = cut_again(torn_in_one_file, true);
    assert!(wrong.iter().any(|text| text.contains("three")), "{wrong:#?}");
}

#[test]
fn a_file_that_is_longer_than_the_next_one_tells_is_damage() {
    let (_, disk) = disk();
    let (old, _new) = followed(&disk);
    append(&old, "late");
    assert!(matches!(read(&disk), Err(JournalError::Damaged { .. })));
}

#[test]
fn a_frame_of_a_later_version_is_skipped_or_refused_as_its_code_says() {
    for (code, is_skipped) in [(0xC0, true), (0xDF, true), (0xBF, false), (0xE0, false), (0, false)] {
        let (_, disk) = disk();
        let journal = Journal::create(&disk, &SALT).unwrap();
        append(&journal, "one");
        journal.append(FrameKind::Unknown(code), &[b"of a later version"]).unwrap();
        append(&journal, "two");
        match read(&disk) {
            Ok((texts, replayed)) => {
                assert!(is_skipped && replayed.torn_tail().is_none(), "{code:#x}");
                assert_eq!(texts, ["one", "two"]);
            }
            Err(error) => {
                assert!(!is_skipped && error.to_string().contains("newer version"), "{code:#x}: {error}");
            }
        }
    }
}

#[test]
fn damage_in_a_file_before_one_that_was_flushed_is_no_lost_tail() {
    let (forgetful, disk) = disk();
    let (old, new) = followed(&disk);
    new.sync(new.length()).unwrap();
    append(&new, "four");
    let path = Journal::file_path(old.number());
    forgetful.flip(&path, old.length() - 1, 1).unwrap();
    assert!(matches!(read(&disk), Err(JournalError::Damaged { .. })));
    forgetful.flip(&path, old.length() - 1, 1).unwrap();
    let cut = forgetful.bytes(&path).unwrap()[..old.length() as usize - 28].to_vec();
    forgetful.replace(&path, cut).unwrap();
    assert!(matches!(read(&disk), Err(JournalError::Damaged { .. })), "its last frame is missing");
}

#[test]
fn a_flush_of_a_file_flushes_the_one_before_it_first() {
    for (failing, expected) in [(1, &["one"][..]), (2, &["one", "two"][..]), (3, &["one", "two", "three"][..])] {
        let (forgetful, _) = disk();
        let faulty = FaultyDisk::new(forgetful.clone());
        let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
        let (_old, new) = followed(&disk);
        faulty.plan(Fault::once(failing, &[DiskCall::Sync], libc::EIO));
        assert_eq!(new.sync(new.length()).is_ok(), failing == 3);
        let after: Arc<dyn Disk> = Arc::new(forgetful.power_cut_keep_nothing());
        assert_eq!(read(&after).unwrap().0, expected, "flush {failing} fails");
    }
}

/// A file whose first flush finds a frame that breaks off, which is cut only after that.
struct CutWhileFlushed {
    file: Box<dyn DiskFile>,
    faulty: FaultyDisk<ForgetfulDisk>,
    journal: OnceLock<Arc<Journal>>,
    flushes: AtomicUsize,
}

/// The journal holds the file, which is shared with the test.
struct SharedFile(Arc<CutWhileFlushed>);

impl DiskFile for SharedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.file.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.file.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.file.write_all_at(buf, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.file.allocate(len)
    }

    fn sync(&self) -> io::Result<()> {
        if self.0.flushes.fetch_add(1, Ordering::Relaxed) == 0 {
            let kinds = &[DiskCall::Write];
            self.0.faulty.plan(Fault { nth: 1, kinds, errno: libc::ENOSPC, short_write: true, sticky: false });
            let journal = self.0.journal.get().unwrap();
            journal.append(FrameKind::Command, &[b"too much"]).unwrap_err();
        }
        self.0.file.sync()
    }

    fn map(&self) -> io::Result<Mapped> {
        self.0.file.map()
    }
}

#[test]
fn a_file_in_which_a_frame_was_cut_during_a_flush_is_flushed_again_before_another_follows() {
    let (forgetful, _) = disk();
    let faulty = FaultyDisk::new(forgetful);
    let disk: Arc<dyn Disk> = Arc::new(faulty.clone());
    drop(Journal::create(&disk, &SALT).unwrap());
    let path = Journal::file_path(1);
    let file = disk.open_write(&path).unwrap();
    let shared = Arc::new(CutWhileFlushed { file, faulty, journal: OnceLock::new(), flushes: AtomicUsize::new(0) });
    let file: Arc<dyn DiskFile> = Arc::new(SharedFile(shared.clone()));
    let journal = Arc::new(Journal::resume(1, path, file, FileHeader::create(1, &SALT).0, FILE_HEADER_BYTES));
    assert!(shared.journal.set(journal.clone()).is_ok());
    append(&journal, "one");
    journal.sync(journal.length()).unwrap();
    journal.finish().unwrap();
    assert_eq!(shared.flushes.load(Ordering::Relaxed), 2);
    journal.finish().unwrap();
    assert_eq!(shared.flushes.load(Ordering::Relaxed), 2, "once is enough");
}

#[test]
fn a_failed_flush_of_the_file_before_ends_writing() {
    let (forgetful, disk) = disk();
    let (_old, new) = followed(&disk);
    forgetful.fail_next_sync(libc::EIO);
    new.sync(new.length()).unwrap_err();
    assert!(new.has_failed());
    new.append(FrameKind::Command, &[b"four"]).unwrap_err();
}

#[test]
fn a_file_that_nothing_tells_to_be_flushed_is_written_again() {
    let (forgetful, disk) = disk();
    let (old, new) = followed(&disk);
    drop((old, new));
    let (_, replayed) = read(&disk).unwrap();
    let journal = replayed.resume(&disk).unwrap();
    journal.sync(journal.length()).unwrap();
    let after: Arc<dyn Disk> = Arc::new(forgetful.power_cut_keep_nothing());
    assert_eq!(read(&after).unwrap().0, ["one", "two", "three"]);
}

/// Bytes of a journal file with a clean end, whose marks tell of more than the file has that they are copied to.
fn foreign_journal(salt: &Salt) -> Vec<u8> {
    let (forgetful, disk) = disk();
    let journal = Journal::create(&disk, salt).unwrap();
    append(&journal, &"long".repeat(100));
    journal.sync(journal.length()).unwrap();
    journal.append(FrameKind::End, &[b"signature"]).unwrap();
    forgetful.bytes(&Journal::file_path(1)).unwrap()
}

#[test]
fn a_torn_frame_whose_payload_is_a_journal_file_is_cut_like_any_other() {
    // A copy of another store's journal, and of one with the same salt: it is not at the same offset.
    for salt in [[8; 16], SALT] {
        let (forgetful, disk) = disk();
        let journal = Journal::create(&disk, &SALT).unwrap();
        append(&journal, "one");
        let offset = journal.length();
        journal.append(FrameKind::FileOp, &[&foreign_journal(&salt)]).unwrap();
        let path = Journal::file_path(1);
        // The sector with the frame's header did not reach the device, those with its payload did.
        forgetful.flip(&path, offset + 1, 1).unwrap();
        let (texts, replayed) = read(&disk).unwrap();
        assert_eq!((texts, replayed.torn_tail().unwrap().offset), (vec!["one".to_owned()], offset));
    }
}

#[test]
fn a_frame_behind_a_bad_one_that_tells_of_a_flush_makes_it_damage() {
    let (forgetful, disk) = disk();
    let journal = Journal::create(&disk, &SALT).unwrap();
    let end = journal.append(FrameKind::Command, &[b"one"]).unwrap();
    journal.sync(end).unwrap();
    append(&journal, "two");
    forgetful.flip(&Journal::file_path(1), end - 20, 1).unwrap();
    assert!(matches!(read(&disk), Err(JournalError::Damaged { .. })));
}

#[test]
fn a_file_without_a_salt_is_read_and_carried_on() {
    let (forgetful, disk) = disk();
    let frame = |offset, kind, payload: &[u8]| {
        [&FrameChecksum::Unkeyed.encode_header(offset, kind, 0, &[payload], 0)[..], payload].concat()
    };
    let bytes = [&b"engrJRN2"[..], &1u64.to_le_bytes(), &frame(16, FrameKind::Command, b"one")].concat();
    let file = disk.create(&Journal::file_path(1)).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(FOLDER).unwrap();
    let (texts, replayed) = read(&disk).unwrap();
    assert_eq!(texts, ["one"]);
    let journal = Arc::new(replayed.resume(&disk).unwrap());
    append(&journal, "two");
    let next = Journal::create_after(&disk, &journal, &SALT).unwrap();
    next.begin().unwrap();
    append(&next, "three");
    next.sync(next.length()).unwrap();
    let after: Arc<dyn Disk> = Arc::new(forgetful.power_cut_keep_nothing());
    assert_eq!(read(&after).unwrap().0, ["one", "two", "three"]);
}

/// A tail as long as a frame's header can't be a frame that breaks off; one byte less may be.
#[test]
fn a_tail_is_cut_short_where_it_is_shorter_than_a_header() {
    for (length, cut_short) in
        [(FRAME_HEADER_BYTES - 1, true), (FRAME_HEADER_BYTES, false), (FRAME_HEADER_BYTES + 1, false)]
    {
        let (forgetful, disk) = disk();
        let journal = Journal::create(&disk, &SALT).unwrap();
        append(&journal, "one");
        let path = Journal::file_path(journal.number());
        let bytes = [&forgetful.bytes(&path).unwrap()[..], &vec![0xA5; length]].concat();
        forgetful.replace(&path, bytes).unwrap();
        let (texts, replayed) = read(&disk).unwrap();
        assert_eq!(texts, ["one"]);
        let torn = replayed.torn_tail().unwrap();
        assert_eq!((torn.bytes, torn.cut_short), (length as u64, cut_short));
    }
}
