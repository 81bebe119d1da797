//! Asking a view.

use super::file_search::SearchableFiles;
use crate::file_index::{FileReader, IndexSegment, PassagePlace};
use crate::memory::catalog::ResolvedView;
use crate::memory::catalog::View;
use crate::memory::{Error, Memory};
use crate::search::{Answer, FileSource, Mode, Query, SearchError, SearchSource, ask};

/// How often a question is put again that found damage in the index of files.
const ROUNDS: usize = 3;

impl Memory {
    /// Answers a query to a view for the store's owner; see [`Memory::ask_for`].
    pub fn ask(&self, view: &View, query: &Query) -> Result<Answer, Error> {
        let owner = &self.environment.owner;
        let reader = FileReader { uid: owner.uid, groups: vec![owner.gid], knows_all_groups: false };
        self.ask_for(&reader, view, query)
    }

    /// Answers a query to a view, by default from the branch, the shared log and those files that the caller may read, in
    /// turns with what else the user asks.
    ///
    /// Kind `Timeout` when the query's time limit is reached, `Invalid` for a vector of another
    /// length or an unknown scope, `NotFound` for an id that is not there.
    pub fn ask_for(&self, caller: &FileReader, view: &View, query: &Query) -> Result<Answer, Error> {
        for _ in 1..ROUNDS {
            let version = self.storage.file_index.set().version;
            match self.ask_once(caller, view, query) {
                // The index is made of the files, and what of it was damaged is made again.
                Err(error) if self.storage.file_index.recovers_from(&error, version) => {}
                answered => return answered,
            }
        }
        self.ask_once(caller, view, query)
    }

    fn ask_once(&self, caller: &FileReader, view: &View, query: &Query) -> Result<Answer, Error> {
        let start = self.now();
        let (places, metric, language, path) = {
            let catalog = self.catalog();
            let seen = ResolvedView::new(&catalog, view)?;
            let mut places = Vec::new();
            for name in &query.scope {
                match name.as_str() {
                    "branch" => places.insert(0, SearchSource { source: "branch".into(), state: seen.state.clone() }),
                    // The shared log has no entries yet, and files are no records.
                    "log" | "files" => {}
                    other => {
                        let root = catalog.roots.get(other).ok_or_else(|| unknown_scope(other))?;
                        places.push(SearchSource { source: other.into(), state: catalog.branch(*root)?.state.clone() });
                    }
                }
            }
            let metric = catalog.shared_settings(seen.branch)?.metric();
            (places, metric, seen.branch.settings.language(), seen.branch.path.clone())
        };
        let deadline = start.after(i64::try_from(query.timeout_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000));
        let share = self.admission.shares.enter(caller.uid);
        let late = || {
            share.pause();
            (self.now() >= deadline).then_some(SearchError::Timeout(query.timeout_ms))
        };
        let head = places
            .first()
            .map_or_else(|| self.state(view).map(|state| state.head()), |place| Ok(place.state.head()))?;
        let wants_files = query.scope.iter().any(|name| name == "files") && query.may_use_words();
        let searchable = if wants_files { self.searchable_files(view, caller)? } else { None };
        let missing = searchable.as_ref().map_or(0, |searchable| searchable.missing);
        let files = searchable.map(|SearchableFiles { files, .. }| files);
        let read = |segment: &IndexSegment, place: &PassagePlace, inode: u64| {
            let files = files.as_ref().expect("only what is searched is read");
            files.text((segment, place), inode, self.packs())
        };
        let source =
            files.clone().map(|files| FileSource { source: "files".into(), branch: path.clone(), files, read: &read });
        let mut asked = ask(&places, source.as_ref(), metric, language, query, &late)?;
        if missing > 0 && asked.mode != Mode::Vector {
            let more = format!("{missing} files are not indexed yet");
            asked.reason = Some(asked.reason.map_or(more.clone(), |reason| format!("{reason}; {more}")));
        }
        Ok(Answer {
            hits: asked.hits,
            mode: asked.mode,
            reason: asked.reason,
            branch: path,
            head,
            exact: asked.exact,
            micros: (self.now().0 - start.0).max(0) as u64 / 1000,
            query: query.echo.clone(),
            tag: query.tag.clone(),
        })
    }
}

fn unknown_scope(name: &str) -> Error {
    Error::NoScope(name.chars().take(80).collect())
}
