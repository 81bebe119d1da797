//! `search/<text>`: a query in a name.

use super::errno::Failure;
use super::mount_context::OpenContext;
use crate::memory::{Error, Query};

/// Asks a text query in the name of who opened the file, and returns the answer. Fails with the error of the query, or
/// of the search.
pub(super) fn answer(context: &OpenContext, text: &str) -> Result<Vec<u8>, Failure> {
    let query = Query::from_text(text).map_err(Error::from)?;
    Ok(context.memory().query_for(&context.credentials(), &context.view, &query)?.to_lines(0).into_bytes())
}
