//! From a store to a folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{
    CONFIG, DumpedBranch, DumpedCheckpoint, DumpedLog, FORMAT, LOG, MANIFEST, Manifest, RECORDS, VERSION, files,
    whole_or_not_at_all,
};
use crate::cli::failure::CommandError;
use crate::memory::{BranchId, Export, Memory, OwnLog, Setting, Snapshot, View};

/// Bytes of an export that are read at a time.
const PIECE: usize = 1 << 20;

/// Writes a branch and all below it into a new folder, whole or not at all; returns what was written.
pub fn export_all(memory: &Memory, top: BranchId, folder: &Path) -> Result<Value, CommandError> {
    let mut report = whole_or_not_at_all(folder, |part| write(memory, top, part))?;
    report["folder"] = json!(folder);
    Ok(report)
}

fn write(memory: &Memory, top: BranchId, out: &Path) -> Result<Value, CommandError> {
    let mut dump = DumpWriter { memory, out, states: BTreeMap::new(), records: 0 };
    let mut branches = Vec::new();
    let mut todo = vec![(top, PathBuf::from(&*memory.info(top)?.name))];
    while let Some((branch, folder)) = todo.pop() {
        branches.push((branch, dump.branch(branch, &folder)?));
        let children = memory.children(branch)?.into_iter();
        todo.extend(children.map(|(name, child)| (child, folder.join("branches").join(&*name))));
    }
    for (branch, dumped) in &branches {
        dump.bases_and_checkpoints(*branch, dumped)?;
    }
    let (states, records) = (dump.states, dump.records);
    let report = json!({ "branches": branches.len(), "states": states.len(), "records": records, "tip": memory.tip().to_string() });
    let manifest = Manifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        made_by: format!("engramfs {}", env!("CARGO_PKG_VERSION")),
        tip: memory.tip().to_string(),
        branches: branches.into_iter().map(|(_, dumped)| dumped).collect(),
        states,
    };
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
    write_file(&out.join(MANIFEST), text.as_bytes())?;
    Ok(report)
}

struct DumpWriter<'a> {
    memory: &'a Memory,
    out: &'a Path,
    /// Where the state with each head stands.
    states: BTreeMap<String, PathBuf>,
    records: u64,
}

impl DumpWriter<'_> {
    /// Writes the present state and the settings of a branch.
    fn branch(&mut self, branch: BranchId, folder: &Path) -> Result<DumpedBranch, CommandError> {
        let (memory, info) = (self.memory, self.memory.info(branch)?);
        let snapshot = memory.snapshot(&View::Branch(branch))?;
        self.state(&snapshot, folder)?;
        let config = self.out.join(folder).join(CONFIG);
        make_dir(&config)?;
        for setting in Setting::ALL {
            let value = memory.setting(&View::Branch(branch), setting)? + "\n";
            write_file(&config.join(setting.name()), value.as_bytes())?;
        }
        let mut checkpoints = Vec::new();
        for label in memory.checkpoints(branch)? {
            let time = memory.checkpoint_time(branch, &label)?;
            let head = memory.snapshot(&View::Checkpoint(branch, label.clone()))?.head().to_string();
            let text = memory.checkpoint_text(branch, &label)?.to_string();
            checkpoints.push((time, DumpedCheckpoint { label: label.to_string(), head, time: time.to_string(), text }));
        }
        checkpoints.sort_by_key(|(time, _)| *time);
        let log = memory.own_log(branch)?.map(|log| self.log(&log, folder)).transpose()?;
        Ok(DumpedBranch {
            path: info.path.to_string(),
            folder: folder.to_owned(),
            owner: info.uid,
            mode: format!("{:04o}", info.mode),
            created: info.created.to_string(),
            head: snapshot.head().to_string(),
            base: memory.base(branch)?.head().to_string(),
            checkpoints: checkpoints.into_iter().map(|(_, checkpoint)| checkpoint).collect(),
            log,
            cursor: memory.cursor(branch)?,
        })
    }

    /// Writes the states that no present one stands for.
    fn bases_and_checkpoints(&mut self, branch: BranchId, dumped: &DumpedBranch) -> Result<(), CommandError> {
        if !self.states.contains_key(&dumped.base) {
            self.state(&self.memory.base(branch)?, &dumped.folder.join("base"))?;
        }
        for checkpoint in &dumped.checkpoints {
            if !self.states.contains_key(&checkpoint.head) {
                let view = View::Checkpoint(branch, checkpoint.label.as_str().into());
                let folder = dumped.folder.join("checkpoints").join(&checkpoint.label);
                self.state(&self.memory.snapshot(&view)?, &folder)?;
            }
        }
        Ok(())
    }

    /// Writes the entries of a branch's own log. What it remembers of events follows from them.
    fn log(&self, log: &OwnLog, folder: &Path) -> Result<DumpedLog, CommandError> {
        let is_entry = |line: &[u8]| !line.starts_with(b"{\"id\":\"@");
        export(&log.records, &self.out.join(folder).join(LOG), is_entry)?;
        Ok(DumpedLog { entries: log.entries, archived: log.archived, head: log.records.head().to_string() })
    }

    fn state(&mut self, snapshot: &Snapshot, folder: &Path) -> Result<(), CommandError> {
        let place = self.out.join(folder);
        make_dir(&place)?;
        export(snapshot, &place.join(RECORDS), |_| true)?;
        files::write(self.memory, snapshot.files(), &place)?;
        self.records += snapshot.count();
        self.states.entry(snapshot.head().to_string()).or_insert_with(|| folder.to_owned());
        Ok(())
    }
}

/// Writes the lines of records that are wanted, by their beginning.
fn export(snapshot: &Snapshot, path: &Path, is_wanted: impl Fn(&[u8]) -> bool) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| CommandError::file("written", path, &error);
    let mut lines = BufWriter::new(File::create(path).map_err(failed)?);
    let (mut offset, mut piece, mut is_written) = (0, vec![0; PIECE], None);
    loop {
        let read = snapshot.export_read(Export::Records, offset, &mut piece)?;
        if read == 0 {
            break;
        }
        for part in piece[..read].split_inclusive(|byte| *byte == b'\n') {
            if *is_written.get_or_insert_with(|| is_wanted(part)) {
                lines.write_all(part).map_err(failed)?;
            }
            // The rest of a line that breaks off goes the way of its beginning.
            is_written = is_written.filter(|_| !part.ends_with(b"\n"));
        }
        offset += read as u64;
    }
    lines.flush().map_err(failed)?;
    lines.get_ref().sync_all().map_err(failed)
}

fn make_dir(path: &Path) -> Result<(), CommandError> {
    fs::create_dir_all(path).map_err(|error| CommandError::file("made", path, &error))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| CommandError::file("written", path, &error))
}
