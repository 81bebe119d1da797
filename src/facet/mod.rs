//! Facets: the index of one segment's metadata, which tells the rows that a filter can match.
//!
//! * [`value_at`] says what the key of a filter means in a record's metadata.
//! * [`FacetsWriter`] and [`Facets`] are the immutable index of one segment: bytes in, bytes out.
//! * [`RowSet`] is an answer: rows that match for certain, and rows that must be looked at. The
//!   two together never miss a row, through and, or, and not.
//!
//! For each path the distinct values are kept sorted, numbers and strings apart, values and
//! elements of lists apart; a value that many rows share has a bitmap, others have a list of rows.
//! What can't be kept in small space is left open and comes back as rows to look at: comparing
//! with lists and objects, the far end of long strings, elements of very long lists, and paths
//! beyond a number.
//!
//! This module uses nothing of ours: it knows rows, not records, and neither files nor filters.
//!
//! ```
//! use engramfs::facet::{Facets, FacetsWriter};
//! use serde_json::json;
//!
//! let mut out = FacetsWriter::new();
//! out.add(0, &json!({"kind": "note", "tags": ["tea", "work"]}));
//! out.add(1, &json!({"kind": "log"}));
//! let bytes = out.finish();
//!
//! let facets = Facets::open(&bytes).unwrap();
//! let notes = facets.rows_equal_to("kind", &json!("note"));
//! assert!(notes.certain.contains(0) && !notes.possible().contains(1));
//! assert!(facets.rows_equal_to("tags", &json!("work")).possible().contains(0), "an element of a list counts");
//! ```

mod column;
mod column_writer;
mod facets;
mod layout;
mod number;
mod path;
mod rows;
mod values;
mod writer;

#[cfg(test)]
mod tests;

pub use facets::{Bound, FacetError, Facets};
pub use path::value_at;
pub use rows::RowSet;
pub use writer::FacetsWriter;
