//! Why an operation was refused, beyond what an error number can say.

use thiserror::Error;

use crate::memory::{Advice, Error as MemoryError, Kind, Time};

/// Why an operation was refused. What the store itself refuses is a [`MemoryError`]; the rest is about names, handles
/// and lines, which the store does not know.
#[derive(Debug, Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Memory(MemoryError),
    /// The store refuses a line of a batch.
    #[error("line {number}: {source}")]
    Line { number: usize, source: MemoryError },
    /// The layout of the tree forbids it.
    #[error(transparent)]
    Layout(#[from] LayoutRefusal),
    /// The caller may not, or nobody may.
    #[error(transparent)]
    Access(#[from] AccessRefusal),
    /// The bytes that were written are not taken.
    #[error(transparent)]
    Input(#[from] InputRefusal),
    #[error(transparent)]
    Space(#[from] SpaceRefusal),
    #[error("the mount ended while this temporary was there, and it was in RAM only")]
    TemporaryLost,
    #[error("{path} was merged into {parent} at {time}")]
    Merged { path: String, parent: String, time: Time },
    #[error("{path} was discarded at {time}")]
    Discarded { path: String, time: Time },
}

impl<E: Into<MemoryError>> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal::Memory(error.into())
    }
}

impl Refusal {
    /// Returns kind, code and hint: what a caller can act on.
    pub fn advice(&self) -> Advice {
        match self {
            Refusal::Memory(error) | Refusal::Line { source: error, .. } => error.advice(),
            Refusal::Layout(error) => error.advice(),
            Refusal::Access(error) => error.advice(),
            Refusal::Input(error) => error.advice(),
            Refusal::Space(error) => error.advice(),
            Refusal::Merged { parent, .. } => {
                Advice::new(Kind::Gone, "gone", format!("go on in {parent}, or fork it again"))
            }
            Refusal::TemporaryLost => {
                Advice::new(Kind::Gone, "temporary_lost", "rename temporaries to ID.json before the end of the mount")
            }
            Refusal::Discarded { .. } => Advice::new(Kind::Gone, "gone", "fork its parent again"),
        }
    }

    /// Returns the kind of the error, from which the errno follows.
    pub fn kind(&self) -> Kind {
        self.advice().kind
    }
}

/// What the layout of the tree forbids.
#[derive(Debug, Error)]
pub(super) enum LayoutRefusal {
    #[error("files are made in files/ and vectors/ only")]
    NoFileHere,
    #[error("no directory can be made here")]
    NoDirectoryHere,
    #[error("this kind of file is made in files/ only")]
    NoSpecialHere,
    #[error("hard links can't be made outside files/")]
    OneName,
    #[error("{0} is a fixed part of the tree")]
    Fixed(String),
    #[error("the checkpoint {0} can be neither renamed nor replaced")]
    CheckpointStays(String),
    #[error("the file is generated")]
    Generated { hint: &'static str },
    #[error("its owner and permissions are fixed")]
    FixedAttributes,
    #[error("a branch is given to another user by root alone, and its group follows")]
    BranchOwner,
    #[error("files/ belongs to the branch's owner")]
    FilesOwner,
    #[error("the branch that is mounted can't end while it is")]
    Mounted,
    #[error("names can't be exchanged or whited out")]
    Exchange,
    #[error("names can't be whited out")]
    Whiteout,
    #[error("the name is no UTF-8")]
    NameNotUtf8,
    #[error("the record name is not valid UTF-8")]
    RecordNotUtf8,
    #[error("{0} is the name of neither a record nor a temporary")]
    NotARecordsName(String),
    #[error("{0} can't be moved there")]
    Rename(String),
    #[error("a record or signal can't be cut without opening it")]
    Truncate,
    #[error("a file is open in {0} with bytes that are not committed")]
    Uncommitted(String),
}

impl LayoutRefusal {
    fn advice(&self) -> Advice {
        let fixed = |hint| Advice::new(Kind::NotPermitted, "not_permitted", hint);
        match self {
            LayoutRefusal::NoFileHere => fixed("write the file there"),
            LayoutRefusal::NoDirectoryHere => {
                fixed("use mkdir in branches/ for a fork, in checkpoints/ for a checkpoint, or in files/")
            }
            LayoutRefusal::NoSpecialHere => fixed("make it in files/"),
            LayoutRefusal::OneName => fixed("write a copy, or link within files/"),
            LayoutRefusal::Fixed(_) => fixed("leave it; rmdir of the branch's directory discards the branch"),
            LayoutRefusal::CheckpointStays(_) => fixed(
                "take a new one with mkdir in checkpoints/, of the branch as it is now; rmdir deletes the old one",
            ),
            LayoutRefusal::Generated { hint } => fixed(hint),
            LayoutRefusal::FixedAttributes => fixed("change the permissions of the branch's directory"),
            LayoutRefusal::BranchOwner => fixed("fork it: the fork belongs to you; or ask root: chown UID DIRECTORY"),
            LayoutRefusal::FilesOwner => fixed("change the owner of what is in it"),
            LayoutRefusal::Mounted => fixed("write promote: the branch lives on"),
            LayoutRefusal::Exchange => Advice::new(Kind::Invalid, "bad_flags", "rename without these flags"),
            LayoutRefusal::Whiteout => Advice::new(Kind::Invalid, "bad_flags", "rename without this flag"),
            LayoutRefusal::NameNotUtf8 | LayoutRefusal::RecordNotUtf8 => {
                Advice::new(Kind::Invalid, "not_utf8", "choose another name")
            }
            LayoutRefusal::NotARecordsName(_) => Advice::new(
                Kind::Invalid,
                "not_a_record_name",
                "call a record ID.json, as in vectors/note-1.json; put other files into files/",
            ),
            LayoutRefusal::Rename(_) => Advice::new(
                Kind::Invalid,
                "bad_rename",
                "move it to its parent's directory under its own name to merge it, or within branches/ to rename it",
            ),
            LayoutRefusal::Truncate => {
                Advice::new(Kind::Invalid, "truncate", "open the file and write the whole document")
            }
            LayoutRefusal::Uncommitted(_) => {
                Advice::new(Kind::Busy, "uncommitted_bytes", "close the file that is being written, then try again")
            }
        }
    }
}

/// What the caller may not do, or nobody.
#[derive(Debug, Error)]
pub(super) enum AccessRefusal {
    #[error("the store takes no changes any more, since it could not be written")]
    StoreFailed,
    #[error("the mount is read-only")]
    ReadOnlyMount,
    #[error("the checkpoint {0} never changes")]
    Checkpoint(String),
    #[error("what the branch was behind entry {0} never changes")]
    EarlierState(u64),
    #[error("what was proposed by entry {0} never changes")]
    Proposal(u64),
    #[error("{path} takes no changes from uid {uid}")]
    NotWritable { path: String, uid: u32 },
    #[error("{path} is closed to uid {uid}")]
    Closed { path: String, uid: u32 },
    #[error("{path} belongs to uid {owner}, and you are uid {uid}")]
    NotOwner { path: String, owner: u32, uid: u32 },
    #[error("uid {uid} can't reach the root branch '{name}' in this mount")]
    Scope { uid: u32, name: String },
}

impl AccessRefusal {
    fn advice(&self) -> Advice {
        match self {
            AccessRefusal::StoreFailed => {
                Advice::new(Kind::ReadOnly, "read_only", "look at the mount's log, then mount it anew")
            }
            AccessRefusal::ReadOnlyMount => Advice::new(Kind::ReadOnly, "read_only", "mount it without --read-only"),
            AccessRefusal::Checkpoint(_) => Advice::new(
                Kind::ReadOnly,
                "checkpoint",
                "write to the branch, or fork from the checkpoint: fork NAME from LABEL",
            ),
            AccessRefusal::EarlierState(_) => Advice::new(
                Kind::ReadOnly,
                "earlier_state",
                "write to the branch, or fork from that state: fork NAME from ENTRY",
            ),
            AccessRefusal::Proposal(_) => Advice::new(
                Kind::ReadOnly,
                "proposal",
                "have its owner change the branch and propose again; write approve or refuse to the parent's ctl",
            ),
            AccessRefusal::NotWritable { .. } => {
                Advice::new(Kind::Denied, "parent_not_writable", "ask its owner to merge, or for write permission")
            }
            AccessRefusal::Closed { .. } => {
                Advice::new(Kind::Denied, "branch_closed", "ask its owner for access to its directory")
            }
            AccessRefusal::NotOwner { .. } => {
                Advice::new(Kind::Denied, "not_owner", "ask its owner, or fork it and work there")
            }
            AccessRefusal::Scope { .. } => {
                Advice::new(Kind::Denied, "scope_not_reached", "leave it out of scope, or ask its owner for access")
            }
        }
    }
}

/// What is wrong with the bytes that were written to a control file or a record.
#[derive(Debug, Error)]
pub(super) enum InputRefusal {
    #[error("the line is no UTF-8")]
    LineNotUtf8,
    #[error("what was written is no number")]
    NoNumber,
    #[error("the value is no UTF-8")]
    ValueNotUtf8,
    #[error("{line:?} is no verb of ctl with its arguments")]
    Verb { line: String, usage: String },
    #[error("line {0} is incomplete")]
    Incomplete(usize),
    #[error("nothing can be appended to a record")]
    Append,
    #[error("the text covers only the beginning of the document that is there")]
    TextInDocument,
    #[error("the batch is larger than 1 GiB")]
    BatchTooLarge,
    #[error("the line is longer than {0} MiB")]
    LineTooLong(usize),
    #[error("the value is longer than {0} KiB")]
    ValueTooLong(usize),
    #[error("another request of this handle is being answered")]
    HandleBusy,
    #[error("the time is before 1677-09-21 or after 2262-04-11")]
    TimeOutOfRange,
}

impl InputRefusal {
    fn advice(&self) -> Advice {
        match self {
            InputRefusal::LineNotUtf8 | InputRefusal::ValueNotUtf8 => {
                Advice::new(Kind::Invalid, "not_utf8", "write text in UTF-8")
            }
            InputRefusal::NoNumber => {
                Advice::new(Kind::Invalid, "no_number", "write the id of an entry, in digits alone")
            }
            InputRefusal::Verb { usage, .. } => Advice::new(Kind::Invalid, "bad_verb", usage.clone()),
            InputRefusal::Incomplete(_) => {
                Advice::new(Kind::Invalid, "incomplete", "write the rest of the line, then close")
            }
            InputRefusal::Append => {
                Advice::new(Kind::Invalid, "append", "write the whole text with >, or several records by >> ingest")
            }
            InputRefusal::TextInDocument => {
                Advice::new(Kind::Invalid, "text_in_document", "open the file with O_TRUNC, or write a document")
            }
            InputRefusal::BatchTooLarge => {
                Advice::new(Kind::TooLarge, "batch_too_large", "write it in several parts, each with a close or fsync")
            }
            InputRefusal::LineTooLong(_) => {
                Advice::new(Kind::TooLarge, "line_too_long", "end each line with a line feed")
            }
            InputRefusal::ValueTooLong(_) => Advice::new(Kind::TooLarge, "value_too_long", "write a shorter one"),
            InputRefusal::TimeOutOfRange => Advice::new(
                Kind::Invalid,
                "time_out_of_range",
                "set a time in nanoseconds since 1970 that 64 bits hold",
            ),
            InputRefusal::HandleBusy => Advice::new(
                Kind::Busy,
                "busy_handle",
                "wait for the answer, or open the file again for a conversation of its own",
            ),
        }
    }
}

/// What there is no room for.
#[derive(Debug, Error)]
pub(super) enum SpaceRefusal {
    #[error("{length} bytes are asked for and the store's disk has {available}")]
    Disk { length: u64, available: u64 },
    #[error("scratch/ holds no more than {0} bytes")]
    Scratch(u64),
    #[error("the temporaries in vectors/ take more than 64 MiB")]
    Temporaries,
    #[error("the extended attributes of one file take at most 1 MiB")]
    Attributes,
    #[error("{0} MiB of answers wait to be read")]
    UnreadAnswers(usize),
    #[error("the last answer was longer than {0} MiB and was not kept")]
    AnswerNotKept(usize),
}

impl SpaceRefusal {
    fn advice(&self) -> Advice {
        match self {
            SpaceRefusal::Disk { .. } => {
                Advice::new(Kind::Full, "disk", "free space on the store's disk, or ask for less")
            }
            SpaceRefusal::Scratch(_) => {
                Advice::new(Kind::Full, "scratch_full", "remove files from scratch/, or raise config/scratch_size")
            }
            SpaceRefusal::Temporaries => {
                Advice::new(Kind::Full, "temporaries_full", "remove those that are not needed")
            }
            SpaceRefusal::Attributes => {
                Advice::new(Kind::Full, "attributes_full", "remove attributes of the file, or keep the value in a file")
            }
            SpaceRefusal::UnreadAnswers(_) => {
                Advice::new(Kind::Full, "unread_answers", "read the answers before asking on")
            }
            SpaceRefusal::AnswerNotKept(_) => Advice::new(
                Kind::TooLarge,
                "answer_not_kept",
                "ask and read by one handle: exec 3<>query; echo … >&3; cat <&3",
            ),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::fs::errno::{Errno, Failure};
    use crate::memory::Error;

    fn text() -> String {
        "x".into()
    }

    /// Returns one refusal of each variant, but for those of the store.
    fn samples() -> Vec<Refusal> {
        let mut all = vec![
            Refusal::Memory(Error::Gone),
            Refusal::Line { number: 1, source: Error::Gone },
            Refusal::TemporaryLost,
            Refusal::Merged { path: text(), parent: "main".into(), time: Time(0) },
            Refusal::Discarded { path: text(), time: Time(0) },
        ];
        all.extend(of_layout().map(Refusal::from));
        all.extend(of_access().map(Refusal::from));
        all.extend(of_input().map(Refusal::from));
        all.extend(of_space().map(Refusal::from));
        all
    }

    fn of_layout() -> [LayoutRefusal; 19] {
        [
            LayoutRefusal::NoFileHere,
            LayoutRefusal::NoDirectoryHere,
            LayoutRefusal::NoSpecialHere,
            LayoutRefusal::OneName,
            LayoutRefusal::Fixed(text()),
            LayoutRefusal::CheckpointStays(text()),
            LayoutRefusal::Generated { hint: "write to vectors/" },
            LayoutRefusal::FixedAttributes,
            LayoutRefusal::BranchOwner,
            LayoutRefusal::FilesOwner,
            LayoutRefusal::Mounted,
            LayoutRefusal::Exchange,
            LayoutRefusal::Whiteout,
            LayoutRefusal::NameNotUtf8,
            LayoutRefusal::RecordNotUtf8,
            LayoutRefusal::NotARecordsName(text()),
            LayoutRefusal::Rename(text()),
            LayoutRefusal::Truncate,
            LayoutRefusal::Uncommitted(text()),
        ]
    }

    fn of_access() -> [AccessRefusal; 9] {
        [
            AccessRefusal::StoreFailed,
            AccessRefusal::ReadOnlyMount,
            AccessRefusal::Checkpoint(text()),
            AccessRefusal::EarlierState(1),
            AccessRefusal::Proposal(1),
            AccessRefusal::NotWritable { path: text(), uid: 1 },
            AccessRefusal::Closed { path: text(), uid: 1 },
            AccessRefusal::NotOwner { path: text(), owner: 1, uid: 2 },
            AccessRefusal::Scope { uid: 1, name: text() },
        ]
    }

    fn of_input() -> [InputRefusal; 12] {
        [
            InputRefusal::LineNotUtf8,
            InputRefusal::NoNumber,
            InputRefusal::ValueNotUtf8,
            InputRefusal::Verb { line: text(), usage: "write gc".into() },
            InputRefusal::Incomplete(1),
            InputRefusal::Append,
            InputRefusal::TextInDocument,
            InputRefusal::BatchTooLarge,
            InputRefusal::LineTooLong(1),
            InputRefusal::ValueTooLong(1),
            InputRefusal::HandleBusy,
            InputRefusal::TimeOutOfRange,
        ]
    }

    fn of_space() -> [SpaceRefusal; 6] {
        [
            SpaceRefusal::Disk { length: 2, available: 1 },
            SpaceRefusal::Scratch(1),
            SpaceRefusal::Temporaries,
            SpaceRefusal::Attributes,
            SpaceRefusal::UnreadAnswers(1),
            SpaceRefusal::AnswerNotKept(1),
        ]
    }

    /// Programs go by these pairs: a change of one breaks what people wrote.
    const CODES: &str = "\
answer_not_kept TooLarge
append Invalid
attributes_full Full
bad_flags Invalid
bad_rename Invalid
bad_verb Invalid
batch_too_large TooLarge
branch_closed Denied
busy_handle Busy
checkpoint ReadOnly
disk Full
earlier_state ReadOnly
gone Gone
incomplete Invalid
line_too_long TooLarge
no_number Invalid
not_a_record_name Invalid
not_owner Denied
not_permitted NotPermitted
not_utf8 Invalid
parent_not_writable Denied
proposal ReadOnly
read_only ReadOnly
scope_not_reached Denied
scratch_full Full
temporaries_full Full
temporary_lost Gone
text_in_document Invalid
time_out_of_range Invalid
truncate Invalid
uncommitted_bytes Busy
unread_answers Full
value_too_long TooLarge";

    #[test]
    fn codes_and_kinds_of_refusals_are_those_of_the_contract() {
        let found = samples().into_iter().map(|refusal| refusal.advice());
        let mut found: Vec<String> = found.map(|advice| format!("{} {:?}", advice.code, advice.kind)).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.join("\n"), CODES);
    }

    #[test]
    fn a_refusal_says_what_happened_and_its_hint_what_to_do_next() {
        for refusal in samples() {
            let (text, hint) = (refusal.to_string(), refusal.advice().hint);
            assert!(!text.is_empty() && !hint.is_empty() && !text.contains(&*hint), "{text}; {hint}");
        }
        for plain in [Errno::ESTALE, Errno::ENOMEM, Errno::ENOENT, Errno(9999)] {
            let line: Value = serde_json::from_str(&Failure::from(plain).to_line()).unwrap();
            let [text, hint] = ["message", "hint"].map(|key| line[key].as_str().unwrap());
            assert!(text.len() > 20 && hint.len() > 20 && !text.contains(hint), "{line}");
            assert_eq!((&line["errno"], &line["code"]), (&plain.name().into(), &plain.name().into()));
        }
    }
}
