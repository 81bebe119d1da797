//! `query`: one query a line, answered as the line is written.

use crate::fs::batch;
use crate::fs::errno::Failure;
use crate::fs::last_answers::AnsweringFile;
use crate::fs::line_session::{LineProtocol, RequestOutcome};
use crate::fs::mount_context::OpenContext;
use crate::fs::refusal::AccessRefusal;
use crate::fs::rights::SEARCH;
use crate::memory::{Credentials, Error, Query};

/// Answers the lines of `query`, each a query.
pub(super) struct QueryFile {
    /// Who opened the file. A process may have ended, and its number be another's, when a line is answered.
    reader: Credentials,
}

impl QueryFile {
    /// Opens it for the caller, who asks the queries.
    pub fn new(context: &OpenContext) -> QueryFile {
        QueryFile { reader: context.credentials() }
    }
}

impl LineProtocol for QueryFile {
    type Request = Query;
    const FILE: AnsweringFile = AnsweringFile::Query;

    fn parse(&self, line: &str) -> Result<Query, Failure> {
        Query::parse(line).map_err(|error| Error::from(error).into())
    }

    fn perform(&self, context: &OpenContext, query: &Query, number: usize) -> RequestOutcome {
        context.check_enter()?;
        if query.at.is_some() {
            context.check_read()?;
        }
        query.scope.iter().try_for_each(|name| check_scope(context, name))?;
        Ok(context.memory().query_for(&self.reader, &context.view, query)?.to_lines(number))
    }

    /// A query changes nothing, so those of a write are answered on all processors.
    fn perform_batch(
        &self,
        context: &OpenContext,
        queries: &[Query],
        first: usize,
        room: usize,
    ) -> Vec<RequestOutcome> {
        batch::run_in_parallel(queries, room, |at, query| self.perform(context, query, first + at))
    }
}

/// Refuses to search a root branch that the caller can't reach by its path.
fn check_scope(context: &OpenContext, name: &str) -> Result<(), Failure> {
    // They mean this branch, its log and its files also where a root branch is called so.
    if ["branch", "log", "files"].contains(&name) || name.starts_with("log:") {
        return Ok(());
    }
    // Whether it is a root branch is checked by `Memory`.
    let Some(root) = context.memory().root(name) else { return Ok(()) };
    let reached = match context.mount.root_branch() {
        Some(mounted) => mounted == root,
        None => context.mount.permits(context.caller, &context.memory().info(root)?, SEARCH),
    };
    if reached {
        return Ok(());
    }
    Err(AccessRefusal::Scope { uid: context.caller.uid, name: name.to_string() }.into())
}
