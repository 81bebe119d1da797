//! From a directory and a name to a node, and from a directory to its names.

use std::ffi::OsStr;

use super::fixed::{self, ControlDirectory};
use crate::fs::directory::{ListName, Listing, ListingTail, Records};
use crate::fs::errno::{Errno, Failure};
use crate::fs::files::Area;
use crate::fs::mount_context::MountContext;
use crate::fs::node::{FsNode, NAME_BYTES_MAX, SharedNode, exports};
use crate::memory::{BranchId, FILES_ROOT, Kind, Revision, Setting, Time, View};

/// Returns the node at `name` in the directory `parent`; ENOENT, ENOTDIR, ENAMETOOLONG.
pub(super) fn find(mount: &MountContext, parent: &FsNode, name: &OsStr) -> Result<FsNode, Failure> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    // A temporary's name may be any bytes.
    if let Some(node) = find_temporary(mount, parent, name) {
        return Ok(node);
    }
    let name = name.to_str().ok_or(Errno::ENOENT)?;
    let found = match parent {
        FsNode::Mount => mount.memory.root(name).map(FsNode::Branch),
        FsNode::Branch(_) | FsNode::Checkpoint { .. } | FsNode::At { .. } | FsNode::Proposal { .. } => {
            let view = parent.view().ok_or(Errno::ENOTDIR)?;
            match Area::ALL.into_iter().find(|area| area.name() == name) {
                Some(area) => mount.files_in(parent, area).map(|tree_id| FsNode::File(tree_id, FILES_ROOT)),
                None => fixed::find_node(&view, name),
            }
        }
        FsNode::Directory(view, directory) => find_inside(mount, view, *directory, name)?,
        FsNode::Shared(view, SharedNode::Signals) => {
            let signal = mount.memory.signal(view.branch(), name)?;
            signal.map(|signal| FsNode::Signal(view.clone(), name.into(), signal.created))
        }
        FsNode::Shared(view, shared) => {
            find_in_shared(mount, view, shared, name)?.map(|found| FsNode::Shared(view.clone(), found))
        }
        FsNode::Control(..)
        | FsNode::Record(..)
        | FsNode::File(..)
        | FsNode::Temporary(..)
        | FsNode::Query(..)
        | FsNode::Export(..)
        | FsNode::Setting(..)
        | FsNode::Signal(..) => {
            return Err(Errno::ENOTDIR.into());
        }
    };
    found.ok_or(Errno::ENOENT.into())
}

fn find_inside(
    mount: &MountContext,
    view: &View,
    directory: ControlDirectory,
    name: &str,
) -> Result<Option<FsNode>, Failure> {
    let found = match (directory, view) {
        (ControlDirectory::Vectors, _) => find_record(mount, view, name)?,
        (ControlDirectory::Branches, View::Branch(branch)) => mount.memory.child(*branch, name).map(FsNode::Branch),
        (ControlDirectory::Checkpoints, View::Branch(branch)) => find_checkpoint(mount, *branch, name)?,
        (ControlDirectory::At, View::Branch(branch)) => find_earlier_state(mount, *branch, name)?,
        (ControlDirectory::Proposals, View::Branch(branch)) => {
            mount.memory.proposal(*branch, name)?.map(|(branch, entry)| FsNode::Proposal { branch, entry })
        }
        // Checkpoints, earlier states and proposals are read-only and have no branches, checkpoints or proposals of
        // their own.
        (
            ControlDirectory::Branches
            | ControlDirectory::Checkpoints
            | ControlDirectory::At
            | ControlDirectory::Proposals,
            _,
        ) => None,
        (ControlDirectory::Shared, _) => SharedNode::all()
            .find_map(|(known, node)| (known == name).then_some(node))
            .map(|node| FsNode::Shared(view.clone(), node)),
        (ControlDirectory::Search, _) => Some(FsNode::Query(view.clone(), name.into())),
        (ControlDirectory::Exports, _) => exports()
            .find_map(|(known, export)| (known == name).then_some(export))
            .map(|export| FsNode::Export(view.clone(), export)),
        (ControlDirectory::Config, _) => Setting::from_name(name).map(|setting| FsNode::Setting(view.clone(), setting)),
    };
    Ok(found)
}

/// Returns the node at a name in a directory of `shared/`.
fn find_in_shared(
    mount: &MountContext,
    view: &View,
    directory: &SharedNode,
    name: &str,
) -> Result<Option<SharedNode>, Failure> {
    // In its one form, so that no two names lead to one node.
    let number = || name.parse::<u64>().ok().filter(|number| number.to_string() == name);
    Ok(match directory {
        SharedNode::Log => SharedNode::log_files().find_map(|(known, node)| (known == name).then_some(node)),
        SharedNode::AfterDirectory => {
            let entries = mount.memory.shared_log(view.branch())?.entry_count();
            number().filter(|entry| *entry <= entries).map(SharedNode::After)
        }
        SharedNode::LastDirectory => number().filter(|count| *count > 0).map(SharedNode::Last),
        SharedNode::ClosedDirectory => {
            let names = mount.memory.closed_logs(view.branch())?;
            names.into_iter().find(|known| **known == *name).map(SharedNode::Closed)
        }
        SharedNode::Closed(log) => (name == "entries.jsonl").then(|| SharedNode::ClosedEntries(log.clone())),
        _ => return Err(Errno::ENOTDIR.into()),
    })
}

fn list_shared(mount: &MountContext, view: &View, directory: &SharedNode) -> Result<Vec<ListName>, Failure> {
    let node = |label: &str, node: SharedNode| list_name(label, FsNode::Shared(view.clone(), node));
    Ok(match directory {
        SharedNode::Log => SharedNode::log_files().map(|(label, shared)| node(label, shared)).collect(),
        SharedNode::ClosedDirectory => {
            let names = mount.memory.closed_logs(view.branch())?;
            names.into_iter().map(|label| node(&label, SharedNode::Closed(label.clone()))).collect()
        }
        SharedNode::Closed(log) => vec![node("entries.jsonl", SharedNode::ClosedEntries(log.clone()))],
        // Every number is a name here, so a listing shows none.
        SharedNode::AfterDirectory | SharedNode::LastDirectory => Vec::new(),
        _ => return Err(Errno::ENOTDIR.into()),
    })
}

/// Returns the directory of `shared/` that holds a node.
fn parent_in_shared(view: &View, node: &SharedNode) -> FsNode {
    let directory = match node {
        SharedNode::Log | SharedNode::Signals | SharedNode::Events => {
            return FsNode::Directory(view.clone(), ControlDirectory::Shared);
        }
        SharedNode::After(_) => SharedNode::AfterDirectory,
        SharedNode::Last(_) => SharedNode::LastDirectory,
        SharedNode::Closed(_) => SharedNode::ClosedDirectory,
        SharedNode::ClosedEntries(log) => SharedNode::Closed(log.clone()),
        _ => SharedNode::Log,
    };
    FsNode::Shared(view.clone(), directory)
}

fn find_temporary(mount: &MountContext, parent: &FsNode, name: &OsStr) -> Option<FsNode> {
    let FsNode::Directory(View::Branch(branch), ControlDirectory::Vectors) = parent else {
        return None;
    };
    let file = mount.states.get(*branch)?.temporaries.get(name)?;
    Some(FsNode::Temporary(*branch, file.number))
}

fn find_record(mount: &MountContext, view: &View, name: &str) -> Result<Option<FsNode>, Failure> {
    let Some(id) = name.strip_suffix(".json").filter(|_| !name.starts_with('.')) else {
        return Ok(None);
    };
    let there = mount.memory.snapshot(view)?.stat(id)?.is_some();
    Ok(there.then(|| FsNode::Record(view.clone(), id.into())))
}

fn find_checkpoint(mount: &MountContext, branch: BranchId, label: &str) -> Result<Option<FsNode>, Failure> {
    match mount.memory.checkpoint_time(branch, label) {
        Ok(taken) => Ok(Some(FsNode::Checkpoint { branch, label: label.into(), taken })),
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Invalid) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns what a branch was behind an entry, or at a time.
fn find_earlier_state(mount: &MountContext, branch: BranchId, name: &str) -> Result<Option<FsNode>, Failure> {
    let Ok(revision) = Revision::parse(name) else { return Ok(None) };
    match mount.memory.view_at(branch, &revision) {
        Ok(view) => Ok(Some(view_node(mount, &view))),
        // Any name may be looked up by chance, but for one that reads as an entry or a time: who asks for such is told why.
        Err(error) if error.kind() == Kind::NotFound && revision.point().is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the directory that holds `node`: what a listing of it shows as `..`.
fn parent_node(mount: &MountContext, node: &FsNode) -> FsNode {
    match node {
        FsNode::Mount => FsNode::Mount,
        FsNode::Branch(branch) => match mount.memory.info(*branch).ok().and_then(|info| info.parent) {
            Some(parent) => FsNode::Directory(View::Branch(parent), ControlDirectory::Branches),
            None => FsNode::Mount,
        },
        FsNode::Checkpoint { branch, .. } => FsNode::Directory(View::Branch(*branch), ControlDirectory::Checkpoints),
        FsNode::At { branch, .. } => FsNode::Directory(View::Branch(*branch), ControlDirectory::At),
        FsNode::Proposal { branch, .. } => match mount.memory.info(*branch).ok().and_then(|info| info.parent) {
            Some(parent) => FsNode::Directory(View::Branch(parent), ControlDirectory::Proposals),
            None => FsNode::Mount,
        },
        FsNode::Directory(view, _) | FsNode::Control(view, _) => view_node(mount, view),
        FsNode::Record(view, _) => FsNode::Directory(view.clone(), ControlDirectory::Vectors),
        FsNode::File(tree_id, _) => tree_id.parent(),
        FsNode::Temporary(branch, _) => FsNode::Directory(View::Branch(*branch), ControlDirectory::Vectors),
        FsNode::Query(view, _) => FsNode::Directory(view.clone(), ControlDirectory::Search),
        FsNode::Export(view, _) => FsNode::Directory(view.clone(), ControlDirectory::Exports),
        FsNode::Setting(view, _) => FsNode::Directory(view.clone(), ControlDirectory::Config),
        FsNode::Shared(view, shared) => parent_in_shared(view, shared),
        FsNode::Signal(view, ..) => FsNode::Shared(view.clone(), SharedNode::Signals),
    }
}

fn view_node(mount: &MountContext, view: &View) -> FsNode {
    let taken = match view {
        View::Branch(_) | View::At(..) | View::Proposal(..) => Time::default(),
        View::Checkpoint(branch, label) => mount.memory.checkpoint_time(*branch, label).unwrap_or_default(),
    };
    FsNode::from_view(view, taken)
}

/// Opens the listing of a directory; those in `files/` have their own. ENOTDIR for what is not a directory; fails if
/// the view is not there any more.
pub(super) fn list(mount: &MountContext, directory: &FsNode) -> Result<Listing, Failure> {
    let mut names = vec![list_name(".", directory.clone()), list_name("..", parent_node(mount, directory))];
    let mut more = ListingTail::Nothing;
    match directory {
        FsNode::Mount => names
            .extend(mount.memory.roots().into_iter().map(|(label, branch)| list_name(&label, FsNode::Branch(branch)))),
        FsNode::Branch(_) | FsNode::Checkpoint { .. } | FsNode::At { .. } | FsNode::Proposal { .. } => {
            let view = directory.view().ok_or(Errno::ENOTDIR)?;
            names.extend(fixed::all_nodes(&view).map(|(label, node)| list_name(label, node)));
            let area =
                |area: Area| Some(list_name(area.name(), FsNode::File(mount.files_in(directory, area)?, FILES_ROOT)));
            names.extend(Area::ALL.into_iter().filter_map(area));
        }
        FsNode::Directory(view, ControlDirectory::Vectors) => {
            // Temporaries are in no earlier state. They come before the records, which are listed as they are read.
            let files = mount.states.get(view.branch()).filter(|_| matches!(view, View::Branch(_)));
            let files = files.map(|state| state.temporaries.list()).unwrap_or_default();
            names.extend(
                files
                    .into_iter()
                    .map(|(name, number)| ListName { name, node: FsNode::Temporary(view.branch(), number) }),
            );
            more = ListingTail::Records(Records::new(view.clone(), mount.memory.snapshot(view)?));
        }
        FsNode::Directory(view, directory) => names.extend(list_inside(mount, view, *directory)?),
        FsNode::Shared(view, SharedNode::Signals) => {
            let signals = mount.memory.signals(view.branch())?;
            names.extend(signals.into_iter().map(|(key, created)| {
                let node = FsNode::Signal(view.clone(), key.clone(), created);
                list_name(&key, node)
            }));
        }
        FsNode::Shared(view, shared) => names.extend(list_shared(mount, view, shared)?),
        FsNode::Control(..)
        | FsNode::Record(..)
        | FsNode::File(..)
        | FsNode::Temporary(..)
        | FsNode::Query(..)
        | FsNode::Export(..)
        | FsNode::Setting(..)
        | FsNode::Signal(..) => {
            return Err(Errno::ENOTDIR.into());
        }
    }
    Ok(Listing::new(names, more))
}

fn list_inside(mount: &MountContext, view: &View, directory: ControlDirectory) -> Result<Vec<ListName>, Failure> {
    Ok(match (directory, view) {
        (ControlDirectory::Branches, View::Branch(branch)) => mount
            .memory
            .children(*branch)?
            .into_iter()
            .map(|(label, child)| list_name(&label, FsNode::Branch(child)))
            .collect(),
        (ControlDirectory::Checkpoints, View::Branch(branch)) => {
            let labels = mount.memory.checkpoints(*branch)?;
            let node = |label: &str| find_checkpoint(mount, *branch, label).ok().flatten();
            labels.iter().filter_map(|label| Some(list_name(label, node(label)?))).collect()
        }
        (ControlDirectory::Proposals, View::Branch(branch)) => {
            let node = |(label, branch, entry): (std::sync::Arc<str>, BranchId, u64)| {
                list_name(&label, FsNode::Proposal { branch, entry })
            };
            mount.memory.proposals(*branch)?.into_iter().map(node).collect()
        }
        (ControlDirectory::Shared, _) => {
            SharedNode::all().map(|(label, node)| list_name(label, FsNode::Shared(view.clone(), node))).collect()
        }
        (ControlDirectory::Exports, _) => {
            exports().map(|(label, export)| list_name(label, FsNode::Export(view.clone(), export))).collect()
        }
        (ControlDirectory::Config, _) => Setting::ALL
            .into_iter()
            .map(|setting| list_name(setting.name(), FsNode::Setting(view.clone(), setting)))
            .collect(),
        // Only the present has branches and the like; searches and earlier states are opened by names that no listing
        // has.
        (ControlDirectory::Branches | ControlDirectory::Checkpoints | ControlDirectory::Proposals, _)
        | (ControlDirectory::Search | ControlDirectory::At | ControlDirectory::Vectors, _) => Vec::new(),
    })
}

fn list_name(label: &str, node: FsNode) -> ListName {
    ListName { name: label.into(), node }
}
