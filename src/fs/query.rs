//! `query`: one question a line, answered as the line is written.

use super::common::Place;
use super::conversation::Speech;
use super::errno::Failure;
use super::node::Fixed;
use crate::memory::{Error, Question};

/// What a line of `query` means.
pub(super) struct Query;

impl Speech for Query {
    type Request = Question;
    const CHANNEL: Fixed = Fixed::Query;

    fn parse(&self, line: &str) -> Result<Question, Failure> {
        Question::parse(line).map_err(|error| Error::from(error).into())
    }

    fn perform(&self, place: &Place, question: Question, number: usize) -> Result<String, Failure> {
        Ok(place.memory().ask(&place.view, &question)?.to_lines(number))
    }
}
