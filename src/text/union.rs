//! Going through the posting lists of a whole query at once.

use super::postings::{PostingList, Postings};

/// Every row of one index that holds at least one of a query's terms, ascending, each once.
///
/// For scoring with a [`Scorer`](super::Scorer). How many visible rows hold a term, which a scorer
/// must know before, is cheaper counted list by list: [`PostingList::documents`] where no row is
/// hidden, and by going through the list otherwise.
#[derive(Clone, Debug)]
pub struct Union<'a> {
    /// Each term's list with the posting it is at; none once it has ended, or when the index lacks the term.
    lists: Vec<Option<(PostingList<'a>, (u32, u32))>>,
    counts: Vec<u32>,
}

impl<'a> Union<'a> {
    /// Makes the union over `terms`.
    pub fn new(postings: &Postings<'a>, terms: &[Box<str>]) -> Self {
        let lists = terms.iter().map(|term| {
            let mut list = postings.term(term)?;
            let first = list.next()?;
            Some((list, first))
        });
        Self { lists: lists.collect(), counts: vec![0; terms.len()] }
    }

    /// Returns the next row that is `from` or above, with how often it holds each term, and goes past it.
    ///
    /// Nothing when no such row is left. `from` 0 gives row after row; a caller that sees few rows
    /// names the next of them, and what lies between is leapt over.
    pub fn seek(&mut self, from: u32) -> Option<(u32, &[u32])> {
        let mut least: Option<u32> = None;
        for slot in &mut self.lists {
            if let Some((list, posting)) = slot
                && posting.0 < from
            {
                match list.seek(from) {
                    Some(found) => *posting = found,
                    None => *slot = None,
                }
            }
            if let Some((_, (row, _))) = slot {
                least = Some(least.map_or(*row, |least| least.min(*row)));
            }
        }
        let row = least?;
        for (slot, held) in self.lists.iter_mut().zip(&mut self.counts) {
            *held = 0;
            if let Some((list, posting)) = slot
                && posting.0 == row
            {
                *held = posting.1;
                match list.next() {
                    Some(next) => *posting = next,
                    None => *slot = None,
                }
            }
        }
        Some((row, &self.counts))
    }
}
