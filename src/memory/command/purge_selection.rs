//! What a purge takes out, as the log holds it.

use std::sync::Arc;

use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// What goes: by name below one root branch, and by content everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeSelection {
    /// Ids of records, and paths of files with `files/` in front.
    pub items: Vec<Arc<str>>,
    /// Hashes of versions of records, which go from all branches, whatever id they have there.
    pub records: Vec<Hash>,
    /// Hashes of contents of files, which go from all branches, whatever path they have there.
    pub contents: Vec<Hash>,
    /// When files were made, which no two files of a store share: those go under former names, too.
    pub births: Vec<Time>,
}

impl PurgeSelection {
    /// Returns the ids among the items: they have no slash in them.
    pub fn ids(&self) -> Vec<Arc<str>> {
        self.items.iter().filter(|item| !item.contains('/')).cloned().collect()
    }

    /// Returns the paths among the items, without `files/` in front.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        let path = |item: &Arc<str>| item.strip_prefix("files/").map(|path| path.as_bytes().to_vec());
        self.items.iter().filter_map(path).collect()
    }

    /// Appends the stored bytes: four lists, each behind its length.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        out.number(self.items.len() as u64);
        self.items.iter().fold(&mut *out, |out, item| out.text(item));
        for hashes in [&self.records, &self.contents] {
            out.number(hashes.len() as u64);
            hashes.iter().fold(&mut *out, |out, hash| out.hash(hash));
        }
        out.number(self.births.len() as u64);
        self.births.iter().fold(out, |out, birth| out.signed(birth.0))
    }

    /// Reads stored bytes. [`CodecError::Short`] if the bytes end before, [`CodecError::Text`] for an item that is not
    /// UTF-8.
    pub fn read(input: &mut Reader<'_>) -> Result<PurgeSelection, CodecError> {
        let items = (0..input.length()?).map(|_| input.text().map(Arc::from)).collect::<Result<_, _>>()?;
        let mut hashes = || (0..input.length()?).map(|_| input.hash()).collect::<Result<Vec<Hash>, _>>();
        let (records, contents) = (hashes()?, hashes()?);
        let births = (0..input.length()?).map(|_| input.signed().map(Time)).collect::<Result<_, _>>()?;
        Ok(PurgeSelection { items, records, contents, births })
    }
}
