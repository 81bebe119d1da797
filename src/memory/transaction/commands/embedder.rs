//! Having the vectors of an embedder count below a root branch.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::settings::{Setting, check};
use crate::memory::catalog::{BranchId, CatalogChange, EmbedderRecord};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_branch};
use crate::memory::{Error, SettingError};
use crate::object::Writer;

/// Starts to use the vectors of a root branch's embedder.
#[derive(Debug)]
pub struct NoteEmbedder {
    /// The root branch; its vectors are used in all branches below it.
    pub root: BranchId,
    /// The value of `config/embedder`, with the vectors of the probe texts that identify the embedder.
    pub value: Arc<str>,
}

pub(super) const EMBEDDER: CommandSpec = CommandSpec {
    code: 25,
    name: "embedder",
    read: |input| Ok(Box::new(NoteEmbedder { root: BranchId::read(input)?, value: input.text()?.into() })),
};

impl Command for NoteEmbedder {
    fn spec(&self) -> &'static CommandSpec {
        &EMBEDDER
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.root.0).text(&self.value);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let branch = context.catalog.branch(self.root)?;
        check(Setting::Embedder, &self.value)?;
        let derived = || SettingError::SetByStore(Setting::Embedder.name());
        let record = EmbedderRecord::parse_without_probes(&self.value).ok_or_else(derived)?;
        let text = format!("{} {}", record.dim, record.identity).into();
        let detail = Detail { label: Some(record.name), text: Some(text), ..Detail::default() };
        let prepared = prepare_on_branch(context.catalog, log_record, branch, EntryOp::Embedder).with_detail(detail);
        Ok(prepared.with_change(CatalogChange::Set(branch.root, Setting::Embedder, self.value.clone())))
    }
}
