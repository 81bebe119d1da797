//! Proposing a branch's state to its parent, taking that back, and what approvers say of it.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::{BranchId, CatalogChange, Checkpoint, Review};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Actor, Error, Memory, MergeError, ProposalError};
use crate::object::{CodecError, Hash, Reader, Time, Writer};

/// Bytes of the longest text about a proposal; a longer one is `ProposalError::TooLong`.
const TEXT_BYTES_MAX: usize = 4096;

/// An approver's verdict on a proposal. It replaces their earlier one.
#[derive(Clone, Copy, Debug)]
pub struct ReviewRequest<'a> {
    /// The name of the proposing branch, a child of the one that is asked.
    pub name: &'a str,
    /// The hash of the plan under review. If the plan has changed since, the review is refused.
    pub plan: Hash,
    /// True to approve, false to reject.
    pub approves: bool,
    /// The reason, up to 4 KiB; may be empty.
    pub text: &'a str,
}

/// A branch proposes its state to its parent, in place of what it proposed before.
#[derive(Debug)]
pub(super) struct Propose {
    /// The branch that proposes; its parent is asked.
    pub branch: BranchId,
    /// What is said about it; empty for nothing.
    pub text: Arc<str>,
}

/// A branch proposes nothing any longer.
#[derive(Debug)]
pub(super) struct Withdraw(pub BranchId);

/// Somebody says what a branch should do with what a branch below it proposes, in place of what they said before. Whether
/// they may is checked before.
#[derive(Debug)]
pub(super) struct ReviewProposal {
    /// The branch that would receive the merge.
    pub parent: BranchId,
    /// The branch that proposes.
    pub child: BranchId,
    /// What is said, and of which plan.
    pub review: Review,
}

pub(super) const PROPOSE: CommandSpec = CommandSpec {
    code: 56,
    name: "propose",
    read: |input| Ok(Box::new(Propose { branch: BranchId::read(input)?, text: input.text()?.into() })),
};

pub(super) const WITHDRAW: CommandSpec =
    CommandSpec { code: 57, name: "withdraw", read: |input| Ok(Box::new(Withdraw(BranchId::read(input)?))) };

pub(super) const REVIEW: CommandSpec =
    CommandSpec { code: 58, name: "review", read: |input| Ok(Box::new(ReviewProposal::read(input)?)) };

impl Command for Propose {
    fn spec(&self) -> &'static CommandSpec {
        &PROPOSE
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.branch.0).text(&self.text);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.branch)?;
        let frozen = Checkpoint::from_branch(branch, &self.text, log_record.time);
        let detail = Detail { text: nonempty_text(&self.text), ..Detail::default() };
        let prepared = prepare_on_branch(context.catalog, log_record, branch, EntryOp::Propose).with_detail(detail);
        Ok(prepared.with_change(CatalogChange::Proposal(branch.id, Some(frozen))))
    }
}

impl Command for Withdraw {
    fn spec(&self) -> &'static CommandSpec {
        &WITHDRAW
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.0.0);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.0)?;
        let prepared = prepare_on_branch(context.catalog, log_record, branch, EntryOp::Withdraw);
        Ok(prepared.with_change(CatalogChange::Proposal(branch.id, None)))
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}

impl ReviewProposal {
    fn read(input: &mut Reader<'_>) -> Result<ReviewProposal, CodecError> {
        let (parent, child) = (BranchId::read(input)?, BranchId::read(input)?);
        Ok(ReviewProposal { parent, child, review: Review::read(input)? })
    }
}

impl Command for ReviewProposal {
    fn spec(&self) -> &'static CommandSpec {
        &REVIEW
    }

    fn write(&self, out: &mut Writer) {
        self.review.write(out.number(self.parent.0).number(self.child.0));
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (parent, child) = (context.catalog.branch(self.parent)?, context.catalog.branch(self.child)?);
        let review = &self.review;
        let op = if review.approves { EntryOp::Approve } else { EntryOp::Reject };
        let (label, text, plan) = (Some(child.name.clone()), nonempty_text(&review.text), Some(review.plan));
        let detail = Detail { label, text, plan, ..Detail::default() };
        let prepared = prepare_on_branch(context.catalog, log_record, parent, op).with_detail(detail);
        // Approvals run out by this time, so it is that of the entry and not one that a caller could give.
        let review = Review { time: log_record.time, ..review.clone() };
        Ok(prepared.with_change(CatalogChange::Review(child.id, log_record.uid, review)))
    }
}

impl Memory {
    /// Freezes the present state of a branch and offers it to the parent, replacing an earlier proposal. `text` may be
    /// empty, and has at most 4 KiB. Returns the entry's hash.
    ///
    /// Reviews of an earlier proposal count for this one only if the content is the same. Kind `Invalid` for a root
    /// branch, `TooLarge` for a longer text.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{
    ///     Actor, Environment, Error, Kind, Memory, MergeVerb, OpenMode, RecordEdit, RecordInput, ReviewRequest,
    ///     Setting,
    /// };
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// # let put = |id: &str, text: &str| {
    /// #     let input = RecordInput { vector: None, text: Some(text.into()), metadata: "{}".into() };
    /// #     vec![RecordEdit::Put { id: id.into(), input }]
    /// # };
    /// memory.set(&ann, main, Setting::Approvers, "uid:1001")?;
    /// memory.set(&ann, main, Setting::Gate, "approval 1")?;
    /// let trial = memory.fork(&ann, main, "trial", None)?;
    /// memory.commit(&ann, trial, put("tea", "tea is at four"))?;
    /// memory.propose(&ann, trial, "please read")?;
    ///
    /// // Nobody can approve a proposal of their own, and until somebody else does the gate stays shut.
    /// let plan = memory.dry_run(&ann, trial, MergeVerb::Merge, None)?.plan;
    /// let review = ReviewRequest { name: "trial", plan, approves: true, text: "checked" };
    /// assert_eq!(memory.review(&ann, main, review).unwrap_err().kind(), Kind::NotPermitted);
    /// assert_eq!(memory.merge(&ann, trial, MergeVerb::Merge, false).unwrap_err().code(), "gate_pending");
    ///
    /// let bob = Actor { uid: 1001, gid: 1001, name: "bob".into() };
    /// memory.review(&bob, main, review)?;
    /// memory.merge(&ann, trial, MergeVerb::Merge, false)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn propose(&self, who: &Actor, branch: BranchId, text: &str) -> Result<Hash, Error> {
        check_text(text)?;
        let command = || {
            let catalog = self.catalog();
            catalog.parent(catalog.branch(branch)?)?;
            Ok(Propose { branch, text: text.into() })
        };
        Ok(self.transact(who, &[Some(branch)], command)?.hash)
    }

    /// Withdraws the proposal of a branch. Returns the entry's hash. Kind `NotFound` if it proposes nothing.
    pub fn withdraw(&self, who: &Actor, branch: BranchId) -> Result<Hash, Error> {
        self.ensure_room_to_free()?;
        let command = || self.catalog().branch(branch)?.current_proposal().map(|_| Withdraw(branch));
        Ok(self.transact_without_reserving(who, &[], command)?.hash)
    }

    /// Approves or rejects what a child branch of `parent` proposes, replacing what the caller said before. Returns the
    /// entry's hash.
    ///
    /// Kind `NotFound` if no child branch with that name proposes anything, `NotPermitted` if the caller owns that
    /// branch, `Denied` if the caller is not an approver, `Busy` if the plan has changed, `TooLarge` for a text over 4
    /// KiB.
    pub fn review(&self, who: &Actor, parent: BranchId, request: ReviewRequest<'_>) -> Result<Hash, Error> {
        check_text(request.text)?;
        let child = self.find_proposal(who, parent, request.name)?;
        let planned = self.plan_proposal(child)?;
        if planned.hash != request.plan {
            return Err(MergeError::PlanChanged { wanted: request.plan, found: planned.hash }.into());
        }
        let command = || {
            // Asked again under the lock: another branch may have taken the name while the plan was made.
            if self.find_proposal(who, parent, request.name)? != child {
                return Err(ProposalError::Missing(request.name.to_owned()).into());
            }
            let (approves, plan, text) = (request.approves, request.plan, request.text.into());
            // Filled in when the command is prepared: a review has its entry's time.
            let review = Review { approves, plan, heads: planned.heads(), time: Time::default(), text };
            Ok(ReviewProposal { parent, child, review })
        };
        Ok(self.transact(who, &[], command)?.hash)
    }

    /// Returns the child branch with that name, if it has a proposal that `who` may review.
    fn find_proposal(&self, who: &Actor, parent: BranchId, name: &str) -> Result<BranchId, Error> {
        let catalog = self.catalog().clone();
        let parent = catalog.branch(parent)?;
        let child = parent.children.get(name).and_then(|child| catalog.branches.get(child));
        let child = child.ok_or_else(|| ProposalError::Missing(format!("{}/{name}", parent.path)))?;
        child.current_proposal()?;
        if child.uid == who.uid {
            return Err(ProposalError::OwnProposal(child.path.to_string()).into());
        }
        if !parent.settings.approvers().contains(&who.uid) {
            return Err(ProposalError::NotApprover { uid: who.uid, path: parent.path.to_string() }.into());
        }
        Ok(child.id)
    }
}

fn check_text(text: &str) -> Result<(), Error> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ProposalError::TooLong(TEXT_BYTES_MAX).into());
    }
    Ok(())
}

fn nonempty_text(text: &Arc<str>) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.clone())
}
