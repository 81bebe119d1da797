//! The payload of a journal frame: a command with its time and user.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| engramfs::memory::fuzzing::log_record(bytes));
