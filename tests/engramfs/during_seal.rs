//! What is written, deleted or read while a seal or a collection is under way.

use std::io;
use std::sync::{Arc, Mutex};

use engramfs::disk::{Disk, DiskCall, DiskFile, DiskSpace, ForgetfulDisk};
use engramfs::memory::{Kind, Memory, OpenMode, Setting, View};

use crate::support::{Chance, delete, environment, holding, main_of, open, put, verify, who};

/// A disk on which something happens once, right after the first such call for the manifest.
struct Meanwhile {
    inner: ForgetfulDisk,
    call: DiskCall,
    what: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Meanwhile {
    fn happen(&self, call: DiskCall, name: &str) {
        let what = (call == self.call && name == "manifest").then(|| self.what.lock().unwrap().take()).flatten();
        what.into_iter().for_each(|what| what());
    }
}

impl Disk for Meanwhile {
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)?;
        self.happen(DiskCall::Rename, to);
        Ok(())
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = self.inner.open(path)?;
        self.happen(DiskCall::Open, path);
        Ok(file)
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.inner.create(path)
    }

    fn open_write(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.inner.open_write(path)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn mode(&self, path: &str) -> io::Result<u32> {
        self.inner.mode(path)
    }

    fn space(&self) -> io::Result<DiskSpace> {
        self.inner.space()
    }
}

#[test]
fn what_goes_out_of_use_while_gc_runs_is_kept_for_as_long_as_the_manifest_names_it() {
    let inner = ForgetfulDisk::new();
    let disk = Arc::new(Meanwhile { inner: inner.clone(), call: DiskCall::Rename, what: Mutex::default() });
    let memory = crate::support::open_on(disk.clone()).unwrap();
    // An earlier state of the fork would keep its segment.
    memory.set(&who(), main_of(&memory), Setting::Keep, "0s").unwrap();
    let fork = memory.fork(&who(), main_of(&memory), "x", None).unwrap();
    memory.commit(&who(), fork, vec![put("a", None, Some("of the fork alone"))]).unwrap();
    memory.seal().unwrap();
    let sealed = holding(&inner, "of the fork alone");
    assert!(matches!(&sealed[..], [path] if path.starts_with("segments/")), "{sealed:?}");
    let writer = memory.clone();
    *disk.what.lock().unwrap() = Some(Box::new(move || writer.discard(&who(), fork).unwrap()));
    memory.gc(&who(), None, false).unwrap();
    assert!(memory.resolve("main/x").is_err(), "it was discarded meanwhile");
    assert_eq!(holding(&inner, "of the fork alone"), sealed);
    for cut in [inner.power_cut_keep_nothing(), inner.power_cut_keep_all()] {
        verify(&cut).unwrap();
        open(&cut).unwrap();
    }
    // The next manifest does not name it.
    memory.gc(&who(), None, false).unwrap();
    assert_eq!(holding(&inner, "of the fork alone"), [""; 0]);
    verify(&inner).unwrap();
}

#[test]
fn a_full_disk_takes_writes_again_after_deletes_that_came_while_it_was_collected() {
    let inner = ForgetfulDisk::new();
    inner.limit(8 << 20, 1 << 20);
    let disk = Arc::new(Meanwhile { inner, call: DiskCall::Rename, what: Mutex::default() });
    let memory = crate::support::open_on(disk.clone()).unwrap();
    memory.set(&who(), main_of(&memory), Setting::Keep, "0s").unwrap();
    let write = |id: usize| memory.commit(&who(), main_of(&memory), vec![put(&id.to_string(), None, Some(&noise(id)))]);
    memory.commit(&who(), main_of(&memory), vec![put("small", None, Some("text"))]).unwrap();
    let count = (0..).find(|id| write(*id).is_err()).unwrap();
    let (writer, later) = (memory.clone(), disk.clone());
    let deletes =
        move || drop(writer.commit(&who(), main_of(&writer), (0..count).map(|id| delete(&id.to_string())).collect()));
    // A collection that gave back nothing is followed by another one, the last, which has sealed by the time of its deletes.
    *disk.what.lock().unwrap() = Some(Box::new(move || *later.what.lock().unwrap() = Some(Box::new(deletes))));
    memory.commit(&who(), main_of(&memory), vec![delete("small")]).unwrap();
    assert_eq!(write(count).unwrap_err().kind(), Kind::Full);
    assert!(
        disk.what.lock().unwrap().is_none() && memory.status(&View::Branch(main_of(&memory))).unwrap()["records"] == 0
    );
    write(count).unwrap();
}

fn noise(seed: usize) -> String {
    let mut chance = Chance(seed as u64);
    (0..6400).map(|_| format!("{:016x}", chance.next())).collect()
}

#[test]
fn who_reads_beside_a_writer_begins_anew_where_the_store_is_sealed_meanwhile() {
    let inner = ForgetfulDisk::new();
    let memory = open(&inner).unwrap();
    let seal = move || {
        memory.commit(&who(), main_of(&memory), vec![put("a", None, Some("text"))]).unwrap();
        memory.seal().unwrap();
    };
    let disk = Arc::new(Meanwhile { inner, call: DiskCall::Open, what: Mutex::default() });
    // The manifest is read when the journals that it does not name are gone.
    *disk.what.lock().unwrap() = Some(Box::new(seal));
    let reader = Memory::open_on(disk, OpenMode::ReadOnly, None, environment()).unwrap();
    assert_eq!(reader.status(&View::Branch(main_of(&reader))).unwrap()["records"], 1);
}
