//! `engramfs export`: writes all records of a branch to a file.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::dump::export_all;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::formats::{Format, copy, write_fvecs};
use crate::cli::output::{Output, remark};
use crate::cli::target::{Access, StateExports, Target, open_store};
use crate::memory::{Export, OpenMode, check_outside_stores};

/// Writes all records of a branch to a file: .jsonl, or .npy and .fvecs with their ids beside them.
///
/// Records without a vector are in .jsonl alone; it says how many another format left out.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs export /mnt/memory/main records.jsonl
  engramfs export ~/memory:main vectors.npy --ids ids.txt
  engramfs export ~/memory:main base.fvecs      (ids go to base.fvecs.ids)
  engramfs export --all ~/memory:main dump      (a folder, which import --all makes into a store)")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH.
    target: String,
    /// The file; the end of its name tells the format. With --all a folder that is not there.
    file: PathBuf,
    /// Writes the branch and all below it into a folder: records with who and when, files, checkpoints, settings, bases, shared logs, signals, names of agents, proposals.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Where the ids go, one a line, in the order of the rows; without it to FILE.ids.
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
}

/// Writes the records of a branch to a file, or with `--all` the branch and all below it into a folder. Prints how many
/// records were left out since they have no vector. [`Exit::Usage`] for a format that can't be written, or `--ids` with
/// one that has its ids inside. What would lie in a store is refused.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let target: Target = args.target.parse()?;
    if args.all {
        return run_all(&target, &args.file, out);
    }
    let format = Format::from_path(&args.file)?;
    let ids = match (format, &args.ids) {
        (Format::JsonArray, _) => {
            return Err(CommandError::usage("records are not exported as a JSON array", "end the name in .jsonl"));
        }
        (Format::JsonLines, Some(_)) => {
            return Err(CommandError::usage(
                "--ids goes with .npy and .fvecs",
                "leave it out: the lines hold their ids",
            ));
        }
        (Format::JsonLines, None) => None,
        (_, Some(path)) => Some(path.clone()),
        (_, None) => Some(id_list_path(&args.file)),
    };
    for path in std::iter::once(&args.file).chain(&ids) {
        check_outside_stores(path)?;
    }
    // All files of one export come from one state, though the branch may change meanwhile.
    let (records, written) = target.with_branch(Access::Read, |branch| match &ids {
        None => {
            let StateExports { readers, records } = branch.exports(&[Export::Records])?;
            write_all(readers, &[(&args.file, format)])?;
            Ok((records, records))
        }
        Some(ids) => {
            let StateExports { readers, records } = branch.exports(&[Export::Vectors, Export::Ids])?;
            write_all(readers, &[(&args.file, format), (ids, Format::JsonLines)])?;
            Ok((records, count_lines(ids)?))
        }
    })?;
    if let Some(ids) = ids.as_ref().filter(|_| args.ids.is_none() && !out.is_json()) {
        remark(format_args!("the ids are in {}", ids.display()));
    }
    let left_out = records.saturating_sub(written);
    if left_out > 0 && !out.is_json() {
        remark(format_args!(
            "{left_out} of {records} records have no vector and are not in {}; export to a .jsonl file, which keeps them, too",
            args.file.display()
        ));
    }
    let reason = (left_out > 0).then_some("no_vector");
    out.json_only(&json!({
        "file": args.file, "ids": ids, "records": written, "left_out": left_out, "reason": reason,
        "kept_by": reason.map(|_| ".jsonl"),
    }))?;
    Ok(Exit::Done)
}

/// Dumps a branch. Whoever can read the store's own folder can do that, beside a server too.
fn run_all(target: &Target, folder: &Path, out: &mut Output) -> Result<Exit, CommandError> {
    let (store, name_path) = target.store_and_path()?;
    let memory = open_store(&store, OpenMode::ReadOnly)?;
    let report = export_all(&memory, memory.resolve(&name_path)?, folder)?;
    if !out.is_json() {
        remark(format_args!(
            "{} branches in {} states are in {}",
            report["branches"],
            report["states"],
            folder.display()
        ));
        print_left_out(&report["left_out"]);
    }
    out.json_only(&report)?;
    Ok(Exit::Done)
}

/// Says what a dump can't hold.
fn print_left_out(left_out: &Value) {
    let count = |key: &str| left_out[key].as_u64().filter(|count| *count > 0);
    if let Some(count) = count("lease_signals") {
        remark(format_args!(
            "signals that end with a lease are left out, as their holders are processes of the mount: {count}"
        ));
    }
    if let Some(count) = count("reviews") {
        remark(format_args!(
            "reviews of proposals are left out, as they are bound to who gave them and end after 24 h; ask for them again: {count}"
        ));
    }
}

fn count_lines(path: &Path) -> Result<u64, CommandError> {
    let failed = |e: std::io::Error| CommandError::file("read", path, &e);
    let mut lines = BufReader::new(File::open(path).map_err(failed)?).lines();
    lines.try_fold(0, |count, line| line.map(|_| count + 1)).map_err(failed)
}

/// Returns the path of the list of ids that is written beside FILE: FILE.ids.
fn id_list_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".ids");
    name.into()
}

/// Writes under other names first, so that a broken export is never taken for a whole one, and new vectors stand beside older ids
/// only where the second rename fails.
fn write_all(sources: Vec<Box<dyn Read>>, files: &[(&PathBuf, Format)]) -> Result<(), CommandError> {
    let parts: Vec<PathBuf> = files.iter().map(|(path, _)| part_path(path)).collect();
    let write = || -> Result<(), CommandError> {
        for ((mut source, (_, format)), part) in sources.into_iter().zip(files).zip(&parts) {
            fill(&mut *source, part, *format)?;
        }
        for ((path, _), part) in files.iter().zip(&parts) {
            std::fs::rename(part, path).map_err(|e| CommandError::file("written", path, &e))?;
        }
        Ok(())
    };
    let written = write();
    if written.is_err() {
        parts.iter().for_each(|part| drop(std::fs::remove_file(part)));
    }
    written
}

/// Returns the name under which a file is written until all of the export is there: FILE.part.
fn part_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn fill(source: &mut dyn Read, part: &Path, format: Format) -> Result<(), CommandError> {
    let failed = |e: std::io::Error| CommandError::file("written", part, &e);
    let mut sink = BufWriter::new(File::create(part).map_err(failed)?);
    match format {
        Format::Fvecs => write_fvecs(source, &mut sink)?,
        Format::JsonLines | Format::JsonArray | Format::Npy => drop(copy(source, &mut sink).map_err(failed)?),
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
        write_all(vec![Box::new(&b"not numpy at all"[..])], &[(&path, Format::Fvecs)]).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_export_that_breaks_at_its_ids_leaves_the_old_vectors_with_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let [vectors, ids] = ["a.npy", "a.npy.ids"].map(|name| dir.path().join(name));
        std::fs::write(&vectors, "old").unwrap();
        // Nothing can be written under the name of its part.
        std::fs::create_dir(part_path(&ids)).unwrap();
        let sources: Vec<Box<dyn Read>> = vec![Box::new(&b"new"[..]), Box::new(&b"a\n"[..])];
        write_all(sources, &[(&vectors, Format::Npy), (&ids, Format::JsonLines)]).unwrap_err();
        assert_eq!(std::fs::read(&vectors).unwrap(), b"old");
        assert!(!part_path(&vectors).exists() && !ids.exists());
    }

    #[test]
    fn lines_are_copied_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        write_all(vec![Box::new(&b"{}\n"[..])], &[(&path, Format::JsonLines)]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"{}\n");
        assert_eq!(id_list_path(&path).extension().unwrap(), "ids");
    }
}
