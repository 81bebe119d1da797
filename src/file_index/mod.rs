//! The index of files: which passages of which contents hold which words, and their vectors where there is an
//! embedder.
//!
//! It is one index for the whole store. What is indexed are contents: each distinct one once, whatever branches and paths
//! have it, in immutable segments as Lucene's, in memory at first and in files later. What a branch sees of it is a
//! [`VisibleFiles`]: a value that follows the branch's tree by its differences, so that a fork shares all of it.
//! [`PermittedFiles`] is what one caller may read of that.
//!
//! All of it is derived from the files: what is missing or damaged is made again, and the text of an answer is read from the
//! file. Nothing here knows of branches, queries or threads.
//!
//! A segment of the index fails with a [`SegmentError`](crate::segment::SegmentError) as all segments do, and is broken from
//! then on ([`IndexSegment::is_broken`]): look-ups pass over it, and its contents count as not indexed.
//!
//! ```
//! use engramfs::file_index::{Syntax, split_passages};
//!
//! let text = "# Tea\n\nGreen, 80 degrees.\n";
//! let found = split_passages(text, Syntax::from_file_name(b"tea.md"));
//! assert_eq!(found[0].line, 1);
//! assert!(found.iter().any(|passage| passage.indexed_text(text).contains("80 degrees")));
//! assert!(split_passages("\n\n", Syntax::Plain).is_empty(), "blank lines belong to none");
//! ```

mod access;
mod builder;
mod content;
mod derived;
mod index_segment;
mod passage;
mod permitted;
mod visible;

#[cfg(test)]
mod tests;

pub use access::{Credentials, ListedPaths};
pub use builder::{IndexOutcome, index_contents, merge_segments};
pub use content::{INDEXED_BYTES_MAX, IndexKey, IndexableContent};
pub use index_segment::{IndexSegment, PassageLocation};
pub use passage::{PASSAGE_BYTES_MAX, Passage, PassageKey, Syntax, split_passages};
pub use permitted::{FilePath, PermittedFiles};
pub use visible::{HiddenPaths, SegmentSet, VisibleFiles, VisiblePart};
