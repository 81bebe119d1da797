//! Why a state is not proposed, or nothing is said of it, and why a gate does not let a merge pass.

use thiserror::Error;

use super::{Advice, Kind};

/// Why something about a proposal is not done.
#[derive(Debug, Clone, Error)]
pub enum ProposalError {
    /// The branch proposes nothing. Kind `NotFound`.
    #[error("{0} proposes nothing")]
    Missing(String),
    /// The caller owns the branch, and nobody approves of what is their own. Kind `NotPermitted`.
    #[error("{0} is your own: somebody else has to say whether it may be merged")]
    OwnProposal(String),
    /// The caller is not in `config/approvers` of the branch that would receive the merge. Kind `Denied`.
    #[error("uid {uid} is none of the approvers of {path}")]
    NotApprover {
        /// The uid that wanted to review it.
        uid: u32,
        /// Name path of the branch that would receive the merge.
        path: String,
    },
    /// What was said is longer than this many bytes. Kind `TooLarge`.
    #[error("the text is longer than {0} bytes")]
    TooLong(usize),
    /// The gate waits for something that can still be given. Kind `Refused`.
    #[error("the gate of {path} is not passed yet: {missing}")]
    Pending {
        /// Name path of the branch whose gate it is.
        path: String,
        /// What is missing, and who could give it.
        missing: String,
        /// What to do about it: who approves where, or that a proposal is needed first.
        hint: String,
    },
    /// The gate does not let this merge pass. Kind `Refused`.
    #[error("the gate of {path} refuses this merge: {reasons}")]
    Refused {
        /// Name path of the branch whose gate it is.
        path: String,
        /// The conditions that do not hold, each with its line of the gate, and rejections.
        reasons: String,
    },
    /// The caller may not see what is proposed. Kind `Denied`.
    #[error(
        "what {path} proposes is shown to its owner, and to the owner and the approvers of the branch above, and uid {uid} is none of them"
    )]
    NotVisible {
        /// Name path of the branch that proposes.
        path: String,
        /// The uid that wanted to look.
        uid: u32,
    },
}

impl ProposalError {
    /// Returns kind, code and hint; there is no `_` arm, so a new variant does not compile without its own.
    pub fn advice(&self) -> Advice {
        match self {
            ProposalError::Missing(_) => Advice::new(
                Kind::NotFound,
                "no_proposal",
                "have its owner write propose to its ctl; ls proposals shows what is proposed",
            ),
            ProposalError::OwnProposal(_) => Advice::new(
                Kind::NotPermitted,
                "own_proposal",
                "ask an approver; config/approvers of the parent has them",
            ),
            ProposalError::NotApprover { .. } => {
                Advice::new(Kind::Denied, "not_approver", "have its owner add uid:N to config/approvers")
            }
            ProposalError::TooLong(_) => Advice::new(Kind::TooLarge, "text_too_long", "write less"),
            ProposalError::Pending { hint, .. } => Advice::new(Kind::Refused, "gate_pending", hint.clone()),
            ProposalError::Refused { .. } => Advice::new(
                Kind::Refused,
                "gate_refused",
                "change the branch so that it holds, or ask the owner of the parent; config/gate there has the conditions",
            ),
            ProposalError::NotVisible { .. } => Advice::new(
                Kind::Denied,
                "proposal_closed",
                "have the parent's owner add uid:N to its config/approvers",
            ),
        }
    }
}
