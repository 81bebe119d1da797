//! Control files: what is written to one is done at once, and the outcome is read from the same handle.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

/// Opens a control file for a conversation. Fails like open(2): `NotFound` if the mount has no such file,
/// `PermissionDenied` for whom the branch is closed.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

/// The refusal of a control file: the errno alone, or with what its handle says of it.
#[derive(Debug)]
pub struct ExchangeError {
    /// The error of open(2), write(2) or read(2), with its errno.
    pub error: io::Error,
    /// What the handle answers to the refused line, where it does.
    pub answer: Option<Value>,
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> ExchangeError {
        ExchangeError { error, answer: None }
    }
}

/// Writes to a control file and reads what comes of it; the read is what commits, so that its errors are seen.
pub fn exchange(path: &Path, text: &[u8]) -> Result<String, ExchangeError> {
    let mut file = open(path)?;
    file.write_all(text).map_err(|error| ExchangeError { error, answer: refusal(&file) })?;
    Ok(read_answer(&file)?)
}

/// Reads what a handle answers to a line that it refused.
fn refusal(file: &File) -> Option<Value> {
    let answer = read_answer(file).ok()?;
    let last: Value = serde_json::from_str(answer.lines().last()?).ok()?;
    (last["status"] == "refused").then_some(last)
}

/// Reads what a control file answers, to its end.
///
/// It reads at positions from 0, which is right after every write. What is not UTF-8 is replaced. The errno of a
/// refused request comes here, as the error of the first read.
pub fn read_answer(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        match file.read_at(&mut buffer, bytes.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_from_its_start_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl");
        let long = "x".repeat(300_000);
        std::fs::write(&path, "").unwrap();
        assert_eq!(exchange(&path, long.as_bytes()).unwrap(), long);
        assert_eq!(exchange(&dir.path().join("none"), b"pull").unwrap_err().error.kind(), io::ErrorKind::NotFound);
    }
}
