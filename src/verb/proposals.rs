//! `propose`, `withdraw`, `approve` and `refuse`: a branch offers its state to its parent, and approvers say what they think of it.

use serde_json::{Value, json};

use super::{
    Argument, Arguments, BranchRight, CliForm, CliHelp, ParentRight, Rights, VerbAnswer, VerbContext, VerbSpec,
};
use crate::memory::{Error, Hash, ReviewRequest};

const TEXT: Argument = Argument::text("TEXT", "What is to be said about it");
const NAME: Argument = Argument::word("NAME", "The branch that proposes, as proposals/ has it").checked_as_name();
const PLAN: Argument = Argument::word("HASH", "The plan that is meant, as proposals/NAME/plan has it").with_check(
    |text| text.parse::<Hash>().is_ok(),
    "is no hash of a plan",
    "write the 64 hex digits that proposals/NAME/plan has as its plan",
);

pub(super) const PROPOSE: VerbSpec = VerbSpec {
    arguments: &[TEXT],
    // The plan shows parts of the parent, so the caller must be able to read it.
    rights: Rights { branch: BranchRight::Own, parent: ParentRight::Read },
    command: CliForm::FromTable(CliHelp {
        about: "Freezes a branch's state and shows it with its plan to the approvers of its parent, in proposals/ there",
        target: "The branch that proposes: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs propose /mnt/memory/main/branches/agent-7 \"all tests pass\"
  engramfs propose ~/memory:main/agent-7",
    }),
    ..VerbSpec::for_owner("propose", propose)
};

pub(super) const WITHDRAW: VerbSpec = VerbSpec {
    command: CliForm::FromTable(CliHelp {
        about: "Takes back what a branch proposes",
        target: "The branch: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs withdraw /mnt/memory/main/branches/agent-7
  engramfs withdraw ~/memory:main/agent-7",
    }),
    ..VerbSpec::for_owner("withdraw", withdraw)
};

pub(super) const APPROVE: VerbSpec = VerbSpec {
    arguments: &[NAME, PLAN, TEXT],
    rights: REVIEWER,
    command: CliForm::FromTable(CliHelp {
        about: "Approves of a plan that a branch below proposes, for 24 hours, as one of config/approvers",
        target: "The branch that would get it: its directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs approve /mnt/memory/main agent-7 PLAN
  engramfs approve ~/memory:main agent-7 PLAN \"read it all\"",
    }),
    ..VerbSpec::for_owner("approve", |context, arguments| review(context, arguments, true))
};

pub(super) const REFUSE: VerbSpec = VerbSpec {
    arguments: &[NAME, PLAN, TEXT],
    rights: REVIEWER,
    command: CliForm::FromTable(CliHelp {
        about: "Refuses a plan that a branch below proposes, for 24 hours, as one of config/approvers",
        target: "The branch that would get it: its directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs refuse /mnt/memory/main agent-7 PLAN \"the dates are wrong\"
  engramfs refuse ~/memory:main agent-7 PLAN",
    }),
    ..VerbSpec::for_owner("refuse", |context, arguments| review(context, arguments, false))
};

/// Whoever says something has to be an approver, which the memory knows.
const REVIEWER: Rights = Rights { branch: BranchRight::Enter, parent: ParentRight::Nothing };

fn propose(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let VerbContext { memory, actor, branch, .. } = *context;
    let entry = memory.propose(actor, branch, arguments.get(&TEXT).unwrap_or_default())?;
    Ok(line(memory.proposal_result(branch)?, entry))
}

fn withdraw(context: &VerbContext<'_>, _: &Arguments) -> Result<VerbAnswer, Error> {
    let entry = context.memory.withdraw(context.actor, context.branch)?;
    Ok(line(json!({ "status": "withdrawn" }), entry))
}

fn review(context: &VerbContext<'_>, arguments: &Arguments, approves: bool) -> Result<VerbAnswer, Error> {
    let (name, plan) = (arguments.required(&NAME), arguments.required(&PLAN));
    let request = ReviewRequest {
        name,
        plan: plan.parse().expect("the argument accepts hashes alone"),
        approves,
        text: arguments.get(&TEXT).unwrap_or_default(),
    };
    let entry = context.memory.review(context.actor, context.branch, request)?;
    let status = if approves { "approved" } else { "refused" };
    Ok(line(json!({ "status": status, "proposal": name, "plan": plan }), entry))
}

fn line(mut answer: Value, entry: Hash) -> VerbAnswer {
    answer["entry"] = json!(entry.to_string());
    VerbAnswer::Line(answer.to_string())
}
