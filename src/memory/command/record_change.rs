//! Changes of records as log records hold them, and what comes to a shared log.

use std::sync::Arc;

use crate::memory::catalog::shared_log::{SharedLogCursor, SharedLogTotals};
use crate::object::{CodecError, Reader, Writer};
use crate::record::RecordContent;

/// One change of a record, or of how far the shared log is read, as a log record holds it.
#[derive(Clone, Debug)]
pub enum RecordChange {
    /// A new version; its provenance follows from the command.
    Put {
        /// The record's id, a new one or that of an older version.
        id: Arc<str>,
        /// Vector, text and metadata of the whole version, also where little of it changed.
        content: RecordContent,
        /// Whether its text is newer than its vector, so that a reader knows that the vector may not fit it.
        vector_stale: bool,
        /// The record whose `created` it keeps, beside its own.
        created_from: Option<Arc<str>>,
    },
    /// The record goes; where there is none with that id nothing changes.
    Delete {
        /// The id, under which there may be nothing.
        id: Arc<str>,
    },
    /// The branch has read its shared log so far from then on, by the same entry as the records.
    Cursor(SharedLogCursor),
}

/// What an append adds to a shared log.
#[derive(Clone, Debug)]
pub struct SharedLogAppend {
    /// What the log holds with them, counted when they were appended; a replay takes it as it is.
    pub totals: SharedLogTotals,
    /// The entries, and what is remembered of their `event_id`s.
    pub changes: Vec<RecordChange>,
}

impl RecordChange {
    /// Returns the id of the record that it is about; `None` for a cursor.
    pub fn id(&self) -> Option<&Arc<str>> {
        match self {
            RecordChange::Put { id, .. } | RecordChange::Delete { id } => Some(id),
            RecordChange::Cursor(_) => None,
        }
    }
}

impl SharedLogAppend {
    /// Appends the stored form: the totals, how many changes there are, and each of them.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        self.totals.write(out).number(self.changes.len() as u64);
        self.changes.iter().for_each(|change| change.write(out));
        out
    }

    /// Reads the stored form back. [`CodecError::Short`] if the bytes end before, [`CodecError::Text`] for a text that
    /// is not UTF-8.
    pub fn read(input: &mut Reader<'_>) -> Result<SharedLogAppend, CodecError> {
        let totals = SharedLogTotals::read(input)?;
        let changes = (0..input.length()?).map(|_| RecordChange::read(input)).collect::<Result<_, _>>()?;
        Ok(SharedLogAppend { totals, changes })
    }
}

/// The bits of the byte with which a stored change begins; 0 is a delete.
mod flag {
    /// A version follows; without this bit the record is deleted.
    pub const PUT: u8 = 1;
    /// It has a vector: little-endian f32, behind the id.
    pub const VECTOR: u8 = 2;
    /// It has a text, behind the vector.
    pub const TEXT: u8 = 4;
    /// The id of the record whose `created` it keeps follows the text.
    pub const FROM: u8 = 8;
    /// Its text is newer than its vector; nothing follows.
    pub const VECTOR_STALE: u8 = 16;
    /// Stands alone: a cursor follows, and no id.
    pub const CURSOR: u8 = 32;
}

impl RecordChange {
    /// Appends the stored form: its flags first, which say what follows.
    pub fn write(&self, out: &mut Writer) {
        match self {
            RecordChange::Delete { id } => {
                out.byte(0).text(id);
            }
            RecordChange::Cursor(cursor) => {
                cursor.write(out.byte(flag::CURSOR));
            }
            RecordChange::Put { id, content, vector_stale, created_from } => {
                let on = |there: bool, flag: u8| if there { flag } else { 0 };
                let has = on(content.vector.is_some(), flag::VECTOR) | on(content.text.is_some(), flag::TEXT);
                let has = has | on(*vector_stale, flag::VECTOR_STALE) | on(created_from.is_some(), flag::FROM);
                out.byte(flag::PUT | has).text(id);
                if let Some(vector) = &content.vector {
                    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
                    out.bytes(&bytes);
                }
                content.text.iter().chain(created_from).for_each(|text| {
                    out.text(text);
                });
                out.text(&content.metadata);
            }
        }
    }

    /// Reads the stored form back. Content and id are taken as they are: they were checked before they were written.
    /// Fails like [`SharedLogAppend::read`].
    pub fn read(input: &mut Reader<'_>) -> Result<RecordChange, CodecError> {
        let flags = input.byte()?;
        if flags == flag::CURSOR {
            return Ok(RecordChange::Cursor(SharedLogCursor::read(input)?));
        }
        let id = input.text()?.into();
        if flags & flag::PUT == 0 {
            return Ok(RecordChange::Delete { id });
        }
        let vector = if flags & flag::VECTOR == 0 { None } else { Some(read_vector(input.bytes()?)) };
        let mut text = |flag: u8| -> Result<Option<Arc<str>>, CodecError> {
            if flags & flag == 0 { Ok(None) } else { Ok(Some(input.text()?.into())) }
        };
        let (text, created_from) = (text(flag::TEXT)?, text(flag::FROM)?);
        let content = RecordContent { vector, text, metadata: input.text()?.into() };
        Ok(RecordChange::Put { id, content, vector_stale: flags & flag::VECTOR_STALE != 0, created_from })
    }
}

fn read_vector(bytes: &[u8]) -> Arc<[f32]> {
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap_or_default());
    bytes.chunks_exact(4).map(number).collect()
}
