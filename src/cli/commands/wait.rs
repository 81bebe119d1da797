//! `engramfs wait`: waits for signals.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::json;

use super::gc::parse_duration;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::Output;
use crate::cli::target::access_error;
use crate::fuse::readable_within;

/// How long the kernel is asked to wait where no limit is given, before it is asked again.
const ASK_INTERVAL: Duration = Duration::from_secs(3600);

/// Waits until a signal is there, or several: at once where they are already.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs wait shared/signals/build:done --timeout 10m
  engramfs wait 'shared/signals/worker:*:ready' --count 4
  engramfs wait shared/signals/state --value green")]
pub struct Args {
    /// A signal in shared/signals/ of a mounted branch; * and ? in quotes stand for several.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Fails after so long, such as 5s or 10m; without it there is no limit.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Counts just what is claimed or written from now on.
    #[arg(long)]
    new: bool,
    /// Waits until so many are there at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Counts just signals with this value, a line end aside.
    #[arg(long, value_name = "V")]
    value: Option<String>,
}

/// Waits until as many signals are there as were asked for, and prints them. Fails after `--timeout`; without it there
/// is no limit.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let end = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut watch = Watch::begin(args)?;
    loop {
        let found = watch.read_signals()?;
        if found.len() as u64 >= args.count {
            print(&found, out)?;
            return Ok(Exit::Done);
        }
        let left = end.map_or(ASK_INTERVAL, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(timed_out(args, found.len()));
        }
        watch.wait(left)?;
    }
}

fn print(found: &BTreeMap<String, Vec<u8>>, out: &mut Output) -> Result<(), CommandError> {
    for (key, value) in found {
        let value = String::from_utf8_lossy(value);
        if out.is_json() {
            out.line(json!({ "key": key, "value": value }))?;
        } else {
            out.line(format!("{key}\t{}", value.trim_end_matches('\n')))?;
        }
    }
    Ok(())
}

fn timed_out(args: &Args, found: usize) -> CommandError {
    let (wanted, path) = (args.count, args.paths[0].display());
    let message = match wanted {
        1 => format!("there is no signal {path} that was waited for"),
        wanted => format!("of {wanted} signals {path} there are {found}"),
    };
    CommandError::new(
        Exit::Failed,
        "timeout",
        message,
        "wait longer, or see who should write it in shared/events.jsonl",
    )
}

/// The signals that are waited for, and the events that tell of them.
struct Watch<'a> {
    args: &'a Args,
    folder: PathBuf,
    keys: Vec<(String, GlobMatcher)>,
    events: File,
    /// What was read of a line that is not whole yet.
    partial_line: Vec<u8>,
    /// Keys that were claimed or written since the beginning.
    changed_keys: Vec<String>,
}

/// What is looked at of an event.
#[derive(Deserialize)]
struct EventLine {
    event: String,
    #[serde(default)]
    key: String,
}

impl Watch<'_> {
    /// Begins to follow the events before it looks at the signals, so that none is missed.
    fn begin(args: &Args) -> Result<Watch<'_>, CommandError> {
        let folder = args.paths[0].parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
        let mut keys = Vec::new();
        for path in &args.paths {
            let key = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| no_signal(path))?;
            let is_here = path.parent().is_some_and(|parent| parent == folder || parent.as_os_str().is_empty());
            let glob = GlobBuilder::new(key).build().ok().filter(|_| is_here).ok_or_else(|| no_signal(path))?;
            keys.push((key.to_owned(), glob.compile_matcher()));
        }
        if !fs::canonicalize(&folder).is_ok_and(|folder| folder.ends_with("shared/signals")) {
            return Err(access_error(&folder).unwrap_or_else(|| no_signal(&args.paths[0])));
        }
        let mut events = open_events(&folder).map_err(|_| no_signal(&args.paths[0]))?;
        events.seek(SeekFrom::End(0)).map_err(|error| CommandError::file("followed", &folder, &error))?;
        Ok(Watch { args, folder, keys, events, partial_line: Vec::new(), changed_keys: Vec::new() })
    }

    fn matches(&self, key: &str) -> bool {
        self.keys.iter().any(|(text, glob)| text == key || glob.is_match(key))
    }

    /// Returns the signals that are there and count, with their values.
    fn read_signals(&self) -> Result<BTreeMap<String, Vec<u8>>, CommandError> {
        let mut found = BTreeMap::new();
        for key in self.candidates()? {
            let value = match fs::read(self.folder.join(&key)) {
                Ok(value) => value,
                // The signal ended between the listing and the read, so it counts as absent.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // Without --value only its existence matters, which everybody may see.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && self.args.value.is_none() => {
                    Vec::new()
                }
                Err(error) => return Err(CommandError::file("read", &self.folder.join(&key), &error)),
            };
            let shown = value.strip_suffix(b"\n").unwrap_or(&value);
            if self.args.value.as_ref().is_none_or(|wanted| wanted.as_bytes() == shown) {
                found.insert(key, value);
            }
        }
        Ok(found)
    }

    fn candidates(&self) -> Result<Vec<String>, CommandError> {
        if self.args.new {
            return Ok(self.changed_keys.clone());
        }
        if self.keys.iter().all(|(key, _)| !key.contains(['*', '?', '[', '{', '\\'])) {
            return Ok(self.keys.iter().map(|(key, _)| key.clone()).collect());
        }
        let failed = |error: io::Error| CommandError::file("listed", &self.folder, &error);
        let names = fs::read_dir(&self.folder).map_err(failed)?;
        let names = names.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        Ok(names
            .iter()
            .filter_map(|name| name.file_name().into_string().ok())
            .filter(|key| self.matches(key))
            .collect())
    }

    /// Waits for events, and reads those that came.
    fn wait(&mut self, left: Duration) -> Result<(), CommandError> {
        let failed = |error: &io::Error| CommandError::file("followed", &self.folder, error);
        if !readable_within(&self.events, left).map_err(|error| failed(&error))? {
            return Ok(());
        }
        let mut bytes = Vec::new();
        match self.events.read_to_end(&mut bytes) {
            Ok(_) => {}
            // Events were dropped before they were read, or the branch has ended, which the next look tells.
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {
                self.events = open_events(&self.folder).map_err(|error| failed(&error))?;
                self.partial_line.clear();
                return Ok(());
            }
            Err(error) => return Err(failed(&error)),
        }
        self.partial_line.extend(bytes);
        let lines = self.partial_line.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in self.partial_line[..lines].split(|byte| *byte == b'\n') {
            if let Ok(EventLine { event, key }) = serde_json::from_slice(line)
                && ["claimed", "signal"].contains(&&*event)
                && self.matches(&key)
                && !self.changed_keys.contains(&key)
            {
                self.changed_keys.push(key);
            }
        }
        self.partial_line.drain(..lines);
        Ok(())
    }
}

fn open_events(folder: &Path) -> io::Result<File> {
    File::open(folder.join("..").join("events.jsonl"))
}

fn no_signal(path: &Path) -> CommandError {
    CommandError::new(
        Exit::Missing,
        "no_signals_here",
        format!("{} is no path of a signal", path.display()),
        "name one in shared/signals/ of a mounted branch",
    )
}
