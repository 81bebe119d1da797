//! Proposals: states that a branch offers to its parent, and what its approvers said of them.

use std::sync::{Arc, OnceLock};

use imbl::OrdMap;

use super::settings::{Setting, Settings};
use super::{Branch, BranchId, BranchRef, Catalog, Checkpoint};
use crate::memory::{Error, ProposalError};
use crate::object::{CodecError, Hash, Reader, Time, Writer};
use crate::workspace::Tree;

/// A state of a branch that is proposed for merging into its parent; later edits are not in it.
#[derive(Clone)]
pub struct Proposal {
    /// The frozen state, with the text of the proposal.
    pub frozen: Checkpoint,
    /// The last review of each user, by uid.
    pub reviews: OrdMap<u32, Review>,
    /// Cache of its files as reviewers see them, with the owner they were computed for; empty until somebody looks.
    shown: OnceLock<(u32, Tree)>,
}

/// What an approver said of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Whether the merge is approved of. A refusal stops it, whoever else approves.
    pub approves: bool,
    /// The hash of the plan: what is said counts for that plan alone.
    pub plan: Hash,
    /// The heads of the branch and of its parent then; a strict gate asks that both are still the same.
    pub heads: [Hash; 2],
    /// The time of its entry, from which it counts for 24 hours.
    pub time: Time,
    /// The reason that was given; may be empty.
    pub text: Arc<str>,
}

impl Proposal {
    /// Returns a proposal of which nobody has said anything.
    pub fn new(frozen: Checkpoint) -> Proposal {
        Proposal::with_reviews(frozen, OrdMap::new())
    }

    /// Returns a proposal with what was said of it.
    pub fn with_reviews(frozen: Checkpoint, reviews: OrdMap<u32, Review>) -> Proposal {
        Proposal { frozen, reviews, shown: OnceLock::new() }
    }

    /// Returns its files as all are shown them who may look at it, where `owner` has the branch: see
    /// [`Tree::for_reviewers`]. They are worked out once.
    pub fn shown_files(&self, owner: u32) -> Tree {
        let tree = || self.frozen.state.files().for_reviewers(self.frozen.base.files(), owner);
        let (known_owner, files) = self.shown.get_or_init(|| (owner, tree()));
        if *known_owner == owner { files.clone() } else { tree() }
    }
}

impl PartialEq for Proposal {
    fn eq(&self, other: &Proposal) -> bool {
        // What is shown follows from the frozen state.
        self.frozen == other.frozen && self.reviews == other.reviews
    }
}

impl Review {
    /// Appends the stored form: 1 for an approval or 0, plan, heads of branch and parent, time, text.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        let [child, parent] = &self.heads;
        out.byte(u8::from(self.approves)).hash(&self.plan).hash(child).hash(parent).signed(self.time.0).text(&self.text)
    }

    /// Reads the stored form. [`CodecError::Code`] if it neither approves nor refuses.
    pub fn read(input: &mut Reader<'_>) -> Result<Review, CodecError> {
        let approves = match input.byte()? {
            0 => false,
            1 => true,
            code => return Err(CodecError::Code(code)),
        };
        let (plan, heads, time) = (input.hash()?, [input.hash()?, input.hash()?], Time(input.signed()?));
        Ok(Review { approves, plan, heads, time, text: input.text()?.into() })
    }
}

impl Settings {
    /// Returns the uids of the approvers of merges into the branch; empty if none are set.
    pub fn approvers(&self) -> Vec<u32> {
        parse_approvers(self.get(Setting::Approvers)).unwrap_or_default()
    }
}

/// Parses `config/approvers`: `uid:N` for each, with line ends, blanks or commas between them.
pub(super) fn parse_approvers(text: &str) -> Option<Vec<u32>> {
    let words = text.split(|letter: char| letter == ',' || letter.is_whitespace()).filter(|word| !word.is_empty());
    words.map(|word| word.strip_prefix("uid:").unwrap_or(word).parse().ok()).collect()
}

impl Branch {
    /// Returns its proposal to the parent. [`ProposalError::Missing`] if it has none.
    pub fn current_proposal(&self) -> Result<&Proposal, Error> {
        self.proposal.as_deref().ok_or_else(|| ProposalError::Missing(self.path.to_string()).into())
    }

    /// Returns the proposal made by the entry with that number, unless a later one replaced it.
    pub fn proposal_at(&self, entry: u64) -> Option<&Proposal> {
        self.proposal.as_deref().filter(|proposal| proposal.frozen.seq == entry)
    }

    /// Returns the frozen states beside its present one: checkpoints and proposal.
    pub fn frozen_states(&self) -> impl Iterator<Item = &Checkpoint> {
        self.checkpoints.values().chain(self.proposal.iter().map(|proposal| &proposal.frozen))
    }
}

impl BranchRef {
    /// Puts others in the place of frozen states, where `change` has some. The first error of `change` ends it, and
    /// what was replaced before that stays so.
    pub fn replace_frozen<E>(
        &mut self,
        mut change: impl FnMut(&Checkpoint) -> Result<Option<Checkpoint>, E>,
    ) -> Result<(), E> {
        let labels: Vec<Arc<str>> = self.checkpoints.keys().cloned().collect();
        for label in labels {
            if let Some(changed) = change(&self.checkpoints[&label])? {
                self.make_mut().checkpoints.insert(label, changed);
            }
        }
        if let Some(proposal) = self.proposal.clone()
            && let Some(frozen) = change(&proposal.frozen)?
        {
            self.make_mut().proposal = Some(Arc::new(Proposal::with_reviews(frozen, proposal.reviews.clone())));
        }
        Ok(())
    }
}

impl Catalog {
    /// Returns a catalog in which a branch is as it proposes to be merged. Everything else is as in this one.
    /// [`ProposalError::Missing`] if it proposes nothing.
    pub fn with_proposed_state(&self, branch: BranchId) -> Result<Catalog, Error> {
        let frozen = self.branch(branch)?.current_proposal()?.frozen.clone();
        let mut catalog = self.clone();
        catalog.change(branch, |branch| (branch.state, branch.base) = (frozen.state, frozen.base));
        Ok(catalog)
    }
}

#[cfg(test)]
mod tests {
    use super::parse_approvers;

    #[test]
    fn approvers_are_uids_in_any_list() {
        assert_eq!(parse_approvers("uid:1001\nuid:1002"), Some(vec![1001, 1002]));
        assert_eq!(parse_approvers("uid:1, 2"), Some(vec![1, 2]));
        assert_eq!(parse_approvers(""), Some(vec![]));
        assert_eq!(parse_approvers("ann"), None);
    }
}
