//! Entries for the fuzz targets into parsers that nobody else may see; compiled for them alone.

pub use super::history::fuzzing::archive;
pub use super::storage::manifest::fuzzing::{manifest_parts, manifest_root};
use super::transaction::commands::read_log_record;

/// Reads a log record; what is written of it reads back to the same bytes.
pub fn log_record(bytes: &[u8]) {
    if let Ok(record) = read_log_record(bytes) {
        let written = record.to_bytes();
        let again = read_log_record(&written).expect("what was written can be read");
        assert_eq!(again.to_bytes(), written);
        record.command.may_use_reserve();
    }
}
