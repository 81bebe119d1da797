//! `resolve`: resolves one conflict.

use serde_json::json;

use super::{Argument, Arguments, CliForm, CliHelp, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::{Error, Side};

/// A phrase and no word, since an id or path may have blanks in it.
const ID: Argument = Argument::phrase("ID", "The record or the path in conflict");
const SIDE: Argument = Argument::word("child|parent", "Whose version is taken").with_check(
    |side| parse_side(side).is_some(),
    "is no side",
    "write child or parent",
);

pub(super) const RESOLVE: VerbSpec = VerbSpec {
    arguments: &[ID, SIDE],
    command: CliForm::FromTable(CliHelp {
        about: "Resolves one conflict under the strategy manual, for exactly the two versions that stand in conflict; \
                `conflicts` lists them",
        target: "The branch that is to be merged: its own directory under a mount, or STORE:NAME-PATH",
        examples: "  engramfs resolve /mnt/memory/main/branches/agent-7 tea child
  engramfs resolve ~/memory:main/agent-7 files/notes.md parent",
    }),
    ..VerbSpec::for_owner("resolve", resolve)
};

fn resolve(context: &VerbContext<'_>, arguments: &Arguments) -> Result<VerbAnswer, Error> {
    let (id, word) = (arguments.required(&ID), arguments.required(&SIDE));
    let side = parse_side(word).expect("the argument accepts sides alone");
    let overruling = context.memory.resolve_conflict(context.actor, context.branch, id, side)?;
    let answer = match overruling {
        None => json!({"status": "resolved", "id": id, "decision": word}),
        Some(strategy) => {
            let decider = match strategy {
                "manual" => "a rule in config/rules".to_owned(),
                strategy => format!("the strategy {strategy} or a rule"),
            };
            let reason =
                format!("merges decide otherwise for now, by {decider}: this counts once they leave it to manual");
            json!({"status": "noted", "id": id, "decision": word, "reason": reason})
        }
    };
    Ok(VerbAnswer::Line(answer.to_string()))
}

fn parse_side(word: &str) -> Option<Side> {
    match word {
        "child" => Some(Side::Child),
        "parent" => Some(Side::Parent),
        _ => None,
    }
}
