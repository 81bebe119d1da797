//! Moving older entries out of the lineage.

use crate::lineage::{Detail, EntryOp};
use crate::memory::Error;
use crate::memory::catalog::{CatalogChange, LineageStart};
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_store};
use crate::object::{Hash, Writer};

/// Entries up to a number are in a file of their own, and the lineage begins behind them.
#[derive(Debug)]
pub struct ArchiveEntries {
    /// The number of the last of them; those before it go, too.
    pub last: u64,
    /// Its hash, which the first entry that stays has as `prev`.
    pub hash: Hash,
}

pub(super) const ARCHIVE: CommandSpec = CommandSpec {
    code: 22,
    name: "archive",
    read: |input| Ok(Box::new(ArchiveEntries { last: input.number()?, hash: input.hash()? })),
};

impl Command for ArchiveEntries {
    fn spec(&self) -> &'static CommandSpec {
        &ARCHIVE
    }

    fn write(&self, out: &mut Writer) {
        out.number(self.last).hash(&self.hash);
    }

    fn prepare(&self, context: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let (last, hash) = (self.last, self.hash);
        if last < context.catalog.start.first_seq || last >= context.seq {
            return Err(Error::NoEntry(last));
        }
        let (label, text) = (Some(last.to_string().into()), Some(hash.to_string().into()));
        let change = CatalogChange::LineageStart(LineageStart { first_seq: last + 1, prev: hash });
        let user = context.catalog.user(log_record.uid);
        Ok(prepare_on_store(EntryOp::Archive, Detail { label, text, ..Detail::default() }, user, change))
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}
