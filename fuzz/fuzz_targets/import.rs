//! Files of records: `.npy`, `.fvecs` and `.jsonl`, told by the first byte.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((format, bytes)) = bytes.split_first() {
        engramfs::cli::fuzzing::import(*format, bytes);
    }
});
