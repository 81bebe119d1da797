//! `engramfs export`: writes all records of a branch to a file.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::formats::{Format, copy, write_fvecs};
use crate::cli::output::{Output, remark};
use crate::cli::target::{Access, Target};
use crate::memory::Export;

/// Writes all records of a branch to a file: .jsonl, or .npy and .fvecs with their ids beside them.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs export /mnt/memory/main records.jsonl
  engramfs export ~/memory:main vectors.npy --ids ids.txt
  engramfs export ~/memory:main base.fvecs      (ids go to base.fvecs.ids)")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// The file; the end of its name tells the format.
    file: PathBuf,
    /// Where the ids go, one a line, in the order of the rows; without it to FILE.ids.
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
}

pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    let format = Format::of(&args.file)?;
    let ids = match (format, &args.ids) {
        (Format::JsonLines, Some(_)) => {
            return Err(CommandError::usage(
                "--ids goes with .npy and .fvecs",
                "leave it out: the lines hold their ids",
            ));
        }
        (Format::JsonLines, None) => None,
        (_, Some(path)) => Some(path.clone()),
        (_, None) => Some(beside(&args.file)),
    };
    target.with(Access::Read, |branch| match &ids {
        None => write_all(branch.exports(&[Export::Records])?, &[(&args.file, format)]),
        Some(ids) => {
            let sources = branch.exports(&[Export::Vectors, Export::Ids])?;
            write_all(sources, &[(&args.file, format), (ids, Format::JsonLines)])
        }
    })?;
    if let Some(ids) = ids.as_ref().filter(|_| args.ids.is_none() && !out.is_json()) {
        remark(format_args!("the ids are in {}", ids.display()));
    }
    out.json_only(&json!({ "file": args.file, "ids": ids }))?;
    Ok(Exit::Done)
}

/// Returns FILE.ids.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".ids");
    name.into()
}

fn write_all(sources: Vec<Box<dyn Read>>, files: &[(&PathBuf, Format)]) -> Result<(), CommandError> {
    sources.into_iter().zip(files).try_for_each(|(mut source, (path, format))| write_file(&mut *source, path, *format))
}

/// Writes under another name first, so that a broken export is never taken for a whole one.
fn write_file(source: &mut dyn Read, path: &Path, format: Format) -> Result<(), CommandError> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = fill(source, &part, format)
        .and_then(|()| std::fs::rename(&part, path).map_err(|e| CommandError::file("written", path, &e)));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

fn fill(source: &mut dyn Read, part: &Path, format: Format) -> Result<(), CommandError> {
    let failed = |e: std::io::Error| CommandError::file("written", part, &e);
    let mut sink = BufWriter::new(File::create(part).map_err(failed)?);
    match format {
        Format::Fvecs => write_fvecs(source, &mut sink)?,
        Format::JsonLines | Format::Npy => drop(copy(source, &mut sink).map_err(failed)?),
    }
    sink.flush().map_err(failed)?;
    sink.get_ref().sync_all().map_err(failed)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_broken_export_leaves_the_old_file_and_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.fvecs");
        std::fs::write(&path, "old").unwrap();
        write_file(&mut &b"not numpy at all"[..], &path, Format::Fvecs).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn lines_are_copied_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        write_file(&mut &b"{}\n"[..], &path, Format::JsonLines).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"{}\n");
        assert_eq!(beside(&path).extension().unwrap(), "ids");
    }
}
