//! The lineage of a branch as a text that is read from either end, a block at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::memory::{BranchId, HistoryFile, Memory, View};

/// Bytes that are read at a time.
const READ_BYTES: u64 = 256 << 10;

/// The lineage of a branch as it was when this was made.
pub struct Lineage {
    source: LineageSource,
    length: u64,
}

enum LineageSource {
    File(File),
    /// A branch of an open store, up to an entry.
    Store(Arc<Memory>, BranchId, u64),
}

impl Lineage {
    /// Reads the file of a mount. Fails if its length can't be asked for.
    pub fn from_file(file: File) -> std::io::Result<Lineage> {
        let length = file.metadata()?.len();
        Ok(Lineage { source: LineageSource::File(file), length })
    }

    /// Reads it from an open store. Fails if the branch has ended.
    pub fn from_store(memory: &Arc<Memory>, branch: BranchId) -> Result<Lineage, CommandError> {
        let last_seq = memory.history_last_seq(&View::Branch(branch))?;
        let length = memory.history_length(branch, HistoryFile::Lineage, last_seq)?;
        Ok(Lineage { source: LineageSource::Store(memory.clone(), branch, last_seq), length })
    }

    fn read(&self, start: u64, end: u64) -> Result<Vec<u8>, CommandError> {
        match &self.source {
            LineageSource::File(file) => {
                let mut bytes = vec![0; (end - start) as usize];
                file.read_exact_at(&mut bytes, start).map_err(|error| {
                    let message = format!("lineage could not be read: {error}");
                    CommandError::new(Exit::Failed, "lineage", message, "see errors in the branch's directory")
                })?;
                Ok(bytes)
            }
            LineageSource::Store(memory, branch, last_seq) => {
                let part = (*branch, HistoryFile::Lineage, *last_seq);
                // Nothing is filtered: whoever can open the store itself can read all of it anyway.
                Ok(memory.read_history(part, start, (end - start) as usize, &|_, _| true)?)
            }
        }
    }

    /// Calls `each` with every line, oldest first. An error of `each` ends it.
    pub fn for_each_oldest_first(
        &self,
        mut each: impl FnMut(&str) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let (mut start, mut text) = (0, Vec::new());
        while start < self.length {
            let end = self.length.min(start + READ_BYTES);
            text.extend(self.read(start, end)?);
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let rest = text.split_off(whole);
            String::from_utf8_lossy(&text).lines().try_for_each(&mut each)?;
            (start, text) = (end, rest);
        }
        Ok(())
    }

    /// Calls `each` with lines, newest first, for as long as it returns true. An error of `each` ends it, too.
    pub fn for_each_newest_first(
        &self,
        mut each: impl FnMut(&str) -> Result<bool, CommandError>,
    ) -> Result<(), CommandError> {
        let (mut end, mut after) = (self.length, Vec::new());
        while end > 0 {
            let start = end.saturating_sub(READ_BYTES);
            let mut text = self.read(start, end)?;
            text.append(&mut after);
            // The text before the first line end may be the rest of a line only.
            let whole = match start {
                0 => 0,
                _ => text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1),
            };
            let lines = text.split_off(whole);
            for line in String::from_utf8_lossy(&lines).lines().rev() {
                if !each(line)? {
                    return Ok(());
                }
            }
            (end, after) = (start, text);
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn all_lines_are_read_from_either_end_wherever_blocks_end() {
        let mut file = tempfile::tempfile().unwrap();
        let lines: Vec<String> = (0..3000).map(|n: usize| format!("{n} {}", "x".repeat(n * 37 % 500))).collect();
        file.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        let lineage = Lineage::from_file(file).unwrap();
        assert!(lineage.length > 2 * READ_BYTES);
        let mut forward = Vec::new();
        let mut each = |line: &str| {
            forward.push(line.to_owned());
            Ok(())
        };
        lineage.for_each_oldest_first(&mut each).unwrap();
        assert_eq!(forward, lines);
        let mut backward = Vec::new();
        let mut each = |line: &str| {
            backward.push(line.to_owned());
            Ok(true)
        };
        lineage.for_each_newest_first(&mut each).unwrap();
        backward.reverse();
        assert_eq!(backward, lines);
        let mut count = 0;
        let mut once = |_: &str| {
            count += 1;
            Ok(false)
        };
        lineage.for_each_newest_first(&mut once).unwrap();
        assert_eq!(count, 1);
    }
}
