//! The canonical bytes of an op, as the journal holds them.

use std::borrow::Cow;

use super::op::{Attrs, FileOp, NewInode, RangeOp, RenameMode, XattrMode};
use super::{FileName, TreeError};
use crate::object::{CodecError, Reader, Time, Writer};

/// Codes of ops, which journals hold: none ever changes.
mod code {
    pub const CREATE: u8 = 1;
    pub const LINK: u8 = 2;
    pub const UNLINK: u8 = 3;
    pub const RMDIR: u8 = 4;
    pub const RENAME: u8 = 5;
    pub const SET_ATTR: u8 = 6;
    pub const WRITE: u8 = 7;
    pub const RANGE: u8 = 8;
    pub const COPY: u8 = 9;
    pub const SET_XATTR: u8 = 10;
    pub const REMOVE_XATTR: u8 = 11;
    pub const DROP: u8 = 12;
}

impl FileOp<'_> {
    /// Returns the canonical bytes: equal ops have equal ones.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        let content = self.write(&mut out);
        out.raw(content);
        out.finish()
    }

    /// Reads canonical bytes; all of them must be used. [`CodecError::Code`] for an op that this version does not know.
    pub fn from_bytes(bytes: &[u8]) -> Result<FileOp<'_>, CodecError> {
        let mut input = Reader::new(bytes);
        let op = FileOp::read(&mut input)?;
        // Bytes behind it would be of no op, and equal ops must have equal bytes.
        if input.is_empty() { Ok(op) } else { Err(CodecError::Number) }
    }

    /// Appends the canonical bytes except for those that a write ends with, which it returns.
    pub fn write(&self, out: &mut Writer) -> &[u8] {
        // These bytes are in journals, so the order of fields never changes; `read_with` takes them in the same one.
        match self {
            FileOp::Create { parent, name, make, mode, uid, gid } => {
                out.byte(code::CREATE).number(*parent).bytes(name);
                write_make(make, out);
                out.number((*mode).into()).number((*uid).into()).number((*gid).into())
            }
            FileOp::Link { inode, parent, name } => out.byte(code::LINK).number(*inode).number(*parent).bytes(name),
            FileOp::Unlink { parent, name, keep } => {
                out.byte(code::UNLINK).number(*parent).bytes(name).byte((*keep).into())
            }
            FileOp::Rmdir { parent, name, keep } => {
                out.byte(code::RMDIR).number(*parent).bytes(name).byte((*keep).into())
            }
            FileOp::Rename { parent, name, new_parent, new_name, mode, keep } => {
                out.byte(code::RENAME).number(*parent).bytes(name).number(*new_parent).bytes(new_name);
                out.byte(*mode as u8).byte((*keep).into())
            }
            FileOp::SetAttr { inode, attrs } => {
                out.byte(code::SET_ATTR).number(*inode);
                write_attrs(attrs, out);
                out
            }
            FileOp::Write { inode, offset, bytes } => {
                out.byte(code::WRITE).number(*inode).number(*offset).number(bytes.len() as u64);
                return bytes;
            }
            FileOp::Range { inode, what, offset, length, keep_size } => {
                out.byte(code::RANGE).number(*inode).byte(*what as u8).number(*offset).number(*length);
                out.byte((*keep_size).into())
            }
            FileOp::Copy { from, from_offset, to, to_offset, length } => {
                out.byte(code::COPY).number(*from).number(*from_offset).number(*to).number(*to_offset).number(*length)
            }
            FileOp::SetXattr { inode, name, value, mode } => {
                out.byte(code::SET_XATTR).number(*inode).bytes(name).bytes(value).byte(*mode as u8)
            }
            FileOp::RemoveXattr { inode, name } => out.byte(code::REMOVE_XATTR).number(*inode).bytes(name),
            FileOp::Drop { inode } => out.byte(code::DROP).number(*inode),
        };
        &[]
    }

    /// Reads canonical bytes and leaves what is behind them. The bytes of a write are borrowed. [`CodecError::Code`]
    /// for an op that this version does not know.
    pub fn read<'b>(input: &mut Reader<'b>) -> Result<FileOp<'b>, CodecError> {
        FileOp::read_with(input, Cow::Borrowed)
    }

    /// The same, with a copy of the bytes of a write. Fails like [`FileOp::read`].
    pub fn read_owned(input: &mut Reader<'_>) -> Result<FileOp<'static>, CodecError> {
        FileOp::read_with(input, |bytes| Cow::Owned(bytes.to_vec()))
    }

    fn read_with<'b, 'c>(
        input: &mut Reader<'b>,
        bytes: impl FnOnce(&'b [u8]) -> Cow<'c, [u8]>,
    ) -> Result<FileOp<'c>, CodecError> {
        let code = input.byte()?;
        // Every op begins with an inode's number.
        let inode = input.number()?;
        Ok(match code {
            // The fields of a struct are read in the order of their lines, which is that of the bytes.
            code::CREATE => FileOp::Create {
                parent: inode,
                name: read_name(input)?,
                make: read_make(input)?,
                mode: read_u32(input)?,
                uid: read_u32(input)?,
                gid: read_u32(input)?,
            },
            code::LINK => FileOp::Link { inode, parent: input.number()?, name: read_name(input)? },
            code::UNLINK => FileOp::Unlink { parent: inode, name: read_name(input)?, keep: read_bool(input)? },
            code::RMDIR => FileOp::Rmdir { parent: inode, name: read_name(input)?, keep: read_bool(input)? },
            code::RENAME => FileOp::Rename {
                parent: inode,
                name: read_name(input)?,
                new_parent: input.number()?,
                new_name: read_name(input)?,
                mode: read_variant(&[RenameMode::Plain, RenameMode::NoReplace, RenameMode::Exchange], input)?,
                keep: read_bool(input)?,
            },
            code::SET_ATTR => FileOp::SetAttr { inode, attrs: read_attrs(input)? },
            code::WRITE => FileOp::Write { inode, offset: input.number()?, bytes: bytes(input.bytes()?) },
            code::RANGE => FileOp::Range {
                inode,
                what: read_variant(&[RangeOp::Punch, RangeOp::Zero, RangeOp::Allocate], input)?,
                offset: input.number()?,
                length: input.number()?,
                keep_size: read_bool(input)?,
            },
            code::COPY => FileOp::Copy {
                from: inode,
                from_offset: input.number()?,
                to: input.number()?,
                to_offset: input.number()?,
                length: input.number()?,
            },
            code::SET_XATTR => FileOp::SetXattr {
                inode,
                name: input.bytes()?.to_vec(),
                value: input.bytes()?.to_vec(),
                mode: read_variant(&[XattrMode::Any, XattrMode::Create, XattrMode::Replace], input)?,
            },
            code::REMOVE_XATTR => FileOp::RemoveXattr { inode, name: input.bytes()?.to_vec() },
            code::DROP => FileOp::Drop { inode },
            code => return Err(CodecError::Code(code)),
        })
    }
}

fn write_make(make: &NewInode, out: &mut Writer) {
    match make {
        NewInode::File => out.byte(0),
        NewInode::Directory => out.byte(1),
        NewInode::Symlink(target) => out.byte(2).bytes(target),
        NewInode::Fifo => out.byte(3),
        NewInode::Socket => out.byte(4),
        NewInode::CharDevice(rdev) => out.byte(5).number((*rdev).into()),
        NewInode::BlockDevice(rdev) => out.byte(6).number((*rdev).into()),
    };
}

fn read_make(input: &mut Reader<'_>) -> Result<NewInode, CodecError> {
    Ok(match input.byte()? {
        0 => NewInode::File,
        1 => NewInode::Directory,
        2 => NewInode::Symlink(input.bytes()?.to_vec()),
        3 => NewInode::Fifo,
        4 => NewInode::Socket,
        5 => NewInode::CharDevice(read_u32(input)?),
        6 => NewInode::BlockDevice(read_u32(input)?),
        code => return Err(CodecError::Code(code)),
    })
}

/// Bits that tell which attributes follow, in this order.
fn write_attrs(attrs: &Attrs, out: &mut Writer) {
    let numbers = [attrs.mode.map(u64::from), attrs.uid.map(u64::from), attrs.gid.map(u64::from), attrs.size];
    let times = [attrs.atime, attrs.mtime];
    let there = numbers.iter().map(Option::is_some).chain(times.iter().map(Option::is_some));
    out.byte(there.enumerate().fold(0, |bits, (bit, there)| bits | u8::from(there) << bit));
    numbers.into_iter().flatten().for_each(|number| {
        out.number(number);
    });
    times.into_iter().flatten().for_each(|time| {
        out.signed(time.0);
    });
}

fn read_attrs(input: &mut Reader<'_>) -> Result<Attrs, CodecError> {
    let bits = input.byte()?;
    // A bit that this version does not know stands for bytes that it can't pass over.
    if bits >= 1 << 6 {
        return Err(CodecError::Code(bits));
    }
    let there = |bit: u8| bits & 1 << bit != 0;
    Ok(Attrs {
        mode: there(0).then(|| read_u32(input)).transpose()?,
        uid: there(1).then(|| read_u32(input)).transpose()?,
        gid: there(2).then(|| read_u32(input)).transpose()?,
        size: there(3).then(|| input.number()).transpose()?,
        atime: there(4).then(|| input.signed().map(Time)).transpose()?,
        mtime: there(5).then(|| input.signed().map(Time)).transpose()?,
    })
}

/// Reads a name; one that no entry can have is refused as a number out of its bounds.
pub(super) fn read_name(input: &mut Reader<'_>) -> Result<FileName, CodecError> {
    FileName::new(input.bytes()?).map_err(|_: TreeError| CodecError::Number)
}

/// Reads a number that fits into 32 bits; else [`CodecError::Number`].
pub(super) fn read_u32(input: &mut Reader<'_>) -> Result<u32, CodecError> {
    u32::try_from(input.number()?).map_err(|_| CodecError::Number)
}

fn read_bool(input: &mut Reader<'_>) -> Result<bool, CodecError> {
    read_variant(&[false, true], input)
}

/// Reads a code that is a place in a list.
fn read_variant<T: Copy>(all: &[T], input: &mut Reader<'_>) -> Result<T, CodecError> {
    let code = input.byte()?;
    all.get(usize::from(code)).copied().ok_or(CodecError::Code(code))
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn the_format_says_which_codes_there_are() {
        let used = [
            (code::CREATE, "create"),
            (code::LINK, "link"),
            (code::UNLINK, "unlink"),
            (code::RMDIR, "rmdir"),
            (code::RENAME, "rename"),
            (code::SET_ATTR, "attributes"),
            (code::WRITE, "write"),
            (code::RANGE, "range"),
            (code::COPY, "copy"),
            (code::SET_XATTR, "set attribute"),
            (code::REMOVE_XATTR, "remove attribute"),
            (code::DROP, "drop"),
        ];
        let table = crate::object::format_tables::table("Operations on files");
        assert_eq!(table, used.map(|(code, name)| (code, name.to_owned())).into());
    }
}
