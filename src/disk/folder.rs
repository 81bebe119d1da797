//! A folder of a store, used by its descriptor, so that no symbolic link leads out of it and nothing in it is waited for.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Every open: a FIFO is not waited for, a symbolic link is not followed, a child process inherits nothing.
const OPEN_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);
/// Opens a folder to name things in it, and to do nothing else with it.
const TRAVERSE_FLAGS: OFlags = OPEN_FLAGS.union(OFlags::PATH).union(OFlags::DIRECTORY);
/// Opens a folder to list and to sync it.
const LIST_FLAGS: OFlags = OPEN_FLAGS.union(OFlags::RDONLY).union(OFlags::DIRECTORY);
/// Permission bits of a folder that the disk makes: its owner's alone.
pub(super) const FOLDER_MODE: u32 = 0o700;
/// Permission bits of a file that the disk makes: its owner's alone.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Says that something else has the name of a file or folder of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} is {found} and not {wanted}")]
pub struct WrongType {
    /// The path below the store's root.
    pub path: String,
    /// What has the name, such as `a FIFO`.
    pub found: &'static str,
    /// What should have it, such as `a regular file`.
    pub wanted: &'static str,
}

/// A folder of a store, open; what is in it is named by one name.
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens the root of a store. It is where the user says, so a symbolic link to it is followed; `NotFound` if
    /// nothing is there.
    pub fn open_root(path: &Path) -> io::Result<Folder> {
        Ok(Folder(fs::openat(CWD, path, TRAVERSE_FLAGS.difference(OFlags::NOFOLLOW), Mode::empty())?))
    }

    /// Opens the folder at a path below the root; `""` is the root. `NotFound` if one is missing; a symbolic link or a
    /// file on the way is a [`WrongType`].
    pub fn open_at(root: &Path, path: &str) -> io::Result<Folder> {
        // One name after the other, each by the descriptor of the one before: nobody can put a link into a path that
        // was passed.
        let mut folder = Folder::open_root(root)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            folder = Folder(folder.open(name, path, TRAVERSE_FLAGS)?);
        }
        Ok(folder)
    }

    /// Opens the folder that a path lies in; also returns the name in it. Fails like [`Folder::open_at`].
    pub fn open_parent<'a>(root: &Path, path: &'a str) -> io::Result<(Folder, &'a str)> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((Folder::open_at(root, folder)?, name))
    }

    /// Opens a regular file of the folder; all else is refused as a [`WrongType`] that says `path`.
    pub fn open_file(&self, name: &str, path: &str, flags: OFlags) -> io::Result<File> {
        let file = self.open(name, path, flags)?;
        // Asked of the open descriptor and not of the name, which could lead to something else a moment later.
        let found = FileType::from_raw_mode(fs::fstat(&file)?.st_mode);
        if found != FileType::RegularFile {
            return Err(wrong_type(path, found, FileType::RegularFile));
        }
        Ok(file.into())
    }

    fn open(&self, name: &str, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let error = match fs::openat(&self.0, name, flags | OPEN_FLAGS, FILE_MODE) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        let wanted = if flags.contains(OFlags::DIRECTORY) { FileType::Directory } else { FileType::RegularFile };
        // The errno says which open failed but not what has the name, so its type is looked up.
        let by_type = matches!(error, Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::NXIO | Errno::OPNOTSUPP);
        match self.file_type(name) {
            Ok(found) if by_type && found != wanted => Err(wrong_type(path, found, wanted)),
            _ => Err(error.into()),
        }
    }

    /// Returns what has a name, and its permission bits; a symbolic link is one itself.
    fn stat(&self, name: &str) -> io::Result<(FileType, u32)> {
        let found = fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((FileType::from_raw_mode(found.st_mode), found.st_mode & 0o7777))
    }

    fn file_type(&self, name: &str) -> io::Result<FileType> {
        Ok(self.stat(name)?.0)
    }

    /// Returns the permission bits of what has a name; `""` is the folder itself. `NotFound` if nothing has the name. A
    /// link is not followed.
    pub fn mode(&self, name: &str) -> io::Result<u32> {
        if name.is_empty() { Ok(fs::fstat(&self.0)?.st_mode & 0o7777) } else { Ok(self.stat(name)?.1) }
    }

    /// Makes a folder in it, unless it is there. `AlreadyExists` if something else than a folder has the name; it wraps
    /// a [`WrongType`].
    pub fn create_folder(&self, name: &str, path: &str) -> io::Result<()> {
        match fs::mkdirat(&self.0, name, Mode::from_raw_mode(FOLDER_MODE)) {
            Err(Errno::EXIST) => match self.file_type(name)? {
                FileType::Directory => Ok(()),
                found => {
                    Err(io::Error::new(io::ErrorKind::AlreadyExists, WrongType::new(path, found, FileType::Directory)))
                }
            },
            other => Ok(other?),
        }
    }

    /// Moves a name, maybe to another folder. `NotFound` if nothing has the name; what has the new one is replaced.
    pub fn rename(&self, from: &str, to: &Folder, name: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.0, from, &to.0, name)?)
    }

    /// Removes a name that is not a folder's. `NotFound` if nothing has the name, `IsADirectory` for a folder.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Returns the names in it. They come in no order; one that is not UTF-8 comes with replacement characters. The
    /// first error of the disk ends it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let names =
            Dir::new(self.reopen_to_list()?)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let is_inside = |name: &io::Result<String>| !name.as_ref().is_ok_and(|name| name == "." || name == "..");
        names.filter(is_inside).collect()
    }

    /// Makes the names in it durable. After an error it is not known which of them are durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fs::fsync(self.reopen_to_list()?)?)
    }

    fn reopen_to_list(&self) -> io::Result<OwnedFd> {
        // The folder is held by a descriptor that can only name things; listing and syncing need one that reads.
        Ok(fs::openat(&self.0, ".", LIST_FLAGS, Mode::empty())?)
    }
}

impl WrongType {
    fn new(path: &str, found: FileType, wanted: FileType) -> WrongType {
        WrongType { path: path.to_owned(), found: type_name(found), wanted: type_name(wanted) }
    }
}

fn wrong_type(path: &str, found: FileType, wanted: FileType) -> io::Error {
    let kind = match (found, wanted) {
        (FileType::Directory, _) => io::ErrorKind::IsADirectory,
        (_, FileType::Directory) => io::ErrorKind::NotADirectory,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, WrongType::new(path, found, wanted))
}

fn type_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "something else",
    }
}
