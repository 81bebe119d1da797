//! Whether a merge passes the gate of the branch that receives it, at the moment at which it is done.
//!
//! What the gate says of the plan was found when the plan was made ([`MergePlan::findings`]). What people and agents did about it
//! since is looked up here: approvals, which name the plan's hash and so hold while the parent goes on, and entries of the log.

use std::sync::Arc;

use super::merge_plan::MergePlan;
use crate::memory::catalog::shared_log::log_entry_id;
use crate::memory::catalog::{Branch, BranchId, Catalog, Review};
use crate::memory::{Error, Memory, ProposalError};
use crate::merge::gate::Requirement;
use crate::object::Time;

/// How long an approval or a rejection holds: 24 hours, in nanoseconds.
const REVIEW_LIFETIME_NANOS: i64 = 24 * 3600 * 1_000_000_000;

/// Whether a branch's agent has written to the shared log since the branch got its base.
#[derive(Clone, Copy, Debug, Default)]
pub struct SummaryCheck {
    /// Up to which entry of the log nothing counts; a later base makes the look worthless.
    since_seq: u64,
    is_found: bool,
}

/// A merge as its gate sees it: plan, branches, the parent's approvers of now, and the time against which reviews count.
struct GateCheck<'a> {
    plan: &'a MergePlan,
    child: &'a Branch,
    parent: &'a Branch,
    approvers: Vec<u32>,
    summary: SummaryCheck,
    now: Time,
}

/// One requirement of a gate, for those who read of a proposal what it waits for.
#[derive(Clone, Debug)]
pub struct RequirementStatus {
    /// The line of `config/gate`, as it was written there.
    pub condition: Arc<str>,
    /// What is missing and who could give it, in words; `None` if it is met.
    pub missing: Option<String>,
}

impl GateCheck<'_> {
    /// Returns what approvers said of this plan, as far as that still counts.
    fn reviews(&self) -> impl Iterator<Item = (u32, &Review)> {
        let all = self.child.proposal.iter().flat_map(|proposal| &proposal.reviews);
        let counts = |uid: u32, review: &Review| {
            let age = self.now.0.saturating_sub(review.time.0);
            // The list of approvers is that of now, so who was taken off it has approved of nothing; nobody approves of
            // their own branch.
            let is_approver = uid != self.child.uid && self.approvers.contains(&uid);
            is_approver && review.plan == self.plan.hash && age <= REVIEW_LIFETIME_NANOS
        };
        all.filter(move |(uid, review)| counts(**uid, review)).map(|(uid, review)| (*uid, review))
    }

    /// Returns what is missing, and who could give it; `None` if the requirement is met.
    fn missing(&self, requirement: Requirement) -> Option<String> {
        match requirement {
            Requirement::Summary => {
                let is_told = self.summary.is_found && self.summary.since_seq == self.child.log_at_base;
                (!is_told)
                    .then(|| "its agent has written nothing to shared/log/append since the branch's base".to_owned())
            }
            Requirement::Approvals { count, is_strict } => {
                // The plan's hash stays while the parent goes on elsewhere; a strict gate asks that both heads are
                // still the ones reviewed.
                let holds = |review: &Review| review.approves && (!is_strict || review.heads == self.plan.heads());
                let given: Vec<u32> = self.reviews().filter(|(_, review)| holds(review)).map(|(uid, _)| uid).collect();
                if given.len() >= count {
                    return None;
                }
                let could = self.approvers.iter().filter(|uid| **uid != self.child.uid && !given.contains(uid));
                let could: Vec<String> = could.map(|uid| format!("uid:{uid}")).collect();
                let who = if could.is_empty() { "nobody in config/approvers".to_owned() } else { could.join(", ") };
                Some(format!(
                    "{} of {count} approvals of the plan {} are there, and {who} could give one",
                    given.len(),
                    self.plan.hash
                ))
            }
        }
    }

    fn check(&self) -> Result<(), ProposalError> {
        let findings = self.plan.findings();
        let mut reasons = findings.reasons.clone();
        // One rejection stops a merge whatever else is met, so it stands with what the gate refuses and not with what
        // is missing.
        let rejections = self.reviews().filter(|(_, review)| !review.approves);
        reasons.extend(rejections.map(|(uid, review)| format!("uid:{uid} rejected it: {}", review.text)));
        let path = self.parent.path.to_string();
        if !reasons.is_empty() {
            return Err(ProposalError::Refused { path, reasons: reasons.join("; ") });
        }
        let missing =
            |(line, requirement): &(Arc<str>, Requirement)| Some(format!("{line}: {}", self.missing(*requirement)?));
        let missing: Vec<String> = findings.requirements.iter().filter_map(missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(ProposalError::Pending { path, missing: missing.join("; "), hint: self.hint() })
    }

    fn hint(&self) -> String {
        let (name, path) = (&self.child.name, &self.parent.path);
        match &self.child.proposal {
            Some(_) => {
                format!("see proposals/{name}/plan in {path}; an approver writes 'approve {name} PLAN' to its ctl")
            }
            None => "write propose to the branch's ctl, so that approvers see it; a summary goes to shared/log/append"
                .to_owned(),
        }
    }
}

/// Refuses a merge that the gate of its parent does not let pass, with the condition that is not met and what meets it. Fails
/// too where the gate's rules or what the merge does can't be read.
pub fn check_gate(catalog: &Catalog, plan: &MergePlan, summary: SummaryCheck, now: Time) -> Result<(), Error> {
    // Without a gate nothing is looked up: this runs under the writer lock for every merge.
    if !plan.is_gated() {
        return Ok(());
    }
    Ok(gate_check(catalog, plan, summary, now)?.check()?)
}

/// Returns what the gate asks for beyond what the merge does, and what of it is missing. Empty if it asks for nothing.
/// Fails with `Error::Gone` if the branch or its parent has ended since it was planned.
pub fn requirements(
    catalog: &Catalog,
    plan: &MergePlan,
    summary: SummaryCheck,
    now: Time,
) -> Result<Vec<RequirementStatus>, Error> {
    let check = gate_check(catalog, plan, summary, now)?;
    let status = |(condition, requirement): &(Arc<str>, Requirement)| RequirementStatus {
        condition: condition.clone(),
        missing: check.missing(*requirement),
    };
    Ok(plan.findings().requirements.iter().map(status).collect())
}

fn gate_check<'a>(
    catalog: &'a Catalog,
    plan: &'a MergePlan,
    summary: SummaryCheck,
    now: Time,
) -> Result<GateCheck<'a>, Error> {
    let child = catalog.branch(plan.child.id)?;
    let parent = catalog.parent(child)?;
    Ok(GateCheck { plan, child, parent, approvers: parent.settings.approvers(), summary, now })
}

impl Memory {
    /// Looks whether a branch's agent has written to the shared log since the branch got its base, where a gate asks
    /// for that. It costs what was written since, and holds no lock. Where none asks, none is found. Fails with
    /// `Error::Gone` if the branch, its parent or its log has ended, or if an entry of the log can't be read.
    pub(in crate::memory) fn find_summary(&self, branch: BranchId) -> Result<SummaryCheck, Error> {
        let catalog = self.catalog().clone();
        let child = catalog.branch(branch)?;
        let since_seq = child.log_at_base;
        let asks = child.parent.is_some() && catalog.parent(child)?.settings.gate().asks_summary();
        let Some(log) = catalog.shared_log(child)?.filter(|_| asks) else {
            return Ok(SummaryCheck { since_seq, is_found: false });
        };
        let agent = catalog.agent(child, child.uid);
        let entries = log.log_totals.map_or(0, |totals| totals.entries);
        // From the newest, since a summary is mostly the last thing that an agent writes before it merges.
        for entry in (since_seq + 1..=entries).rev() {
            let Some(row) = log.state.find(&log_entry_id(entry))? else { continue };
            let provenance = row.provenance()?;
            if provenance.uid == child.uid && provenance.agent == agent {
                return Ok(SummaryCheck { since_seq, is_found: true });
            }
        }
        Ok(SummaryCheck { since_seq, is_found: false })
    }
}
