//! An archive of entries: as a file that was moved out, and as one that a manifest names.
#![no_main]

use engramfs_fuzz::{NAME, disk_with};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engramfs::memory::fuzzing::archive(disk_with(&[(&format!("archive/{NAME}"), bytes)]), NAME);
});
