//! The manifest's payload and its parts; what they say is written and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (root, parts) = engramfs_fuzz::split(bytes);
    let (first, second) = engramfs_fuzz::split(parts);
    engramfs::memory::fuzzing::manifest_root(root);
    engramfs::memory::fuzzing::manifest_parts(&[first, second]);
});
