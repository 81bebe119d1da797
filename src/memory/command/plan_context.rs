//! What the rules of commands look at.

use std::sync::Arc;

use super::prepared::PreparedCommand;
use crate::branch::check_name;
use crate::memory::catalog::Catalog;
use crate::memory::{Error, Kind};
use crate::object::Hash;
use crate::segment::Segment;
use crate::workspace::Packs;

/// What a command is prepared from; only the catalog decides, the rest is for reading.
pub struct PlanContext<'a> {
    /// The catalog that the command is checked against and will change.
    pub catalog: &'a Catalog,
    /// `seq` of the entry to come, which is the id of a branch that the command makes.
    pub seq: u64,
    /// Where contents of files are read.
    pub packs: &'a dyn Packs,
    /// Opens the segment of a bulk commit, which was written before the command.
    pub segment: &'a dyn Fn(&Hash) -> Result<Arc<Segment>, Error>,
    /// Whether it was done once, maybe by an earlier release.
    pub is_replayed: bool,
}

impl PlanContext<'_> {
    /// Checks the name of a branch or checkpoint. One that an earlier release took stays, also where it is reserved by
    /// now. Fails like [`check_name`], unless the command is replayed.
    pub fn check_name(&self, name: &str) -> Result<(), Error> {
        if self.is_replayed { Ok(()) } else { Ok(check_name(name)?) }
    }

    /// Notes the head that the log holds of a command that was replayed, or the entry that can't be.
    ///
    /// What was recorded is applied, not decided again: a later release might decide otherwise. Fails with the error of
    /// `replayed`; kind `Damaged` then names the entry.
    pub fn with_recorded_head(
        &self,
        replayed: Result<PreparedCommand, Error>,
        head: Hash,
    ) -> Result<PreparedCommand, Error> {
        match replayed {
            Ok(prepared) => Ok(PreparedCommand { recorded_head: Some(head), ..prepared }),
            Err(error) if error.kind() == Kind::Damaged => {
                Err(Error::damaged(format!("entry {} can't be applied: {error}", self.seq)))
            }
            Err(error) => Err(error),
        }
    }
}
