//! From a store to a folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    AGENTS, CLOSED_LOGS, CONFIG, DumpManifest, DumpedBranch, DumpedCheckpoint, DumpedClosedLog, DumpedLog,
    DumpedProposal, FORMAT, LOG, MANIFEST, PROPOSAL, RECORDS, SIGNALS, VERSION, create_atomically, files, shared,
};
use crate::cli::failure::CommandError;
use crate::memory::{BranchId, Export, Memory, OwnLog, Snapshot, View};

/// Bytes of an export that are read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// How the line begins of what a log remembers of an event.
const EVENT_BEGINS: &[u8] = b"{\"id\":\"@";

/// Writes a branch and all below it into a new folder, whole or not at all; returns what was written. Exit code 2 where
/// `folder` is used already or an earlier try left `folder.part`; fails also where it lies in a store or can't be
/// written, or if what is in the store can't be read.
pub fn export_all(memory: &Memory, top: BranchId, folder: &Path) -> Result<Value, CommandError> {
    let mut report = create_atomically(folder, |part| write(memory, top, part))?;
    report["folder"] = json!(folder.to_string_lossy());
    Ok(report)
}

fn write(memory: &Memory, top: BranchId, out: &Path) -> Result<Value, CommandError> {
    let mut dump = DumpWriter { memory, out, states: BTreeMap::new(), records: 0, leased: 0, reviews: 0 };
    let mut branches = Vec::new();
    let mut todo = vec![(top, PathBuf::from(&*memory.info(top)?.name))];
    while let Some((branch, folder)) = todo.pop() {
        branches.push((branch, dump.write_branch(branch, &folder)?));
        let children = memory.children(branch)?.into_iter();
        todo.extend(children.map(|(name, child)| (child, folder.join("branches").join(&*name))));
    }
    // After all present states: an earlier one that equals one of them is not written again.
    for (branch, dumped) in &branches {
        dump.write_other_states(*branch, dumped)?;
    }
    let agents = shared::write_agents(memory, top, &out.join(&branches[0].1.folder).join(AGENTS))?;
    let DumpWriter { states, records, leased, reviews, .. } = dump;
    let sum = |figure: fn(&DumpedBranch) -> u64| branches.iter().map(|(_, dumped)| figure(dumped)).sum::<u64>();
    let report = json!({
        "branches": branches.len(), "states": states.len(), "records": records, "agents": agents,
        "signals": sum(|dumped| dumped.signals), "closed_logs": sum(|dumped| dumped.closed_logs.len() as u64),
        "proposals": sum(|dumped| u64::from(dumped.proposal.is_some())), "tip": memory.tip().to_string(),
        "left_out": { "lease_signals": leased, "reviews": reviews },
    });
    let manifest = DumpManifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        made_by: format!("engramfs {}", env!("CARGO_PKG_VERSION")),
        tip: memory.tip().to_string(),
        branches: branches.into_iter().map(|(_, dumped)| dumped).collect(),
        states,
        users: memory.users().into_iter().map(|(uid, name)| (uid, name.to_string())).collect(),
        agents: Some(agents),
    };
    // Last: it names everything else.
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
    write_file(&out.join(MANIFEST), text.as_bytes())?;
    Ok(report)
}

struct DumpWriter<'a> {
    memory: &'a Memory,
    out: &'a Path,
    /// Where the state with each head is stored.
    states: BTreeMap<String, PathBuf>,
    records: u64,
    /// Signals that were left out, since they end with a lease.
    leased: u64,
    /// What approvers said of proposals, which is left out.
    reviews: u64,
}

impl DumpWriter<'_> {
    /// Writes the present state and the settings of a branch.
    fn write_branch(&mut self, branch: BranchId, folder: &Path) -> Result<DumpedBranch, CommandError> {
        let (memory, info) = (self.memory, self.memory.info(branch)?);
        let snapshot = memory.snapshot(&View::Branch(branch))?;
        self.write_state(&snapshot, folder)?;
        let config = self.out.join(folder).join(CONFIG);
        create_dir(&config)?;
        let settings = memory.stored_settings(branch)?;
        for (setting, value) in &settings.values {
            write_file(&config.join(setting.name()), format!("{value}\n").as_bytes())?;
        }
        let log = memory.own_log(branch)?.map(|log| self.log(&log, &folder.join(LOG))).transpose()?;
        let closed_logs = self.closed_logs(branch, folder)?;
        let (signals, leased) = shared::write_signals(memory, branch, &self.out.join(folder).join(SIGNALS))?;
        self.leased += leased;
        Ok(DumpedBranch {
            path: info.path.to_string(),
            folder: folder.to_owned(),
            owner: info.uid,
            mode: format!("{:04o}", info.mode),
            created: info.created.to_string(),
            head: snapshot.head().to_string(),
            base: memory.base(branch)?.head().to_string(),
            checkpoints: self.checkpoints(branch)?,
            log,
            cursor: memory.cursor(branch)?,
            log_at_base: memory.log_at_base(branch)?,
            closed_logs,
            signals,
            proposal: self.proposal(branch)?,
            inherits_rules: Some(settings.inherits_rules),
        })
    }

    /// Lists the checkpoints of a branch, by time.
    fn checkpoints(&self, branch: BranchId) -> Result<Vec<DumpedCheckpoint>, CommandError> {
        let memory = self.memory;
        let mut checkpoints = Vec::new();
        for label in memory.checkpoints(branch)? {
            let time = memory.checkpoint_time(branch, &label)?;
            let head = memory.snapshot(&View::Checkpoint(branch, label.clone()))?.head().to_string();
            let text = memory.checkpoint_text(branch, &label)?.to_string();
            checkpoints.push((time, DumpedCheckpoint { label: label.to_string(), head, time: time.to_string(), text }));
        }
        checkpoints.sort_by_key(|(time, _)| *time);
        Ok(checkpoints.into_iter().map(|(_, checkpoint)| checkpoint).collect())
    }

    /// Returns what a branch proposes, without what was said of it: that is bound to persons and to hours.
    fn proposal(&mut self, branch: BranchId) -> Result<Option<DumpedProposal>, CommandError> {
        let Some(proposed) = self.memory.proposed_state(branch)? else { return Ok(None) };
        self.reviews += proposed.reviews as u64;
        let [head, base] = [&proposed.state, &proposed.base].map(|state| state.head().to_string());
        Ok(Some(DumpedProposal { head, base, time: proposed.time.to_string(), text: proposed.text.to_string() }))
    }

    /// Writes the logs of branches that have ended below one.
    fn closed_logs(&self, branch: BranchId, folder: &Path) -> Result<Vec<DumpedClosedLog>, CommandError> {
        let (logs, folder) = (self.memory.own_closed_logs(branch)?, folder.join(CLOSED_LOGS));
        if !logs.is_empty() {
            create_dir(&self.out.join(&folder))?;
        }
        let closed = |(name, log): &(Arc<str>, OwnLog)| {
            let log = self.log(log, &folder.join(format!("{name}.jsonl")))?;
            Ok(DumpedClosedLog { name: name.to_string(), log })
        };
        logs.iter().map(closed).collect()
    }

    /// Writes the states that are equal to no present one.
    fn write_other_states(&mut self, branch: BranchId, dumped: &DumpedBranch) -> Result<(), CommandError> {
        if !self.states.contains_key(&dumped.base) {
            self.write_state(&self.memory.base(branch)?, &dumped.folder.join("base"))?;
        }
        for checkpoint in &dumped.checkpoints {
            if !self.states.contains_key(&checkpoint.head) {
                let view = View::Checkpoint(branch, checkpoint.label.as_str().into());
                let folder = dumped.folder.join("checkpoints").join(&checkpoint.label);
                self.write_state(&self.memory.snapshot(&view)?, &folder)?;
            }
        }
        if let Some(proposed) = self.memory.proposed_state(branch)? {
            let folder = dumped.folder.join(PROPOSAL);
            for (state, folder) in [(&proposed.state, folder.clone()), (&proposed.base, folder.join("base"))] {
                if !self.states.contains_key(&state.head().to_string()) {
                    self.write_state(state, &folder)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the entries of a log. What it remembers of events follows from them.
    fn log(&self, log: &OwnLog, path: &Path) -> Result<DumpedLog, CommandError> {
        let is_entry = |line: &[u8]| !line.starts_with(EVENT_BEGINS);
        export(&log.records, &self.out.join(path), is_entry)?;
        Ok(DumpedLog { entries: log.entries, archived: log.archived, head: log.records.head().to_string() })
    }

    fn write_state(&mut self, snapshot: &Snapshot, folder: &Path) -> Result<(), CommandError> {
        let place = self.out.join(folder);
        create_dir(&place)?;
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
    let (mut offset, mut piece) = (0, vec![0; PIECE_BYTES]);
    let mut wanted = LineFilter { is_wanted, beginning: Vec::new(), is_written: None };
    loop {
        let read = snapshot.export_read(Export::Records, offset, &mut piece)?;
        if read == 0 {
            break;
        }
        wanted.write(&piece[..read], &mut lines).map_err(failed)?;
        offset += read as u64;
    }
    lines.flush().map_err(failed)?;
    lines.get_ref().sync_all().map_err(failed)
}

/// Passes on those lines of what comes in pieces that are wanted, by as many bytes of their beginning as [`EVENT_BEGINS`] has.
struct LineFilter<F> {
    is_wanted: F,
    /// What has come of a line of which too little is known yet.
    beginning: Vec<u8>,
    /// Whether the line that goes on is wanted; none at the beginning of one.
    is_written: Option<bool>,
}

impl<F: Fn(&[u8]) -> bool> LineFilter<F> {
    /// Takes the next piece, which may begin and end anywhere in a line.
    fn write(&mut self, piece: &[u8], out: &mut impl Write) -> io::Result<()> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let is_end = part.ends_with(b"\n");
            match self.is_written {
                Some(true) => out.write_all(part)?,
                Some(false) => {}
                None => {
                    self.beginning.extend_from_slice(part);
                    if self.beginning.len() >= EVENT_BEGINS.len() || is_end {
                        let is_wanted = (self.is_wanted)(&self.beginning);
                        if is_wanted {
                            out.write_all(&self.beginning)?;
                        }
                        self.beginning.clear();
                        self.is_written = Some(is_wanted);
                    }
                }
            }
            if is_end {
                self.is_written = None;
            }
        }
        Ok(())
    }
}

fn create_dir(path: &Path) -> Result<(), CommandError> {
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// An event once stood among the entries of a dump where a piece ended in its first bytes.
    #[test]
    fn lines_are_told_apart_wherever_pieces_end() {
        let text = b"{\"id\":\"1\"}\n{\"id\":\"@1\",\"n\":1}\n{}\n{\"id\":\"@2\"}\n{\"id\":\"2\"}\n";
        for end in 0..=text.len() {
            let is_wanted = |line: &[u8]| !line.starts_with(EVENT_BEGINS);
            let mut wanted = LineFilter { is_wanted, beginning: Vec::new(), is_written: None };
            let mut out = Vec::new();
            wanted.write(&text[..end], &mut out).unwrap();
            wanted.write(&text[end..], &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), "{\"id\":\"1\"}\n{}\n{\"id\":\"2\"}\n", "{end}");
        }
    }
}
