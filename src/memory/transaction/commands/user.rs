//! The names of users, which their entries carry: written down before the first entry of a uid, so that the lineage can
//! be read where nobody knows that uid.

use std::sync::Arc;

use crate::lineage::{Detail, EntryOp};
use crate::memory::catalog::CatalogChange;
use crate::memory::command::log_record::{Command, CommandSpec, LogRecord};
use crate::memory::command::plan_context::PlanContext;
use crate::memory::command::prepared::{PreparedCommand, prepare_on_store};
use crate::memory::transaction::transact::LogTail;
use crate::memory::{Actor, Error, Memory};
use crate::object::Writer;

/// A uid is seen for the first time, or an import brings another name for it.
#[derive(Debug)]
pub(super) struct RegisterUser {
    /// The name of the uid that the log record has.
    pub name: Arc<str>,
}

pub(super) const USER: CommandSpec =
    CommandSpec { code: 17, name: "user", read: |input| Ok(Box::new(RegisterUser { name: input.text()?.into() })) };

impl Command for RegisterUser {
    fn spec(&self) -> &'static CommandSpec {
        &USER
    }

    fn write(&self, out: &mut Writer) {
        out.text(&self.name);
    }

    fn prepare(&self, _: &PlanContext<'_>, log_record: &LogRecord) -> Result<PreparedCommand, Error> {
        let detail = Detail { text: Some(self.name.clone()), ..Detail::default() };
        let change = CatalogChange::User(log_record.uid, self.name.clone());
        Ok(prepare_on_store(EntryOp::User, detail, self.name.clone(), change))
    }

    fn may_use_reserve(&self) -> bool {
        true
    }
}

impl Memory {
    /// Writes down the name of a uid that was never seen before. Fails like [`Memory::execute`].
    pub(in crate::memory::transaction) fn register_user(
        &self,
        log_tail: &mut LogTail,
        who: &Actor,
    ) -> Result<(), Error> {
        if !self.catalog().users.contains_key(&who.uid) {
            self.execute(log_tail, who.uid, RegisterUser { name: who.name.clone() })?;
        }
        Ok(())
    }
}
