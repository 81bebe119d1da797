//! Whoever has a file open sees what the others have written: by a handle that writes a file whole, which goes past the
//! kernel's pages, by one that reads and writes, and by a mapping.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memmap2::MmapMut;

use crate::mount::Mounted;
use crate::shrink::run_steps;
use crate::support::{Chance, rounds};

/// Bytes that are mapped; the file is never shorter.
const MAPPED: usize = 200_000;
/// Behind this a step does not write, but for appends.
const LONGEST: usize = 400_000;

/// One file, open in every manner, and what it should hold.
struct Shared {
    path: std::path::PathBuf,
    writes: File,
    appends: File,
    both: File,
    map: MmapMut,
    expected: Vec<u8>,
}

impl Shared {
    fn new(mount: &Mounted) -> Shared {
        let path = mount.at("main/files/shared");
        let writes = File::create(&path).unwrap();
        writes.write_all_at(&[1; MAPPED], 0).unwrap();
        let appends = File::options().append(true).open(&path).unwrap();
        let both = File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: the file is never cut below what is mapped.
        let map = unsafe { memmap2::MmapOptions::new().len(MAPPED).map_mut(&both) }.unwrap();
        Shared { path, writes, appends, both, map, expected: vec![1; MAPPED] }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.expected.resize(self.expected.len().max(at + bytes.len()), 0);
        self.expected[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn step(&mut self, chance: &mut Chance) {
        let at = if chance.one_in(2) { chance.below(LONGEST) } else { chance.below(LONGEST / 4096) * 4096 };
        let length = if chance.one_in(2) { chance.below(9000) } else { chance.below(150_000) };
        let bytes = vec![chance.next() as u8; length];
        match chance.below(9) {
            0..3 => {
                self.writes.write_all_at(&bytes, at as u64).unwrap();
                self.put(at, &bytes);
            }
            3 => {
                self.both.write_all_at(&bytes, at as u64).unwrap();
                self.put(at, &bytes);
            }
            4 | 5 => {
                let at = at % MAPPED;
                let bytes = &bytes[..length.min(MAPPED - at)];
                self.map[at..at + bytes.len()].copy_from_slice(bytes);
                self.put(at, bytes);
            }
            6 => {
                self.appends.write_all(&bytes).unwrap();
                self.put(self.expected.len(), &bytes);
            }
            7 => {
                let size = MAPPED + chance.below(LONGEST - MAPPED);
                self.writes.set_len(size as u64).unwrap();
                self.expected.resize(size, 0);
            }
            _ => {
                let mut read = vec![0; length];
                let count = self.both.read_at(&mut read, at as u64).unwrap();
                let from = at.min(self.expected.len());
                assert!(read[..count] == self.expected[from..][..count], "bytes {at} and on");
            }
        }
    }

    fn check(&self, step: usize) {
        assert_eq!(self.writes.metadata().unwrap().len(), self.expected.len() as u64, "step {step}");
        assert!(self.map[..] == self.expected[..MAPPED], "mapped, step {step}");
        let mut read = vec![0; self.expected.len()];
        self.both.read_exact_at(&mut read, 0).unwrap();
        assert!(read == self.expected, "by the handle, step {step}");
        assert!(fs::read(&self.path).unwrap() == self.expected, "opened anew, step {step}");
    }
}

#[test]
fn all_handles_and_mappings_of_a_file_show_the_same() {
    for seed in 0..rounds(4) as u64 {
        let mut chance = Chance(seed + 1);
        // Each step is the seed of all that it does.
        let steps: Vec<u64> = (0..400).map(|_| chance.next()).collect();
        run_steps(seed, &steps, |steps| {
            let mount = Mounted::new();
            let mut shared = Shared::new(&mount);
            for (number, seed) in steps.iter().enumerate() {
                let mut chance = Chance(*seed);
                shared.step(&mut chance);
                if chance.one_in(4) {
                    shared.check(number);
                }
            }
            shared.map.flush().unwrap();
            shared.check(steps.len());
            mount.sh("mkdir main/branches/x; cmp main/files/shared main/branches/x/files/shared");
        });
    }
}

/// The kernel may fetch a page while another program writes past it.
#[test]
fn what_was_written_is_seen_by_whoever_looks_afterwards() {
    let mount = Mounted::new();
    let shared = Shared::new(&mount);
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let look = |read: &dyn Fn() -> u64| {
        while !done.load(Ordering::Acquire) {
            let least = written.load(Ordering::Acquire);
            let found = read();
            assert!(found >= least, "{found} where {least} was written before");
        }
    };
    shared.writes.write_all_at(&0u64.to_le_bytes(), 4096).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            look(&|| {
                let mut number = [0; 8];
                shared.both.read_exact_at(&mut number, 4096).unwrap();
                u64::from_le_bytes(number)
            });
        });
        scope.spawn(|| look(&|| u64::from_le_bytes(shared.map[4096..4104].try_into().unwrap())));
        for number in 1..=4000u64 {
            shared.writes.write_all_at(&number.to_le_bytes(), 4096).unwrap();
            written.store(number, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
}

/// A write past the pages would lose here: a store meanwhile brings the whole page back as it was.
#[test]
fn what_a_mapping_stores_leaves_what_is_written_beside_it() {
    let mount = Mounted::new();
    let path = mount.at("main/files/shared");
    fs::write(&path, [1; 8192]).unwrap();
    let both = File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: the file is never cut.
    let mut map = unsafe { memmap2::MmapOptions::new().map_mut(&both) }.unwrap();
    let writes = File::options().write(true).open(&path).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stored = 0u8;
            while !done.load(Ordering::Acquire) {
                stored = stored.wrapping_add(1);
                map[4096] = stored;
            }
        });
        for number in 1..=2000u64 {
            writes.write_all_at(&number.to_le_bytes(), 4096 + 2048).unwrap();
            let mut read = [0; 8];
            both.read_exact_at(&mut read, 4096 + 2048).unwrap();
            if u64::from_le_bytes(read) != number {
                done.store(true, Ordering::Release);
                panic!("write {number} is lost");
            }
        }
        done.store(true, Ordering::Release);
    });
}

#[test]
fn direct_io_is_taken_at_any_alignment() {
    let mount = Mounted::new();
    let path = mount.at("main/files/direct");
    let open = |flags| File::options().read(true).write(true).create(true).custom_flags(flags).open(&path).unwrap();
    let (direct, cached) = (open(libc::O_DIRECT), open(0));
    let mut expected: Vec<u8> = (0..200_001_u32).map(|at| (at % 251) as u8).collect();
    direct.write_all_at(&expected, 0).unwrap();
    for (at, length) in [(1, 3), (4_095, 2), (65_535, 70_001), (199_990, 17)] {
        let bytes = vec![at as u8; length];
        direct.write_all_at(&bytes, at).unwrap();
        expected.resize(expected.len().max(at as usize + length), 0);
        expected[at as usize..][..length].copy_from_slice(&bytes);
        // An odd place in memory, too.
        for (file, from) in [(&direct, at as usize - 1), (&cached, at as usize - 1), (&direct, 0)] {
            let mut read = vec![0; length + 2];
            let count = file.read_at(&mut read[1..], from as u64).unwrap();
            assert!(read[1..=count] == expected[from..][..count] && count > 0, "{at}, {length}, from {from}");
        }
    }
    cached.write_all_at(b"cached", 777).unwrap();
    let mut read = [0; 6];
    direct.read_exact_at(&mut read, 777).unwrap();
    assert_eq!(&read, b"cached");
}

#[test]
fn any_write_takes_the_capabilities_of_a_program() {
    let mount = Mounted::new();
    let code = "import os, errno, struct
os.chdir('main/files')
capability = struct.pack('<5I', 0x02000001, 1 << 10, 0, 0, 0)
def has():
    try: return os.getxattr('f', 'security.capability') == capability
    except OSError as e: assert e.errno == errno.ENODATA, e
for name, write in (('pwrite', lambda fd: os.pwrite(fd, b'x', 0)), ('truncate', lambda fd: os.ftruncate(fd, 1))):
    fd = os.open('f', os.O_RDWR | os.O_CREAT); os.pwrite(fd, b'program', 0)
    os.setxattr('f', 'security.capability', capability); assert has(), name
    os.read(fd, 3); os.chmod('f', 0o755); assert has(), 'reading and a mode are no write'
    write(fd); assert not has(), name
print('gone')";
    assert_eq!(mount.python(code).trim(), "gone");
}
