//! `engramfs export`: writes all records of a branch to a file.

use std::io::{BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::atomic_file::AtomicFile;
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
    target: PathBuf,
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
    let target = Target::parse(&args.target)?;
    if args.all {
        return run_all(&target, &args.file, out);
    }
    let hint = "end its name in .jsonl, .npy or .fvecs";
    let format = Format::from_path(&args.file).map_err(|failure| CommandError { hint: hint.to_owned(), ..failure })?;
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
            let lines = write_all(readers, &[(&args.file, format), (ids, Format::JsonLines)])?;
            Ok((records, lines))
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
        "file": args.file.to_string_lossy(), "ids": ids.as_ref().map(|ids| ids.to_string_lossy()), "records": written, "left_out": left_out, "reason": reason,
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

/// Returns the path of the list of ids that is written beside FILE: FILE.ids.
fn id_list_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".ids");
    name.into()
}

/// Writes under other names first, so that a broken export is never taken for a whole one, and new vectors stand beside older ids
/// only where the second rename fails. Returns how many lines the last file has.
fn write_all(sources: Vec<Box<dyn Read>>, files: &[(&PathBuf, Format)]) -> Result<u64, CommandError> {
    let (mut unfinished, mut lines) = (Vec::new(), 0);
    for (mut source, (path, format)) in sources.into_iter().zip(files) {
        let mut file = AtomicFile::create(path).map_err(|e| CommandError::file("written", path, &e))?;
        lines = fill(&mut *source, &mut file, *format)?;
        unfinished.push(file);
    }
    for (file, (path, _)) in unfinished.into_iter().zip(files) {
        file.replace().map_err(|e| CommandError::file("written", path, &e))?;
    }
    Ok(lines)
}

/// Writes and flushes a file. Returns how many lines it has, which are counted here, since another export may take its
/// place at any time.
fn fill(source: &mut dyn Read, file: &mut AtomicFile, format: Format) -> Result<u64, CommandError> {
    let place = file.place().to_owned();
    let failed = |e: std::io::Error| CommandError::file("written", &place, &e);
    let mut sink = BufWriter::new(file.file());
    match format {
        Format::Fvecs => write_fvecs(source, &mut sink)?,
        Format::JsonLines | Format::JsonArray | Format::Npy => drop(copy(source, &mut sink).map_err(failed)?),
    }
    sink.flush().map_err(failed)?;
    let file = sink.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)?;
    if format != Format::JsonLines {
        return Ok(0);
    }
    file.rewind().map_err(failed)?;
    count_lines(BufReader::new(file)).map_err(failed)
}

fn count_lines(mut lines: impl BufRead) -> std::io::Result<u64> {
    let mut count = 0;
    while lines.skip_until(b'\n')? > 0 {
        count += 1;
    }
    Ok(count)
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
        let sources = || -> Vec<Box<dyn Read>> { vec![Box::new(&b"new"[..]), Box::new(&b"a\nb\n"[..])] };
        write_all(sources(), &[(&vectors, Format::Npy), (&dir.path().join("none/ids"), Format::JsonLines)])
            .unwrap_err();
        assert_eq!(std::fs::read(&vectors).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(write_all(sources(), &[(&vectors, Format::Npy), (&ids, Format::JsonLines)]), Ok(2), "a control");
    }

    #[test]
    fn what_has_the_name_of_a_part_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let [path, victim, part] = ["a.jsonl", "victim", "a.jsonl.part"].map(|name| dir.path().join(name));
        std::fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, &part).unwrap();
        write_all(vec![Box::new(&b"{}\n"[..])], &[(&path, Format::JsonLines)]).unwrap();
        assert_eq!(
            (std::fs::read(&victim).unwrap(), std::fs::read(&path).unwrap()),
            (b"mine".to_vec(), b"{}\n".to_vec())
        );
        assert!(part.symlink_metadata().unwrap().is_symlink());
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
