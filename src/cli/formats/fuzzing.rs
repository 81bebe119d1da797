//! The entry for the fuzz target of imported files; compiled for it alone.

use std::path::PathBuf;

use super::fvecs::{FvecsRows, write_fvecs};
use super::jsonl::Lines;
use super::npy::NpyRows;
use super::{CommandError, InputRow};

/// Most rows that are looked at.
const ROWS_MAX: usize = 1000;

/// Reads the records of a file: `format` 0 is `.npy`, 1 `.fvecs`, and any other `.jsonl`.
pub fn import(format: u8, bytes: &[u8]) {
    let (path, length) = (PathBuf::from("a"), bytes.len() as u64);
    match format {
        0 => {
            let _ = write_fvecs(&mut &bytes[..], std::io::sink());
            NpyRows::new(path, bytes, length, None).into_iter().for_each(take);
        }
        1 => FvecsRows::new(path, bytes, length, None).into_iter().for_each(take),
        _ => take(Lines::new(path, bytes)),
    }
}

fn take(rows: impl Iterator<Item = Result<(InputRow, u64), CommandError>>) {
    for row in rows.take(ROWS_MAX) {
        let Ok((row, _)) = row else { return };
        let _ = row.clone().into_line();
        let _ = row.into_edit(1, &|| "fresh".into());
    }
}
