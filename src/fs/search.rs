//! `search/<text>`: a question in a name.

use super::common::Place;
use super::errno::Failure;
use crate::memory::{Error, Question};

/// Asks a text question in the name of who opened the file, and returns the answer.
pub(super) fn answer(place: &Place, text: &str) -> Result<Vec<u8>, Failure> {
    let question = Question::of_text(text).map_err(Error::from)?;
    Ok(place.memory().ask_for(place.caller.uid, &place.view, &question)?.to_lines(0).into_bytes())
}
