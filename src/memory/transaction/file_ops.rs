//! What follows from an operation on files: whether it frees room, and what of it a replay could do again.

use crate::workspace::{FileContent, FileOp, RangeOp, Tree, TreeError, unshared_bytes};

/// Returns whether an operation makes less of the files, so that a full disk must not refuse it.
pub(super) fn frees_room(tree: &Tree, op: &FileOp<'_>) -> bool {
    match op {
        FileOp::Unlink { .. } | FileOp::Rmdir { .. } | FileOp::Drop { .. } | FileOp::RemoveXattr { .. } => true,
        FileOp::Range { what: RangeOp::Punch, .. } => true,
        FileOp::SetAttr { inode, attrs } => attrs.size.is_some_and(|size| {
            let is_less = |content: &FileContent| size <= content.size();
            tree.node(*inode).ok().and_then(|node| node.content()).is_some_and(is_less)
        }),
        _ => false,
    }
}

/// Returns how many bytes of content an operation brings, which take memory until a seal writes them: those of a write, and
/// those of a copy that it does not share.
pub(super) fn content_bytes(op: &FileOp<'_>) -> u64 {
    match op {
        FileOp::Write { bytes, .. } => bytes.len() as u64,
        FileOp::Copy { from_offset, to_offset, length, .. } => unshared_bytes(*from_offset, *to_offset, *length),
        _ => 0,
    }
}

/// Returns whether an operation moves a directory that holds something: all paths below it differ then.
pub(super) fn moves_directory(tree: &Tree, op: &FileOp<'_>) -> bool {
    let FileOp::Rename { parent, name, new_parent, new_name, .. } = op else { return false };
    let is_directory = |parent: u64, name: &[u8]| {
        let node = tree.lookup(parent, name).ok().and_then(|inode| tree.node(inode).ok());
        node.and_then(|node| node.directory()).is_some_and(|directory| !directory.is_empty())
    };
    is_directory(*parent, name) || is_directory(*new_parent, new_name)
}

/// Returns whether an operation outlives the handles of its file.
///
/// What is done to a file without a name does not, and the journal never speaks of it: a seal stores no such file, so
/// after it an opening could not do it again. For the same reason none is a source of bytes for a file that has one:
/// `Stale`.
pub(super) fn is_replayable(tree: &Tree, op: &FileOp<'_>) -> Result<bool, TreeError> {
    let has_name = |inode: u64| tree.node(inode).map(|node| node.nlink() > 0);
    match op {
        FileOp::Create { .. }
        | FileOp::Link { .. }
        | FileOp::Unlink { .. }
        | FileOp::Rmdir { .. }
        | FileOp::Rename { .. } => Ok(true),
        FileOp::SetAttr { inode, .. }
        | FileOp::Write { inode, .. }
        | FileOp::Range { inode, .. }
        | FileOp::SetXattr { inode, .. }
        | FileOp::RemoveXattr { inode, .. } => has_name(*inode),
        FileOp::Copy { from, to, .. } => match (has_name(*from)?, has_name(*to)?) {
            (false, true) => Err(TreeError::Stale),
            (_, is_replayable) => Ok(is_replayable),
        },
        FileOp::Drop { .. } => Ok(false),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::object::Time;
    use crate::workspace::{FileName, NewInode, NoPacks, ROOT, RenameMode};

    #[test]
    fn a_rename_moves_a_directory_that_holds_something_under_either_of_its_names() {
        let mut tree = Tree::new(0o755, 0, 0, Time(0));
        let name = |name: &str| FileName::new(name.as_bytes()).unwrap();
        let mut create = |parent: u64, file: &str, make: NewInode| {
            let create = FileOp::Create { parent, name: name(file), make, mode: 0o755, uid: 0, gid: 0 };
            tree.apply(&create, Time(0), &NoPacks).unwrap().inode
        };
        create(ROOT, "file", NewInode::File);
        create(ROOT, "empty", NewInode::Directory);
        let full = create(ROOT, "full", NewInode::Directory);
        create(full, "inner", NewInode::File);
        let moves = |from: &str, to: &str| {
            let (parent, new_parent, mode, keep) = (ROOT, ROOT, RenameMode::Exchange, false);
            let rename = FileOp::Rename { parent, name: name(from), new_parent, new_name: name(to), mode, keep };
            moves_directory(&tree, &rename)
        };
        assert_eq!([moves("full", "new"), moves("file", "full")], [true; 2]);
        assert_eq!([moves("file", "new"), moves("empty", "file")], [false; 2]);
    }

    #[test]
    fn a_copy_counts_by_what_it_does_not_share() {
        let copy = |from_offset, to_offset, length| {
            content_bytes(&FileOp::Copy { from: 2, from_offset, to: 3, to_offset, length })
        };
        assert_eq!([copy(0, 0, 1 << 30), copy(65_536, 131_072, 1 << 30)], [2 * 65_536; 2]);
        assert_eq!([copy(5, 65_541, 100), copy(3, 4, 7), copy(0, 1, 1 << 20)], [100, 7, 1 << 20]);
    }
}
