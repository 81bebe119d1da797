//! One memory: its content, who wrote it, its hash, and its form for readers.
//!
//! A [`Version`] never changes. What a reader sees of it is a function of the version alone.
//!
//! ```
//! use engramfs::object::Time;
//! use engramfs::record::{Provenance, RecordContent, Version, document_bytes, write_document};
//!
//! # fn main() -> Result<(), serde_json::Error> {
//! let content = RecordContent { vector: None, text: Some("green tea".into()), metadata: "{}".into() };
//! let stamp = Provenance {
//!     created: Time(0),
//!     modified: Time(0),
//!     branch: "main".into(),
//!     agent: "ann".into(),
//!     session: "".into(),
//!     task: "".into(),
//!     uid: 1000,
//!     vector_stale: false,
//! };
//! let version = Version::new("tea".into(), content, stamp);
//!
//! let mut document = Vec::new();
//! write_document(&mut document, &version);
//! let fields: serde_json::Value = serde_json::from_slice(&document)?;
//! assert_eq!(fields["text"], "green tea");
//! assert_eq!(document_bytes(version.json_bytes, false, None), document.len() as u64, "stat renders nothing");
//! assert_ne!(version.with_id("coffee".into()).hash, version.hash, "the hash covers the id");
//! # Ok(())
//! # }
//! ```

mod derived;
mod document;
mod float;
mod version;

pub use derived::{DerivedVector, text_hash};
pub use document::{EXPORT_LINE_FIXED_BYTES, document_bytes, json_bytes, write_document, write_export_line};
pub use float::{FLOAT_BYTES, vector_bytes};
pub use version::{ComputedFields, Provenance, RecordContent, TIME_KEYS, Version, filterable_metadata};
