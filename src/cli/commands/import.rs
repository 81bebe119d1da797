//! `engramfs import`: takes records from a file or a folder.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::dump::import_all;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::formats::{FieldMap, InputRow, LeftOutCounts, RowPosition, RowReader};
use crate::cli::output::{Output, remark};
use crate::cli::progress::ProgressLine;
use crate::cli::target::{Access, BranchAccess, Target};

/// Rows of one atomic commit; fewer where they are large.
const BATCH_ROWS: usize = 65_536;

/// Takes records from a file (.jsonl, .json with an array, .npy, .fvecs), from a folder of .md and .txt files, or from standard input.
///
/// Each batch of up to 65,536 rows or 64 MiB is one atomic commit. After a break the same import can be run again: records keep their
/// ids, so none is doubled. Give ids, or let --map take them from a field: a line without one gets a new id each time.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs import /mnt/memory/main records.jsonl
  engramfs import ~/memory:main pages.jsonl --map id=url_hash,text=body,vector=embedding
  engramfs import --create ~/new-memory:main ~/notes      (a record for each .md and .txt file)
  engramfs import --all dump ~/restored                   (a store out of an export --all)")]
pub struct Args {
    /// The branch: its directory under a mount, or STORE:NAME-PATH. With --all the folder of a dump.
    target: PathBuf,
    /// With --all the store that is made; else the file, whose name's end tells the format; a folder of .md and .txt files; or - for JSON Lines from standard input.
    file: PathBuf,
    /// The ids of the rows of an array, one a line; without it they are row-00000000 and on.
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// Which fields of JSON hold id, text, vector and metadata; a dot leads into objects, and all other fields become metadata.
    #[arg(long, value_name = "id=…,text=…,vector=…")]
    map: Option<FieldMap>,
    /// Makes the store if it is not there.
    #[arg(long)]
    create: bool,
    /// Makes a new store out of what export --all wrote, with the same heads of all branches and checkpoints.
    #[arg(long, conflicts_with_all = ["ids", "map", "create"])]
    all: bool,
}

/// Imports records from a file or a folder, with `--all` a dump, and prints how many were put and deleted. The file is
/// opened before the store is touched, so that a wrong name or header changes nothing. What was committed before a
/// failure stays, except for `--all`, which leaves no store.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    if args.all {
        let report = import_all(&args.target, &args.file)?;
        if !out.is_json() {
            remark(format_args!(
                "{} branches with the heads of the dump are in {}",
                report["branches"],
                args.file.display()
            ));
            if let Some(ended) = report["signals_ended"].as_u64().filter(|ended| *ended > 0) {
                remark(format_args!("signals are left out whose time was over: {ended}"));
            }
        }
        out.json_only(&report)?;
        return Ok(Exit::Done);
    }
    let target = Target::parse(&args.target)?;
    // Before the store is touched: a wrong name or header changes nothing.
    let rows = RowReader::open(&args.file, args.ids.as_deref(), args.map.as_ref())?;
    let left_out = rows.left_out.clone();
    let access = if args.create { Access::Create } else { Access::Write };
    let progress = ProgressLine::for_bytes(rows.total_bytes, out.is_json());
    let mut import = Import { args, progress, rows: 0, put_and_deleted: [0; 2], last_receipt: Value::Null };
    target.with_branch(access, |branch| import.run(branch, rows))?;
    let Import { progress, rows, put_and_deleted: [put, deleted], last_receipt, .. } = import;
    // What follows is not written into the line.
    drop(progress);
    let left_out = left_out.get();
    if out.is_json() {
        let count = left_out.other_files + left_out.special_files + left_out.blank_notes;
        out.line(
            json!({ "rows": rows, "put": put, "deleted": deleted, "left_out": count, "head": last_receipt["head"], "entry": last_receipt["entry"] }),
        )?;
    } else {
        remark(format_args!("{rows} rows read: {put} put, {deleted} deleted"));
        print_left_out(left_out);
    }
    Ok(Exit::Done)
}

/// Says what of a folder made no record.
fn print_left_out(left_out: LeftOutCounts) {
    let told = [
        (left_out.other_files, "files that are neither .md nor .txt"),
        (left_out.special_files, "links, pipes and other special files"),
        (left_out.hidden_notes, "notes whose names begin with a dot"),
        (left_out.blank_notes, "empty notes"),
    ];
    for (count, what) in told.into_iter().filter(|(count, _)| *count > 0) {
        remark(format_args!("{what} were left out: {count}"));
    }
}

struct Import<'a> {
    args: &'a Args,
    progress: ProgressLine,
    rows: u64,
    /// Records put and deleted.
    put_and_deleted: [u64; 2],
    /// The receipt of the last commit: head and entry that are printed come from it.
    last_receipt: Value,
}

impl Import<'_> {
    fn run(&mut self, branch: &dyn BranchAccess, rows: RowReader) -> Result<(), CommandError> {
        let mut batch = Vec::new();
        let (mut size, mut taken) = (0, 0);
        for row in rows {
            let (row, bytes) = row?;
            size += row.size();
            taken += bytes;
            batch.push(row);
            if batch.len() >= BATCH_ROWS || size >= branch.batch_bytes() {
                self.commit(branch, std::mem::take(&mut batch))?;
                self.progress.advance(std::mem::take(&mut taken));
                size = 0;
            }
        }
        if batch.is_empty() { Ok(()) } else { self.commit(branch, batch) }
    }

    fn commit(&mut self, branch: &dyn BranchAccess, batch: Vec<InputRow>) -> Result<(), CommandError> {
        let count = batch.len() as u64;
        let position = |row: &InputRow| match row {
            InputRow::Line { position, .. } => Some(position.clone()),
            InputRow::Vector { .. } => None,
        };
        let positions: Vec<Option<RowPosition>> = batch.iter().map(position).collect();
        let receipt = branch.put(batch).map_err(|failure| self.with_position(failure, &positions))?;
        self.rows += count;
        for (sum, key) in self.put_and_deleted.iter_mut().zip(["put", "deleted"]) {
            *sum += receipt.get(key).and_then(Value::as_u64).unwrap_or(0);
        }
        self.last_receipt = receipt;
        Ok(())
    }

    /// Says which row it is about, as its file has it, where the batch begins and what is done already.
    fn with_position(&self, mut failure: CommandError, positions: &[Option<RowPosition>]) -> CommandError {
        let describe = |at: usize| match positions.get(at)? {
            Some(position) => Some(position.describe(&self.args.file)),
            None => Some(format!("row {} of {}", self.rows + at as u64, self.args.file.display())),
        };
        let located = split_line_number(&failure.message)
            .and_then(|(number, what)| Some(format!("{}: {what}", describe(number.checked_sub(1)?)?)));
        let first = describe(0).unwrap_or_default();
        failure.message = format!(
            "{} (batch from {first}; {} rows before it are in)",
            located.as_ref().unwrap_or(&failure.message),
            self.rows
        );
        failure
    }
}

/// Cuts a message that begins with `line N: ` into the number and the rest. `None` for any other.
fn split_line_number(message: &str) -> Option<(usize, &str)> {
    let (number, what) = message.strip_prefix("line ")?.split_once(": ")?;
    Some((number.parse().ok()?, what))
}
