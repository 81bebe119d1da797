//! From a directory and a name to a node, and from a directory to its names.

use std::ffi::OsStr;

use super::common::Common;
use super::directory::{Listing, More, Name, Records};
use super::errno::{Errno, Failure};
use super::files::Area;
use super::node::{Fixed, Node, exports, is_temporary};
use crate::memory::{BranchId, Error, FILES_ROOT, Kind, Setting, Time, View};

/// Bytes of the longest name; the kernel leaves this check to the file system.
const NAME_BYTES_MAX: usize = 255;

/// Returns what stands at `name` in the directory `parent`; ENOENT, ENOTDIR, ENAMETOOLONG.
pub(super) fn find(common: &Common, parent: &Node, name: &OsStr) -> Result<Node, Failure> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if let Node::File(of, directory) = parent {
        let inode = common.tree(of)?.lookup(*directory, name.as_encoded_bytes())?;
        return Ok(Node::File(of.clone(), inode));
    }
    // A temporary's name may be any bytes.
    if let Some(node) = temporary(common, parent, name) {
        return Ok(node);
    }
    let name = name.to_str().ok_or(Errno::ENOENT)?;
    let found = match parent {
        Node::Mount => common.memory.root(name).map(Node::Branch),
        Node::Branch(_) | Node::Checkpoint { .. } => {
            let view = parent.view().ok_or(Errno::ENOTDIR)?;
            match Area::ALL.into_iter().find(|area| area.name() == name) {
                Some(area) => common.files_in(parent, area).map(|of| Node::File(of, FILES_ROOT)),
                None => Fixed::from_name(name).map(|fixed| Node::Fixed(view, fixed)),
            }
        }
        Node::Fixed(view, fixed) => find_inside(common, view, *fixed, name)?,
        Node::Record(..)
        | Node::File(..)
        | Node::Temporary(..)
        | Node::Query(..)
        | Node::Export(..)
        | Node::Setting(..) => {
            return Err(Errno::ENOTDIR.into());
        }
    };
    found.ok_or(Errno::ENOENT.into())
}

fn find_inside(common: &Common, view: &View, fixed: Fixed, name: &str) -> Result<Option<Node>, Failure> {
    let found = match (fixed, view) {
        (Fixed::Vectors, _) => record(common, view, name)?,
        (Fixed::Branches, View::Branch(branch)) => common.memory.child(*branch, name).map(Node::Branch),
        (Fixed::Checkpoints, View::Branch(branch)) => checkpoint(common, *branch, name)?,
        // What has ended by the time of a checkpoint is not in it, and what is in it has none.
        (Fixed::Branches | Fixed::Checkpoints, View::Checkpoint(..)) => None,
        (Fixed::Search, _) => Some(Node::Query(view.clone(), name.into())),
        (Fixed::Exports, _) => exports()
            .find_map(|(known, export)| (known == name).then_some(export))
            .map(|export| Node::Export(view.clone(), export)),
        (Fixed::Config, _) => Setting::from_name(name).map(|setting| Node::Setting(view.clone(), setting)),
        (Fixed::Query | Fixed::Ingest | Fixed::Ctl | Fixed::Errors | Fixed::Document(_) | Fixed::History(_), _) => {
            return Err(Errno::ENOTDIR.into());
        }
    };
    Ok(found)
}

fn temporary(common: &Common, parent: &Node, name: &OsStr) -> Option<Node> {
    let Node::Fixed(View::Branch(branch), Fixed::Vectors) = parent else {
        return None;
    };
    let file = common.states.known(*branch)?.temporaries.named(name)?;
    Some(Node::Temporary(*branch, file.number))
}

fn record(common: &Common, view: &View, name: &str) -> Result<Option<Node>, Failure> {
    let Some(id) = name.strip_suffix(".json").filter(|_| !is_temporary(name)) else {
        return Ok(None);
    };
    let there = common.memory.snapshot(view)?.stat(id)?.is_some();
    Ok(there.then(|| Node::Record(view.clone(), id.into())))
}

fn checkpoint(common: &Common, branch: BranchId, label: &str) -> Result<Option<Node>, Failure> {
    match common.memory.checkpoint_time(branch, label) {
        Ok(taken) => Ok(Some(Node::Checkpoint { branch, label: label.into(), taken })),
        Err(Error { kind: Kind::NotFound | Kind::Invalid, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the directory that holds `node`; for what is in `files/`, that one.
pub(super) fn parent_of(common: &Common, node: &Node) -> Node {
    match node {
        Node::Mount => Node::Mount,
        Node::Branch(branch) => match common.memory.info(*branch).ok().and_then(|info| info.parent) {
            Some(parent) => Node::Fixed(View::Branch(parent), Fixed::Branches),
            None => Node::Mount,
        },
        Node::Checkpoint { branch, .. } => Node::Fixed(View::Branch(*branch), Fixed::Checkpoints),
        Node::Fixed(view, _) => of_view(common, view),
        Node::Record(view, _) => Node::Fixed(view.clone(), Fixed::Vectors),
        Node::File(of, FILES_ROOT) => of.above(),
        Node::File(of, _) => Node::File(of.clone(), FILES_ROOT),
        Node::Temporary(branch, _) => Node::Fixed(View::Branch(*branch), Fixed::Vectors),
        Node::Query(view, _) => Node::Fixed(view.clone(), Fixed::Search),
        Node::Export(view, _) => Node::Fixed(view.clone(), Fixed::Exports),
        Node::Setting(view, _) => Node::Fixed(view.clone(), Fixed::Config),
    }
}

fn of_view(common: &Common, view: &View) -> Node {
    let taken = match view {
        View::Branch(_) => Time::default(),
        View::Checkpoint(branch, label) => common.memory.checkpoint_time(*branch, label).unwrap_or_default(),
    };
    Node::of_view(view, taken)
}

/// Opens the listing of a directory; those in `files/` have their own.
pub(super) fn list(common: &Common, directory: &Node) -> Result<Listing, Failure> {
    let mut names = vec![name(".", directory.clone()), name("..", parent_of(common, directory))];
    let mut more = More::Nothing;
    match directory {
        Node::Mount => {
            names.extend(common.memory.roots().into_iter().map(|(label, branch)| name(&label, Node::Branch(branch))))
        }
        Node::Branch(_) | Node::Checkpoint { .. } => {
            let view = directory.view().ok_or(Errno::ENOTDIR)?;
            names.extend(Fixed::all().map(|(label, fixed)| name(label, Node::Fixed(view.clone(), fixed))));
            let area = |area: Area| Some(name(area.name(), Node::File(common.files_in(directory, area)?, FILES_ROOT)));
            names.extend(Area::ALL.into_iter().filter_map(area));
        }
        Node::Fixed(view, Fixed::Vectors) => {
            let files = common.states.known(view.branch()).filter(|_| matches!(view, View::Branch(_)));
            let files = files.map(|state| state.temporaries.list()).unwrap_or_default();
            names.extend(
                files.into_iter().map(|(name, number)| Name { name, node: Node::Temporary(view.branch(), number) }),
            );
            more = More::Records(Records::new(common.memory.snapshot(view)?));
        }
        Node::Fixed(view, fixed) => names.extend(list_inside(common, view, *fixed)?),
        Node::Record(..)
        | Node::File(..)
        | Node::Temporary(..)
        | Node::Query(..)
        | Node::Export(..)
        | Node::Setting(..) => {
            return Err(Errno::ENOTDIR.into());
        }
    }
    Ok(Listing::new(names, more))
}

fn list_inside(common: &Common, view: &View, fixed: Fixed) -> Result<Vec<Name>, Failure> {
    Ok(match (fixed, view) {
        (Fixed::Branches, View::Branch(branch)) => common
            .memory
            .children(*branch)?
            .into_iter()
            .map(|(label, child)| name(&label, Node::Branch(child)))
            .collect(),
        (Fixed::Checkpoints, View::Branch(branch)) => {
            let labels = common.memory.checkpoints(*branch)?;
            let node = |label: &str| checkpoint(common, *branch, label).ok().flatten();
            labels.iter().filter_map(|label| Some(name(label, node(label)?))).collect()
        }
        (Fixed::Exports, _) => {
            exports().map(|(label, export)| name(label, Node::Export(view.clone(), export))).collect()
        }
        (Fixed::Config, _) => {
            Setting::ALL.into_iter().map(|setting| name(setting.name(), Node::Setting(view.clone(), setting))).collect()
        }
        (Fixed::Branches | Fixed::Checkpoints, View::Checkpoint(..)) | (Fixed::Search | Fixed::Vectors, _) => {
            Vec::new()
        }
        (Fixed::Query | Fixed::Ingest | Fixed::Ctl | Fixed::Errors | Fixed::Document(_) | Fixed::History(_), _) => {
            return Err(Errno::ENOTDIR.into());
        }
    })
}

fn name(label: &str, node: Node) -> Name {
    Name { name: label.into(), node }
}
