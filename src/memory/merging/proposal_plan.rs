//! What a merge of a proposal would do now: the frozen state against the parent as it is.

use super::gate_check::{RequirementStatus, check_gate, requirements};
use super::merge_plan::MergePlan;
use crate::memory::catalog::{BranchId, Catalog};
use crate::memory::command::merge_verb::MergeVerb;
use crate::memory::{Error, Memory};

/// A proposal, worked out as a promote of its frozen state, with all that its merge waits for.
pub(in crate::memory) struct ProposalPlan {
    /// What the promote would do now, as its dry run shows it.
    pub plan: MergePlan,
    /// The catalog of a moment after the plan was made, which has all approvals until then.
    pub catalog: Catalog,
    /// Why it would be refused now; empty if it would not.
    pub blockers: Vec<Error>,
    /// What the gate asks for beyond what the merge does, and what of it is missing.
    pub requirements: Vec<RequirementStatus>,
}

impl Memory {
    /// Works out what a merge of a branch's proposal would do. Kind `NotFound` if it proposes nothing.
    pub(in crate::memory) fn plan_proposal(&self, branch: BranchId) -> Result<MergePlan, Error> {
        let catalog = self.catalog().clone();
        let proposed = catalog.with_proposed_state(branch)?;
        self.plan_whole(&proposed, (branch, MergeVerb::Promote), catalog.branch(branch)?.uid)
    }

    /// As [`Memory::plan_proposal`], with all that prevents the merge and what its gate asks for. What prevents the
    /// merge is not an error: it is returned. Fails if the branch proposes nothing, or if the plan can't be made.
    pub(in crate::memory) fn examine_proposal(&self, branch: BranchId) -> Result<ProposalPlan, Error> {
        // The catalog is read after the plan is made, so that approvals which came meanwhile count.
        let (plan, summary) = (self.plan_proposal(branch)?, self.find_summary(branch)?);
        let (catalog, now) = (self.catalog().clone(), self.now());
        let mut blockers: Vec<Error> = plan.obstacles().collect();
        blockers.extend(check_gate(&catalog, &plan, summary, now).err());
        let requirements = requirements(&catalog, &plan, summary, now)?;
        Ok(ProposalPlan { plan, catalog, blockers, requirements })
    }
}
