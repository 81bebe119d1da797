//! The files of a state: an index with all that is known of each path, and their contents as a plain tree.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lines::{for_each_value, open_file, write_values};
use super::{FILES, INDEX, damaged};
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::memory::{
    Actor, Attrs, BranchId, EditError, FILES_ROOT, FileKind, FileName, FileOp, Memory, NewInode, Tree, TreeError, View,
    XattrMode,
};

/// Bytes that are read and written at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes that are text nearly always.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Hash, Debug)]
#[serde(untagged, expecting = "bytes are a text, or {\"hex\":\"…\"}")]
pub(super) enum JsonBytes {
    /// UTF-8.
    Text(String),
    /// Anything else, two digits a byte.
    Hex { hex: String },
}

impl JsonBytes {
    /// Takes bytes as a text where they are one.
    pub(super) fn from_bytes(bytes: &[u8]) -> JsonBytes {
        match std::str::from_utf8(bytes) {
            Ok(text) => JsonBytes::Text(text.to_owned()),
            Err(_) => JsonBytes::Hex { hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect() },
        }
    }

    /// Returns the bytes; `None` if what should be hex is not.
    pub(super) fn decode(&self) -> Option<Vec<u8>> {
        match self {
            JsonBytes::Text(text) => Some(text.clone().into_bytes()),
            JsonBytes::Hex { hex } => {
                let digit = |digit: u8| char::from(digit).to_digit(16);
                let byte = |pair: &[u8]| match pair {
                    [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
                    _ => None,
                };
                hex.as_bytes().chunks(2).map(byte).collect()
            }
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, CommandError> {
        self.decode().ok_or_else(|| damaged(format!("{self:?} is no hex")))
    }
}

/// One line of `files.jsonl`: a path with all that it has but the bytes of its content.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub(super) struct PathEntry {
    /// From `files/` on; empty for that folder itself.
    path: JsonBytes,
    kind: String,
    /// In octal, 12 bits.
    mode: String,
    uid: u32,
    gid: u32,
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// Hash of size and content.
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// Of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<JsonBytes>,
    /// The number of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
    /// An earlier path of the same file.
    #[serde(skip_serializing_if = "Option::is_none")]
    link_to: Option<JsonBytes>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<(JsonBytes, JsonBytes)>,
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char_device",
        FileKind::BlockDevice => "block_device",
    }
}

/// Lists all paths with their inodes, each folder before what is in it. Fails if a name leads to an inode that is not
/// in the tree.
pub(super) fn list(tree: &Tree) -> Result<Vec<(PathEntry, u64)>, CommandError> {
    let (mut found, mut first) = (Vec::new(), HashMap::new());
    let mut todo = vec![(Vec::new(), FILES_ROOT)];
    while let Some((path, inode)) = todo.pop() {
        found.push((entry(tree, &path, inode, &mut first)?, inode));
        let Ok(entries) = tree.entries(inode, None) else { continue };
        let below = |name: &FileName| if path.is_empty() { name.to_vec() } else { [&path, &**name].join(&b'/') };
        let inside: Vec<(Vec<u8>, u64)> = entries.map(|(name, inode)| (below(name), inode)).collect();
        todo.extend(inside.into_iter().rev());
    }
    Ok(found)
}

fn entry(tree: &Tree, path: &[u8], inode: u64, first: &mut HashMap<u64, JsonBytes>) -> Result<PathEntry, CommandError> {
    let node = tree.node(inode).map_err(tree_error)?;
    let own = JsonBytes::from_bytes(path);
    let link_to = first.get(&inode).cloned();
    if node.directory().is_none() && node.nlink() > 1 {
        first.entry(inode).or_insert_with(|| own.clone());
    }
    let is_device = matches!(node.kind(), FileKind::CharDevice | FileKind::BlockDevice);
    Ok(PathEntry {
        path: own,
        kind: kind_name(node.kind()).to_owned(),
        mode: format!("{:04o}", node.mode),
        uid: tree.owner(node),
        gid: node.gid,
        mtime: node.mtime.to_string(),
        size: node.content().map(|_| node.size()),
        hash: node.content_hash().map(|hash| hash.to_string()),
        target: node.target().map(JsonBytes::from_bytes),
        device: is_device.then(|| node.rdev()),
        link_to,
        xattrs: node
            .xattrs()
            .map(|(name, value)| (JsonBytes::from_bytes(name), JsonBytes::from_bytes(value)))
            .collect(),
    })
}

/// Writes index and contents into a folder. Fails if a content can't be read or a file can't be written; the folder is
/// incomplete then.
pub(super) fn write(memory: &Memory, tree: &Tree, folder: &Path) -> Result<(), CommandError> {
    let written = list(tree)?.into_iter().map(|(entry, inode)| {
        write_one(memory, tree, &entry, inode, folder)?;
        Ok(entry)
    });
    write_values(&folder.join(INDEX), written).map(drop)
}

fn write_one(memory: &Memory, tree: &Tree, entry: &PathEntry, inode: u64, folder: &Path) -> Result<(), CommandError> {
    let place = content_path(folder, &entry.path)?;
    let failed = |error: std::io::Error| CommandError::file("written", &place, &error);
    let kind = entry.kind.as_str();
    // Pipes, sockets and devices are lines of the index and have no file in the dump, under none of their names.
    let has_place = matches!(kind, "directory" | "symlink" | "file");
    if let Some(other) = entry.link_to.as_ref().filter(|_| has_place) {
        return fs::hard_link(content_path(folder, other)?, &place).map_err(failed);
    }
    match kind {
        "directory" => fs::create_dir(&place).map_err(failed),
        "symlink" => {
            let target = entry.target.as_ref().map(JsonBytes::bytes).transpose()?.unwrap_or_default();
            symlink(OsStr::from_bytes(&target), &place).map_err(failed)
        }
        "file" => {
            let file = File::create_new(&place).map_err(failed)?;
            let content = tree.node(inode).map_err(tree_error)?.content();
            let mut offset = 0;
            // Holes stay holes: a file may be far larger than the disk.
            while let Some(at) = content.and_then(|content| content.next_data(offset)) {
                let bytes = tree.read(inode, at, PIECE_BYTES, memory.packs()).map_err(tree_error)?;
                if bytes.iter().any(|byte| *byte != 0) {
                    file.write_all_at(&bytes, at).map_err(failed)?;
                }
                offset = at + bytes.len().max(1) as u64;
            }
            file.set_len(entry.size.unwrap_or(0)).map_err(failed)?;
            file.sync_all().map_err(failed)
        }
        _ => Ok(()),
    }
}

fn content_path(folder: &Path, path: &JsonBytes) -> Result<PathBuf, CommandError> {
    Ok(folder.join(FILES).join(OsStr::from_bytes(&path.bytes()?)))
}

/// Reads the index of a folder. Fails if it can't be read, and with `Exit::Damaged` at the first line that is not an
/// entry.
pub(super) fn read(folder: &Path) -> Result<Vec<PathEntry>, CommandError> {
    let mut entries = Vec::new();
    for_each_value(&folder.join(INDEX), |entry, _| {
        entries.push(entry);
        Ok(())
    })?;
    Ok(entries)
}

/// Makes the files of a branch those of a folder; nothing is done where they are so already. Fails with `Exit::Damaged`
/// if other files came of it than the index lists, and as a write to the branch does; some are made then.
pub(super) fn restore(memory: &Memory, who: &Actor, branch: BranchId, folder: &Path) -> Result<(), CommandError> {
    let wanted = read(folder)?;
    let is_there = |tree: &Tree| -> Result<bool, CommandError> {
        let present = list(tree)?;
        Ok(present.len() == wanted.len() && present.iter().zip(&wanted).all(|((one, _), other)| one == other))
    };
    let before = memory.files(&View::Branch(branch))?;
    if is_there(&before)? {
        return Ok(());
    }
    let restorer = FileRestorer { memory, who, branch, folder };
    restorer.clear(&before)?;
    restorer.make(&wanted)?;
    if is_there(&memory.files(&View::Branch(branch))?)? {
        return Ok(());
    }
    Err(damaged(format!("the files that {} lists are not those that came of it", folder.join(INDEX).display())))
}

struct FileRestorer<'a> {
    memory: &'a Memory,
    who: &'a Actor,
    branch: BranchId,
    folder: &'a Path,
}

impl FileRestorer<'_> {
    fn edit(&self, op: FileOp<'_>) -> Result<u64, CommandError> {
        match self.memory.edit(self.who, self.branch, op) {
            Ok(outcome) => Ok(outcome.inode),
            Err(EditError::Refused(error)) => Err(error.into()),
            Err(EditError::Tree(error)) => Err(damaged(format!("a file can't be made: {error}"))),
        }
    }

    /// Empties the tree, so that the branch then has the dump's files and no others.
    fn clear(&self, tree: &Tree) -> Result<(), CommandError> {
        for (entry, inode) in list(tree)?.iter().rev().filter(|(_, inode)| *inode != FILES_ROOT) {
            let path = entry.path.bytes()?;
            let (above, name) = split(&path);
            let (parent, name) = (tree.resolve(above).map_err(tree_error)?, FileName::new(name).map_err(tree_error)?);
            let is_folder = tree.node(*inode).map_err(tree_error)?.directory().is_some();
            self.edit(match is_folder {
                true => FileOp::Rmdir { parent, name, keep: false },
                false => FileOp::Unlink { parent, name, keep: false },
            })?;
        }
        let root = tree.node(FILES_ROOT).map_err(tree_error)?;
        for (name, _) in root.xattrs() {
            self.edit(FileOp::RemoveXattr { inode: FILES_ROOT, name: name.to_vec() })?;
        }
        Ok(())
    }

    fn make(&self, wanted: &[PathEntry]) -> Result<(), CommandError> {
        let mut inodes = HashMap::new();
        for entry in wanted {
            let path = entry.path.bytes()?;
            let inode = if path.is_empty() { FILES_ROOT } else { self.make_one(entry, &path, &inodes)? };
            if entry.link_to.is_none() {
                for (name, value) in &entry.xattrs {
                    let (name, value) = (name.bytes()?, value.bytes()?);
                    self.edit(FileOp::SetXattr { inode, name, value, mode: XattrMode::Any })?;
                }
            }
            inodes.insert(path, inode);
        }
        // What is made in a folder changes its time, so each comes behind all in it.
        for entry in wanted.iter().rev() {
            let inode = inodes.get(&entry.path.bytes()?).copied().unwrap_or(FILES_ROOT);
            let mode =
                u32::from_str_radix(&entry.mode, 8).map_err(|_| damaged(format!("{} is no mode", entry.mode)))?;
            let mtime = entry.mtime.parse().map_err(|_| damaged(format!("{} is no time", entry.mtime)))?;
            let (mode, uid, gid, mtime) = (Some(mode), Some(entry.uid), Some(entry.gid), Some(mtime));
            self.edit(FileOp::SetAttr { inode, attrs: Attrs { mode, uid, gid, mtime, ..Attrs::default() } })?;
        }
        Ok(())
    }

    fn make_one(&self, entry: &PathEntry, path: &[u8], inodes: &HashMap<Vec<u8>, u64>) -> Result<u64, CommandError> {
        let (above, name) = split(path);
        let known = |path: &[u8]| {
            inodes.get(path).copied().ok_or_else(|| damaged(format!("{} is listed too early", entry_name(path))))
        };
        let parent = known(above)?;
        let name = FileName::new(name).map_err(|error| damaged(format!("{}: {error}", entry_name(path))))?;
        if let Some(other) = &entry.link_to {
            return self.edit(FileOp::Link { inode: known(&other.bytes()?)?, parent, name });
        }
        let device = entry.device.unwrap_or(0);
        let make = match entry.kind.as_str() {
            "file" => NewInode::File,
            "directory" => NewInode::Directory,
            "symlink" => {
                NewInode::Symlink(entry.target.as_ref().map(JsonBytes::bytes).transpose()?.unwrap_or_default())
            }
            "fifo" => NewInode::Fifo,
            "socket" => NewInode::Socket,
            "char_device" => NewInode::CharDevice(device),
            "block_device" => NewInode::BlockDevice(device),
            other => return Err(damaged(format!("{} is called a {other}", entry_name(path)))),
        };
        let is_file = make == NewInode::File;
        let inode = self.edit(FileOp::Create { parent, name, make, mode: 0o600, uid: entry.uid, gid: entry.gid })?;
        if is_file {
            self.fill(entry, inode)?;
        }
        Ok(inode)
    }

    /// Writes the content of a file; what is zeros becomes a hole.
    fn fill(&self, entry: &PathEntry, inode: u64) -> Result<(), CommandError> {
        let place = content_path(self.folder, &entry.path)?;
        let failed = |error: std::io::Error| CommandError::file("read", &place, &error);
        let mut file = open_file(&place)?;
        let (mut offset, mut piece) = (0, Vec::new());
        loop {
            piece.clear();
            let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece).map_err(failed)?;
            if read == 0 {
                break;
            }
            if piece.iter().any(|byte| *byte != 0) {
                self.edit(FileOp::Write { inode, offset, bytes: piece.as_slice().into() })?;
            }
            offset += read as u64;
        }
        self.edit(FileOp::SetAttr { inode, attrs: Attrs { size: Some(offset), ..Attrs::default() } }).map(drop)
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

fn entry_name(path: &[u8]) -> String {
    format!("files/{}", String::from_utf8_lossy(path))
}

fn tree_error(error: TreeError) -> CommandError {
    CommandError::new(
        Exit::Failed,
        "files",
        format!("the files can't be read: {error}"),
        "run engramfs verify on the store",
    )
}
