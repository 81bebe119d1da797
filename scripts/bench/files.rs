//! Files on the mount beside ext4 and the bare FUSE file system of [`crate::bare`], in turns; forks and merges of trees.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bare::Bare;
use crate::mounted::Mount;
use crate::{micros, p50, row};

/// Files of one turn.
const FILES: usize = 2_000;
/// Turns that each file system has; the median counts.
const TURNS: usize = 7;
/// Bytes of a small file.
const SMALL: usize = 1_024;
const MIB: usize = 1 << 20;
/// Length of the large file.
const LARGE: usize = 1_024 * MIB;
/// Files of the large tree, in folders of a thousand.
const TREE: usize = 100_000;
/// Forks of it in one turn.
const FORKS: usize = 50;

pub fn run() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (plain, bare, keeping, ours) = (make("ext4"), make("bare"), make("keeping"), make("mnt"));
    let mount = Mount::new(&folder.path().join("store"), &ours);
    {
        let (bare, keeping) = (Bare::new(&bare, false), Bare::new(&keeping, true));
        let files = mount.path.join("main/files");
        small([&files, &bare.path, &plain]);
        writes([&files, &bare.path, &keeping.path, &plain]);
        reads([&files, &keeping.path, &plain]);
    }
    drop(mount);
    for (count, bare) in [(1_000, None), (TREE, Some(make("beside")))] {
        let mount = Mount::new(&folder.path().join(format!("store-{count}")), &ours);
        trees(&mount, count, bare.as_deref());
    }
}

/// Does something with many files in a folder and returns the microseconds of one.
type Work = fn(&Path) -> f64;

/// What is measured on many small files, in this order.
const SMALL_WORK: [(&str, Work); 6] = [
    ("create, write 1 KiB, close", create),
    ("list and stat, a file", list),
    ("open, read 1 KiB, close", open),
    ("rename", rename),
    ("unlink", unlink),
    ("mkdir", make_dirs),
];

fn each(work: impl Fn(usize)) -> f64 {
    micros(|| (0..FILES).for_each(work)) / FILES as f64
}

fn create(folder: &Path) -> f64 {
    let content = [7; SMALL];
    let names: Vec<PathBuf> = (0..FILES).map(|n| folder.join(format!("file{n:05}"))).collect();
    each(|n| File::create(&names[n]).unwrap().write_all(&content).unwrap())
}

/// After the kernel has let go of what it was told of names and attributes.
fn list(folder: &Path) -> f64 {
    std::thread::sleep(Duration::from_millis(1_100));
    let count = || fs::read_dir(folder).unwrap().filter(|entry| entry.as_ref().unwrap().metadata().is_ok()).count();
    micros(|| assert_eq!(count(), FILES)) / FILES as f64
}

fn open(folder: &Path) -> f64 {
    let names: Vec<PathBuf> = (0..FILES).map(|n| folder.join(format!("file{n:05}"))).collect();
    each(|n| assert_eq!(File::open(&names[n]).unwrap().read(&mut [0; 2 * SMALL]).unwrap(), SMALL))
}

fn rename(folder: &Path) -> f64 {
    let names: Vec<[PathBuf; 2]> =
        (0..FILES).map(|n| [folder.join(format!("file{n:05}")), folder.join(format!("name{n:05}"))]).collect();
    each(|n| fs::rename(&names[n][0], &names[n][1]).unwrap())
}

fn unlink(folder: &Path) -> f64 {
    let names: Vec<PathBuf> = (0..FILES).map(|n| folder.join(format!("name{n:05}"))).collect();
    each(|n| fs::remove_file(&names[n]).unwrap())
}

fn make_dirs(folder: &Path) -> f64 {
    let names: Vec<PathBuf> = (0..FILES).map(|n| folder.join(format!("dir{n:05}"))).collect();
    each(|n| fs::create_dir(&names[n]).unwrap())
}

fn small(places: [&Path; 3]) {
    let mut times = vec![[const { Vec::new() }; 3]; SMALL_WORK.len()];
    for turn in 0..TURNS {
        let folders = places.map(|place| place.join(format!("turn{turn}")));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        for (times, (_, work)) in times.iter_mut().zip(SMALL_WORK) {
            times.iter_mut().zip(&folders).for_each(|(times, folder)| times.push(work(folder)));
        }
        folders.iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
    }
    for (times, (what, _)) in times.into_iter().zip(SMALL_WORK) {
        let [ours, bare, plain] = times.map(p50);
        let how = format!("{ours:.1} µs, bare {bare:.1} µs, ext4 {plain:.1} µs; {TURNS} turns of {FILES}");
        row(what, "≤ 1.5 × the bare one", &format!("{:.2} ×", ours / bare), &how);
    }
}

/// Fresh bytes, so that no two chunks are equal.
fn fill(bytes: &mut [u8], seed: &mut u64) {
    for eight in bytes.chunks_exact_mut(8) {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        eight.copy_from_slice(&seed.to_le_bytes());
    }
}

/// Writes the large file and returns its MB a second. The bytes begin a page, as those of cp and dd do.
fn write(path: &Path, seed: &mut u64) -> f64 {
    let mut bytes = memmap2::MmapMut::map_anon(MIB).unwrap();
    let mut file = File::create(path).unwrap();
    let mut time = 0.0;
    for _ in 0..LARGE / MIB {
        fill(&mut bytes, seed);
        time += micros(|| file.write_all(&bytes).unwrap());
    }
    time += micros(|| drop(file));
    LARGE as f64 / time
}

fn read(path: &Path) -> f64 {
    let mut bytes = vec![0; MIB];
    let mut file = File::open(path).unwrap();
    let time = micros(|| while file.read(&mut bytes).unwrap() > 0 {});
    LARGE as f64 / time
}

fn writes(places: [&Path; 4]) {
    let mut speeds = [const { Vec::new() }; 4];
    let mut seed = 11;
    for _ in 0..3 {
        for (speeds, place) in speeds.iter_mut().zip(places) {
            speeds.push(write(&place.join("large"), &mut seed));
            fs::remove_file(place.join("large")).unwrap();
        }
    }
    let [ours, bare, keeping, plain] = speeds.map(p50);
    let how = format!(
        "{ours:.0} MB/s, bare {bare:.0} MB/s, bare that keeps the bytes in RAM {keeping:.0} MB/s, ext4 {plain:.0} MB/s; \
         1 GiB by 1 MiB, no fsync, median of 3"
    );
    let measured = format!("{:.2} ×; {:.2} × one that keeps the bytes", ours / bare, ours / keeping);
    row("sequential write", "≥ 0.8 × the bare one", &measured, &how);
}

fn reads(places: [&Path; 3]) {
    let mut speeds = [const { Vec::new() }; 3];
    for place in places {
        write(&place.join("large"), &mut 12);
        read(&place.join("large"));
    }
    for _ in 0..5 {
        speeds.iter_mut().zip(places).for_each(|(speeds, place)| speeds.push(read(&place.join("large"))));
    }
    places.iter().for_each(|place| fs::remove_file(place.join("large")).unwrap());
    let [ours, bare, plain] = speeds.map(p50);
    let how = format!("{ours:.0} MB/s, bare {bare:.0} MB/s, ext4 {plain:.0} MB/s; 1 GiB by 1 MiB, median of 5");
    let measured = format!("{:.2} ×; {:.2} × the bare one", ours / plain, ours / bare);
    row("sequential read, warm", "≥ 0.8 × ext4", &measured, &how);
}

/// Merges of a tree with `count` files of 1 KiB; forks as well where there is a folder for the bare file system.
fn trees(mount: &Mount, count: usize, bare: Option<&Path>) {
    let main = mount.path.join("main");
    let name = |n: usize| format!("files/d{:03}/f{:03}", n / 1_000, n % 1_000);
    for n in 0..count {
        if n % 1_000 == 0 {
            fs::create_dir(main.join(format!("files/d{:03}", n / 1_000))).unwrap();
        }
        fs::write(main.join(name(n)), [n as u8; SMALL]).unwrap();
    }
    let how = format!("{count} files");
    if let Some(bare) = bare {
        let branches = main.join("branches");
        let bare = Bare::new(bare, false);
        let make = |folder: &Path, n: usize| micros(|| fs::create_dir(folder.join(format!("fork{n:03}"))).unwrap());
        let [mut ours, mut others] = [const { Vec::new() }; 2];
        // Some at a time: one for one, the servers of both take the processors from each other.
        for turn in 0..10 {
            let numbers = || turn * FORKS..(turn + 1) * FORKS;
            ours.extend(numbers().map(|n| make(&branches, n)));
            others.extend(numbers().map(|n| make(&bare.path, n)));
        }
        let how = format!("{how}; {:.1} µs for the mkdir of the bare one, {FORKS} of each in turns", p50(others));
        row("fork of a tree, by mkdir, p50", "< 100 µs", &format!("{:.1} µs", p50(ours)), &how);
    }
    let mut seed = 13;
    for (changed, figure, turns) in
        [(1, "< 0.3 ms", 21), (10, "< 0.5 ms", 21), (100, "< 2 ms", 11), (1_000, "< 20 ms", 7)]
    {
        let mut merge = |turn: usize| {
            let branch = main.join(format!("branches/m{changed}-{turn}"));
            fs::create_dir(&branch).unwrap();
            let mut content = [0; SMALL];
            for n in (0..count).step_by(count / changed) {
                fill(&mut content, &mut seed);
                fs::write(branch.join(name(n)), content).unwrap();
            }
            micros(|| fs::rename(&branch, main.join(branch.file_name().unwrap())).unwrap())
        };
        let times = p50((0..turns).map(&mut merge).collect());
        let how = format!("{how} in the parent; median of {turns} renames into it");
        row(&format!("merge of {changed} changed 1 KiB files"), figure, &format!("{:.2} ms", times / 1e3), &how);
    }
}
