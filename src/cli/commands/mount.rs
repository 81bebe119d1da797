//! `engramfs mount`: serves a store at a directory until it is unmounted.

use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::mount_paths::MountPaths;
use crate::cli::actor;
use crate::cli::embedders::EmbedOption;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, warn};
use crate::fs::{Filesystem, FsOptions};
use crate::fuse::{self, Adapter, Background, MountOptions, SessionEnd};
use crate::memory::{Memory, check_outside_stores, parse_size};

/// Mounts a store, and makes it if it is not there.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs mount ~/memory /mnt/memory
  engramfs mount ~/memory /mnt/agent-7 --branch main/agent-7
  engramfs mount ~/memory /mnt/memory --embed all-MiniLM-L6-v2
  engramfs mount ~/memory /mnt/memory --read-only --foreground")]
pub struct Args {
    /// The store's directory.
    store: PathBuf,
    /// Where to mount it: an existing directory.
    mnt: PathBuf,
    /// Shows this branch alone: MNT is its directory, its parent and siblings can't be reached.
    #[arg(long, value_name = "NAME-PATH")]
    branch: Option<String>,
    /// Refuses every change; queries are answered still.
    #[arg(long)]
    read_only: bool,
    /// Lets other users in, as far as permissions let them.
    #[arg(long)]
    allow_other: bool,
    /// Bytes of memory that the server may take, as in 512M; half of what the machine, the control group and RLIMIT_AS
    /// leave by default.
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// What makes vectors of texts, for all root branches or one: a folder with a model's files, URL#MODEL of a server, or
    /// cmd:COMMAND. May be given several times. A server's key is read from ENGRAMFS_EMBED_KEY.
    #[arg(long, value_name = "[ROOT=]WHAT")]
    embed: Vec<String>,
    /// Stays in the foreground until it is unmounted, or SIGINT or SIGTERM comes.
    #[arg(long)]
    foreground: bool,
    /// Serves a /dev/fuse descriptor that somebody else has mounted, instead of mounting.
    #[arg(long, value_name = "N")]
    fuse_fd: Option<RawFd>,
    /// Appends the log of a mount in the background to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "foreground")]
    log: Option<PathBuf>,
}

/// Least memory that a server can work with, in bytes.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

fn memory_size(text: &str) -> Result<u64, String> {
    let size = parse_size(text).ok_or("write a number of bytes such as 512M or 2G")?;
    if size < MEMORY_BYTES_MIN { Err(format!("a server needs {}M at least", MEMORY_BYTES_MIN >> 20)) } else { Ok(size) }
}

/// Returns how much memory the server takes of what there is, unless it is told.
fn default_memory(available: u64) -> u64 {
    (available / 2).max(MEMORY_BYTES_MIN)
}

/// Serves a store at a directory until it is unmounted. In the background the parent's part ends in here, when the
/// mount answers or its start failed.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    fuse::tune_allocator();
    let paths = MountPaths::new(&args.store, &args.mnt)?;
    let embedders = EmbedOption::parse_all(&args.embed)?;
    // One that is there already is foreign in the store already, and no reason not to mount.
    if let Some(log) = args.log.as_ref().filter(|log| !log.exists()) {
        check_outside_stores(log)?;
    }
    if args.fuse_fd.is_none() {
        fuse::clear_stale(&paths.mnt, &paths.source())?;
        paths.check_mountpoint()?;
    }
    if args.foreground {
        return serve(args, &paths, &embedders, || paths.announce(out));
    }
    // Before the first thread exists: the child of a fork has none but the one that forked.
    let background = fuse::into_background(args.log.as_deref());
    let background = background.map_err(|e| {
        CommandError::new(
            Exit::Failed,
            "background",
            format!("the mount can't go into the background: {e}"),
            "use --foreground",
        )
    })?;
    let mut parent = Some(background);
    // Nobody's directory shall be in use because a mount was started there.
    let result =
        std::env::set_current_dir("/").map_err(|e| CommandError::file("entered", Path::new("/"), &e)).and_then(|()| {
            serve(args, &paths, &embedders, || {
                paths.announce(out);
                let told = parent.take().map_or(Ok(()), Background::report_ready);
                told.unwrap_or_else(|e| log::error!("the waiting parent can't be told: {e}"));
            })
        });
    report_to(parent, result, out.is_json())
}

/// Says what went wrong: to the parent while it waits, else to the log, since nobody looks at this process any more.
fn report_to(
    parent: Option<Background>,
    result: Result<Exit, CommandError>,
    as_json: bool,
) -> Result<Exit, CommandError> {
    let failure = match (result, parent) {
        (Ok(exit), None) => return Ok(exit),
        (Ok(exit), Some(parent)) => {
            let _ = parent
                .report_failure(i32::from(exit.code()), "engramfs: the mount ended before it answered; mount it again");
            return Ok(exit);
        }
        (Err(failure), Some(parent)) => {
            let _ = parent.report_failure(i32::from(failure.exit.code()), &failure.render(as_json));
            failure
        }
        (Err(failure), None) => {
            log::error!("{}", failure.render(false));
            failure
        }
    };
    Ok(failure.exit)
}

fn serve(
    args: &Args,
    paths: &MountPaths,
    embedders: &[EmbedOption],
    ready: impl FnOnce(),
) -> Result<Exit, CommandError> {
    // Before the store is opened: a model that can't be read leaves it alone.
    let opened = embedders.iter().map(EmbedOption::open).collect::<Result<Vec<_>, _>>()?;
    let memory = paths.open(args.read_only)?;
    let limit = args.memory.unwrap_or_else(|| default_memory(fuse::available_memory_bytes()));
    if let Some(reason) = memory.limit_memory(limit, args.allow_other, fuse::memory_meter()) {
        warn(reason);
    }
    for (option, embedder) in embedders.iter().zip(opened) {
        memory.set_embedder(option.root(), embedder);
    }
    let ended = serve_store(args, paths, &memory, ready);
    // Closed whatever ended the session: after a clean close damage at the journal's end can't pass for a torn tail.
    let closed = memory.close();
    let exit = match ended? {
        SessionEnd::Signal(libc::SIGINT) => Exit::Interrupted,
        SessionEnd::Signal(_) | SessionEnd::Unmounted => Exit::Done,
    };
    closed?;
    Ok(exit)
}

fn serve_store(
    args: &Args,
    paths: &MountPaths,
    memory: &Arc<Memory>,
    ready: impl FnOnce(),
) -> Result<SessionEnd, CommandError> {
    let branch = args.branch.as_deref().map(|name_path| memory.resolve(name_path)).transpose()?;
    let options = FsOptions {
        branch,
        read_only: args.read_only,
        users: Box::new(actor::user),
        groups: Box::new(fuse::supplementary_groups),
    };
    let filesystem = Arc::new(Filesystem::new(Arc::clone(memory), options));
    let options = MountOptions {
        fsname: paths.source(),
        mountpoint: paths.mnt.clone(),
        allow_other: args.allow_other,
        fuse_fd: args.fuse_fd,
    };
    let ended = fuse::serve(Adapter::new(Arc::clone(&filesystem)), &options, |notifier| {
        fuse::connect(&filesystem, notifier);
        ready();
    });
    // The session has ended, and with it whom to notify.
    filesystem.set_kernel(None);
    filesystem.end();
    Ok(ended?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_takes_half_of_the_memory_there_is_and_32_mib_at_least() {
        assert_eq!([8 << 30, 64 << 20, 1 << 20].map(default_memory), [4 << 30, 32 << 20, 32 << 20]);
        assert!(memory_size("32M") == Ok(32 << 20) && memory_size("31M").is_err());
    }
}
