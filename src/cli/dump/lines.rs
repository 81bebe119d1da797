//! JSON Lines of a dump. Errors name the file and the number of the line.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::damaged;
use crate::cli::failure::CommandError;
use crate::memory::{Error, Kind};

/// Opens a file of a dump for reading. A dump may be anybody's: no symbolic link is followed, and no FIFO waited for. Fails if
/// it can't be opened, and with `Exit::Damaged` if it is no regular file.
pub fn open_file(path: &Path) -> Result<File, CommandError> {
    let failed = |error: std::io::Error| CommandError::file("read", path, &error);
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let is_file = file.metadata().map_err(failed)?.is_file();
    if is_file { Ok(file) } else { Err(damaged(format!("{} is no file", path.display()))) }
}

/// Reads a whole file of a dump. Fails like [`open_file`], and if it is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, CommandError> {
    std::io::read_to_string(open_file(path)?).map_err(|error| CommandError::file("read", path, &error))
}

/// Gives each line of a file with its number, counted from 1. An error of `each` ends it.
pub fn for_each_line(
    path: &Path,
    mut each: impl FnMut(&[u8], usize) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| CommandError::file("read", path, &error);
    let mut lines = BufReader::new(open_file(path)?);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        number += 1;
        each(&line, number)?;
    }
}

/// Gives what each line of a file says, with the words for that line; returns how many there are. Fails at the first
/// line that is not of that form.
pub fn for_each_value<T: DeserializeOwned>(
    path: &Path,
    mut each: impl FnMut(T, &str) -> Result<(), CommandError>,
) -> Result<u64, CommandError> {
    let mut count = 0;
    for_each_line(path, |line, number| {
        let place = format!("{}, line {number}", path.display());
        let value = serde_json::from_slice(line).map_err(|error| {
            // serde_json saw one line only, so its own line number is always 1 and is cut off.
            let words = error.to_string();
            damaged(format!("{place}: {}", words.split(" at line 1 ").next().unwrap_or_default()))
        })?;
        count += 1;
        each(value, &place)
    })?;
    Ok(count)
}

/// Writes a line for each value; returns how many there are. The first error among the values ends it, and leaves the
/// lines before it.
pub fn write_values<T: Serialize>(
    path: &Path,
    values: impl IntoIterator<Item = Result<T, CommandError>>,
) -> Result<u64, CommandError> {
    let failed = |error: std::io::Error| CommandError::file("written", path, &error);
    let mut lines = BufWriter::new(File::create(path).map_err(failed)?);
    let mut count = 0;
    for value in values {
        serde_json::to_writer(&mut lines, &value?).map_err(|error| failed(error.into()))?;
        lines.write_all(b"\n").map_err(failed)?;
        count += 1;
    }
    lines.flush().map_err(failed)?;
    lines.get_ref().sync_all().map_err(failed)?;
    Ok(count)
}

/// Returns the failure of an import that a store refused, with the place in the dump. What can't be one is damage of the dump.
pub fn refused(place: impl std::fmt::Display, error: Error) -> CommandError {
    match error.kind() {
        Kind::Invalid | Kind::TooLarge | Kind::Exists => damaged(format!("{place}: {error}")),
        _ => {
            let mut failure = CommandError::from(error);
            failure.message = format!("{place}: {}", failure.message);
            failure
        }
    }
}
