//! Consecutive entries, stored together: what they have in common is written once, and of the hashes that link them only the
//! first, since the others follow from the entries.
//!
//! ```text
//!  prev hash of the first entry · key hash · rows
//!  row:    number of its shared fields · the fields, where the number is new · signature (64) · the rest of the entry
//!  fields: branch text · number · parent text? · number · agent, session, task texts · uid · base hash
//! ```

use super::{SharedFields, SignedEntry};
use crate::object::{CodecError, Reader, Writer};

/// Builds the bytes of a chunk, out of entries that follow each other and were signed with one key.
#[derive(Default)]
pub struct EntryChunkWriter {
    out: Writer,
    fields: Vec<SharedFields>,
    count: u64,
}

impl EntryChunkWriter {
    /// Appends the next entry, which follows the last one and is signed with the same key. Nobody checks that here: one
    /// that does not follow reads back with another hash.
    pub fn push(&mut self, signed: &SignedEntry) {
        if self.count == 0 {
            self.out.hash(&signed.entry.prev).hash(&signed.entry.key);
        }
        let fields = SharedFields::from_entry(&signed.entry);
        match self.fields.iter().position(|known| *known == fields) {
            Some(number) => {
                self.out.number(number as u64);
            }
            None => {
                self.out.number(self.fields.len() as u64);
                fields.write(&mut self.out);
                self.fields.push(fields);
            }
        }
        signed.write_unshared_fields(&mut self.out);
        self.count += 1;
    }

    /// Returns the number of entries. Without entries it has no bytes: the head is written with the first one.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the bytes so far, which are a whole chunk behind every [`EntryChunkWriter::push`].
    pub fn as_slice(&self) -> &[u8] {
        self.out.as_slice()
    }
}

/// Reads the entries of a chunk, the first of which has the number `seq`. Their hashes are worked out here, and their
/// signatures are not checked. [`CodecError::Number`] if an entry names fields that are not there yet.
pub fn read_entry_chunk(bytes: &[u8], mut seq: u64) -> Result<Vec<SignedEntry>, CodecError> {
    let mut input = Reader::new(bytes);
    let (mut prev, key) = (input.hash()?, input.hash()?);
    let (mut fields, mut entries) = (Vec::new(), Vec::new());
    while !input.is_empty() {
        let number = input.length()?;
        if number == fields.len() {
            fields.push(SharedFields::read(&mut input, key)?);
        }
        let shared = fields.get(number).ok_or(CodecError::Number)?;
        let signed = SignedEntry::read_unshared_fields(&mut input, shared, seq, prev)?;
        (prev, seq) = (signed.hash, seq + 1);
        entries.push(signed);
    }
    Ok(entries)
}
