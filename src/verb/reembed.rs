//! `reembed`: has the embedder make all vectors anew, while those before serve.

use super::{Arguments, CliForm, CliHelp, VerbAnswer, VerbContext, VerbSpec};
use crate::memory::Error;

pub(super) const REEMBED: VerbSpec = VerbSpec {
    root_only: true,
    command: CliForm::FromTable(CliHelp {
        about: "Has the embedder make the vectors of all texts anew, while those before serve",
        target: "A root branch in a mount that has an embedder",
        examples: "  engramfs reembed /mnt/memory/main
  engramfs reembed /mnt/memory/team",
    }),
    ..VerbSpec::for_owner("reembed", reembed)
};

fn reembed(context: &VerbContext<'_>, _: &Arguments) -> Result<VerbAnswer, Error> {
    context.memory.reembed(context.branch).map(|report| VerbAnswer::Line(report.to_string()))
}
