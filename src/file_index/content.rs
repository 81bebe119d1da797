//! The content of a file as it is indexed: its key, and its text where it has one.

use super::passage::Syntax;
use crate::object::{Context, Hash, Hasher};
use crate::workspace::{FileContent, FileNode, Packs, TreeError};

/// Bytes of a file that are indexed; what is behind them is not found.
pub const INDEXED_BYTES_MAX: usize = 4 << 20;
/// Bytes at the beginning that tell a text from other files.
const TEXT_PROBE_BYTES: usize = 64 << 10;
static KEY_CONTEXT: Context = Context::new("engramfs 2026 indexed content v1");

/// Names the content of a file together with how it is cut: files with one key have the same passages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IndexKey(pub Hash);

impl IndexKey {
    /// Bytes of a key, as index segments store it.
    pub(super) const BYTES: usize = size_of::<Hash>();

    fn new(content: &FileContent, syntax: Syntax) -> IndexKey {
        let mut hasher = Hasher::new(&KEY_CONTEXT);
        hasher.update(&content.hash().0);
        hasher.update(&[u8::from(syntax == Syntax::Markdown)]);
        IndexKey(hasher.finish())
    }
}

/// The content of one file, and how it is cut. Files with one key need only one of these.
#[derive(Clone)]
pub struct IndexableContent {
    /// Made of the content's hash and the syntax, so a file that is renamed from `a.txt` to `a.md` is indexed anew.
    pub key: IndexKey,
    /// The bytes, shared with the tree.
    pub(super) content: FileContent,
    /// How it is cut into passages, by the names of its file.
    pub(super) syntax: Syntax,
}

impl IndexableContent {
    /// Returns the content of a file; `None` for other nodes. One of several names that is Markdown's is enough.
    pub fn from_node(node: &FileNode) -> Option<IndexableContent> {
        let content = node.content()?.clone();
        let mut names = node.names().map(|(_, name)| Syntax::from_file_name(name));
        let syntax = names.find(|syntax| *syntax == Syntax::Markdown).unwrap_or(Syntax::Plain);
        Some(IndexableContent { key: IndexKey::new(&content, syntax), content, syntax })
    }

    /// Returns how many bytes indexing reads of it at most: its size, or [`INDEXED_BYTES_MAX`] where that is less.
    pub fn bytes(&self) -> u64 {
        self.content.size().min(INDEXED_BYTES_MAX as u64)
    }

    /// Reads the text, its first 4 MiB; `None` if it is none: with a zero byte in its first 64 KiB, or not UTF-8. Fails
    /// if a chunk can't be read or is not what was written.
    pub(super) fn text(&self, packs: &dyn Packs) -> Result<Option<String>, TreeError> {
        let mut bytes = self.content.read(0, TEXT_PROBE_BYTES, packs)?;
        if bytes.contains(&0) {
            return Ok(None);
        }
        if self.content.size() > TEXT_PROBE_BYTES as u64 {
            bytes.extend(self.content.read(TEXT_PROBE_BYTES as u64, INDEXED_BYTES_MAX - TEXT_PROBE_BYTES, packs)?);
        }
        let is_cut = self.content.size() > bytes.len() as u64;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            // The limit may cut a character in two, which does not make the text before it less of a text.
            Err(error) if is_cut && error.utf8_error().error_len().is_none() => {
                let whole = error.utf8_error().valid_up_to();
                let mut bytes = error.into_bytes();
                bytes.truncate(whole);
                String::from_utf8(bytes).ok()
            }
            Err(_) => None,
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::object::Time;
    use crate::workspace::{FileName, FileOp, NewInode, NoPacks, ROOT, Tree};

    /// Returns how many bytes of a file are its text; nothing where it is none. It is so many letters with `end` behind them.
    fn text_bytes(letters: usize, end: &[u8]) -> Option<usize> {
        let mut tree = Tree::new(0o755, 0, 0, Time(0));
        let name = FileName::new(b"a").unwrap();
        let make = FileOp::Create { parent: ROOT, name, make: NewInode::File, mode: 0o644, uid: 0, gid: 0 };
        let inode = tree.apply(&make, Time(0), &NoPacks).unwrap().inode;
        let mut bytes = vec![b'x'; letters];
        bytes.extend_from_slice(end);
        tree.apply(&FileOp::Write { inode, offset: 0, bytes: bytes.into() }, Time(0), &NoPacks).unwrap();
        let content = IndexableContent::from_node(tree.node(inode).unwrap()).unwrap();
        content.text(&NoPacks).unwrap().map(|text| text.len())
    }

    #[test]
    fn the_first_4_mib_of_a_text_are_utf_8() {
        let limit = 4 << 20;
        assert_eq!(text_bytes(5, b"\xff"), None);
        assert_eq!(text_bytes(5, b"\xc3"), None, "half a character at the end of a file");
        assert_eq!(text_bytes(limit - 1, b"\xff"), None);
        assert_eq!(text_bytes(limit, b"\xff"), Some(limit), "what is behind them does not matter");
        assert_eq!(text_bytes(limit - 1, "é".as_bytes()), Some(limit - 1), "half a character at the limit");
    }
}
