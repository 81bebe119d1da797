//! The ids of rows: out of a file, or made of the rows' numbers.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};

use super::malformed;
use crate::cli::failure::CommandError;

/// Where rows of an array get their ids, as its file has none.
pub enum IdReader {
    /// One a line.
    File(PathBuf, Lines<BufReader<File>>),
    /// `row-00000000` and on.
    Numbers,
}

impl IdReader {
    /// Opens `path`, which has to hold as many ids as there are `rows`.
    ///
    /// They are counted first: a file of ids that does not belong to the array is found before anything is written.
    /// Fails if it has another number, or can't be read.
    pub fn open(path: Option<&Path>, rows: u64) -> Result<IdReader, CommandError> {
        let Some(path) = path else { return Ok(IdReader::Numbers) };
        let lines = || -> Result<Lines<BufReader<File>>, CommandError> {
            let file = File::open(path).map_err(|e| CommandError::file("opened", path, &e))?;
            Ok(BufReader::new(file).lines())
        };
        let mut count = 0;
        // At the first error the counting ends: of a folder every line is one.
        for line in lines()? {
            line.map_err(|e| CommandError::file("read", path, &e))?;
            count += 1;
        }
        if count != rows {
            return Err(malformed(
                path,
                format!("holds {count} ids for {rows} rows"),
                "give one id a line for each row",
            ));
        }
        Ok(IdReader::File(path.to_owned(), lines()?))
    }

    /// Returns the id of the next row, whose number is `row`. Without a file it is `row-` and the number in eight
    /// digits. Fails if the line is not UTF-8, or the file became shorter.
    pub fn next(&mut self, row: u64) -> Result<String, CommandError> {
        match self {
            IdReader::Numbers => Ok(format!("row-{row:08}")),
            IdReader::File(path, lines) => match lines.next() {
                Some(Ok(line)) => Ok(line.trim_end_matches('\r').to_owned()),
                Some(Err(e)) => Err(CommandError::file("read", path, &e)),
                None => Err(malformed(path, "became shorter while it was read", "import it again when it is whole")),
            },
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn ids_come_in_order_and_rows_without_get_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        std::fs::write(&path, "b\r\na").unwrap();
        let mut ids = IdReader::open(Some(&path), 2).unwrap();
        assert_eq!((ids.next(0).unwrap(), ids.next(1).unwrap()), ("b".into(), "a".into()));
        assert_eq!(IdReader::open(None, 2).unwrap().next(41).unwrap(), "row-00000041");
    }

    #[test]
    fn a_folder_holds_no_ids() {
        let dir = tempfile::tempdir().unwrap();
        assert!(IdReader::open(Some(dir.path()), 2).err().unwrap().message.contains("read"));
    }

    #[test]
    fn too_few_ids_are_found_before_the_first_row() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids");
        std::fs::write(&path, "a\n").unwrap();
        assert!(IdReader::open(Some(&path), 2).err().unwrap().message.contains("1 ids for 2 rows"));
    }
}
