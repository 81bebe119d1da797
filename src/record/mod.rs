//! One memory: its content, who wrote it, its hash, and its form for readers.
//!
//! A [`Version`] never changes. What a reader sees of it is a function of the version alone.

mod derived;
mod document;
mod float;
mod version;

pub use derived::{DerivedVector, text_hash};
pub use document::{EXPORT_BYTES, document_bytes, json_bytes, write_document, write_export_line};
pub use float::{FLOAT_BYTES, vector_bytes};
pub use version::{Computed, Provenance, RecordContent, TIME_KEYS, Version, filterable};
