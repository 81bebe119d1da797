//! Entries for the fuzz targets into parsers that nobody else may see; compiled for them alone.

use super::command::log_record::LogRecord;
pub use super::history::fuzzing::archive;
pub use super::storage::manifest::fuzzing::{manifest_parts, manifest_root};

/// Reads a log record; what is written of it reads back to the same bytes.
pub fn log_record(bytes: &[u8]) {
    if let Ok(record) = LogRecord::from_bytes(bytes) {
        let written = record.to_bytes();
        let again = LogRecord::from_bytes(&written).expect("what was written can be read");
        assert_eq!(again.to_bytes(), written);
        record.command.frees_room();
    }
}
