//! Queries to a view.

use std::collections::HashSet;
use std::time::Duration;

use super::file_search::SearchableFiles;
use crate::file_index::{Credentials, IndexSegment, PassageLocation};
use crate::memory::catalog::ResolvedView;
use crate::memory::catalog::{Branch, Catalog, Revision, View};
use crate::memory::maintenance::embedding::{EmbeddingStatus, Obstacle};
use crate::memory::{Error, Memory};
use crate::search::{Answer, FileSource, Mode, Query, SearchError, SearchSource, run_query};

/// Of the time that is left, what the embedder may take: three parts of four. If it does not answer, words still do.
const EMBEDDING_SHARE: (u32, u32) = (3, 4);
/// How often a query is put again that found damage in the index of files.
const ATTEMPTS_MAX: usize = 3;

impl Memory {
    /// Answers a query to a view with the rights of the store's owner. Fails like [`Memory::query_for`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use engramfs::disk::ForgetfulDisk;
    /// use engramfs::memory::{Actor, Environment, Error, Kind, Memory, OpenMode, Query, RecordEdit, RecordInput, View};
    ///
    /// # fn main() -> Result<(), Error> {
    /// # let ann = Actor { uid: 1000, gid: 1000, name: "ann".into() };
    /// # let environment = Environment::real(ann.clone());
    /// # let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, environment)?;
    /// # let main = memory.root("main").unwrap();
    /// for (id, vector) in [("north", [0.0, 1.0]), ("east", [1.0, 0.0])] {
    ///     let input = RecordInput::from_vector(vector.to_vec())?;
    ///     memory.commit(&ann, main, vec![RecordEdit::Put { id: id.into(), input }])?;
    /// }
    /// let query = Query::parse(r#"{"vector": [0.1, 0.9], "k": 1}"#)?;
    /// let answer = memory.query(&View::Branch(main), &query)?;
    /// assert_eq!(&*answer.hits[0].id, "north");
    ///
    /// let query = Query::parse(r#"{"vector": [1.0]}"#)?;
    /// let error = memory.query(&View::Branch(main), &query).unwrap_err();
    /// assert_eq!(error.kind(), Kind::Invalid, "the vectors have two numbers");
    /// # Ok(())
    /// # }
    /// ```
    pub fn query(&self, view: &View, query: &Query) -> Result<Answer, Error> {
        let owner = &self.environment.owner;
        let reader = Credentials { uid: owner.uid, groups: vec![owner.gid], knows_all_groups: false };
        self.query_for(&reader, view, query)
    }

    /// Answers a query to a view. By default it searches the branch, its shared log, and the files that the caller may
    /// read. Queries of one user take turns.
    ///
    /// With `at` in the query, the branch is searched as it was then, which the answer names; other root branches as they
    /// are now.
    ///
    /// Kind `Timeout` if the query's time limit is reached, `Invalid` for a vector of another length or an unknown
    /// scope, `NotFound` for an id that is not there.
    pub fn query_for(&self, caller: &Credentials, view: &View, query: &Query) -> Result<Answer, Error> {
        let Some(at) = &query.at else { return self.query_view(caller, view, query) };
        let found = self.find_state(view.branch(), &Revision::parse(at)?)?;
        let answer = self.query_view(caller, &found.view(view.branch())?, query)?;
        Ok(Answer { at: Some(found.to_json()), ..answer })
    }

    fn query_view(&self, caller: &Credentials, view: &View, query: &Query) -> Result<Answer, Error> {
        for _ in 1..ATTEMPTS_MAX {
            let version = self.storage.file_index.segment_set().version;
            match self.query_once(caller, view, query) {
                // The index is made of the files, and what of it was damaged is made again.
                Err(error) if self.storage.file_index.drop_broken_and_may_retry(&error, version) => {}
                answered => return answered,
            }
        }
        self.query_once(caller, view, query)
    }

    /// Returns what is asked, and the sources that a query looks at; files are none of them, since they are no records.
    fn sources(
        &self,
        catalog: &Catalog,
        resolved: &ResolvedView<'_>,
        status: &EmbeddingStatus,
        (view, query): (&View, &Query),
    ) -> Result<(SearchSource, Vec<SearchSource>), Error> {
        let (state, derived) = (resolved.state.clone(), status.vectors.clone());
        let asked = SearchSource { source: "branch".into(), state, derived, is_log: false };
        let (mut sources, mut closed_logs) = (Vec::new(), HashSet::new());
        for name in &query.scope {
            match name.as_str() {
                "branch" => sources.insert(0, asked.clone()),
                // The log is that of the present, so an earlier state is searched without it.
                "log" if matches!(view, View::Branch(_)) => {
                    let log = catalog.shared_log(resolved.branch)?;
                    sources.extend(log.map(|log| log_source("log", log, status, query.has_default_scope())));
                }
                // Scopes that hold no records add no source here.
                "log" | "files" => {}
                other if let Some(closed) = other.strip_prefix("log:") => {
                    let named = catalog.closed_logs_named(resolved.branch, closed)?;
                    let is_one = named.len() == 1;
                    if named.is_empty() {
                        return Err(unknown_scope(other));
                    }
                    // A log that two names of the scope mean counts once, so that nothing is found twice.
                    for (name, log) in named.into_iter().filter(|(_, log)| closed_logs.insert(log.id)) {
                        // Entries of several logs have the same numbers.
                        let full_name = format!("log:{name}");
                        let source = if is_one { other } else { full_name.as_str() };
                        sources.push(log_source(source, log, status, false));
                    }
                }
                other => {
                    let root = catalog.roots.get(other).ok_or_else(|| unknown_scope(other))?;
                    let root = catalog.branch(*root)?;
                    // Vectors of another set can't be compared with the query's.
                    let theirs = self.embedding_status(catalog, root)?.vectors;
                    let set = status.vectors.as_ref().map(|vectors| vectors.embedder);
                    let derived = theirs.filter(|vectors| Some(vectors.embedder) == set);
                    let state = root.state.clone();
                    sources.push(SearchSource { source: other.into(), state, derived, is_log: false });
                }
            }
        }
        Ok((asked, sources))
    }

    fn query_once(&self, caller: &Credentials, view: &View, query: &Query) -> Result<Answer, Error> {
        // Not the clock: somebody may set that while the query runs.
        let start = (self.environment.uptime)();
        let elapsed = || (self.environment.uptime)().saturating_sub(start);
        // Sources hold the states that are searched, so the version of the catalog is let go of before anything that
        // takes long.
        let ((asked, sources), metric, language, path, status) = {
            let catalog = self.catalog().clone();
            let seen = ResolvedView::new(&catalog, view)?;
            let status = self.embedding_status(&catalog, seen.branch)?;
            let sources = self.sources(&catalog, &seen, &status, (view, query))?;
            let metric = catalog.shared_settings(seen.branch)?.metric();
            let (language, path) = (seen.branch.settings.language(), seen.branch.path.clone());
            (sources, metric, language, path, status)
        };
        let limit = Duration::from_millis(query.timeout_ms);
        let turn = self.admission.turns.wait_for_turn(caller.uid);
        let late = || {
            turn.pause();
            (elapsed() >= limit).then_some(SearchError::Timeout(query.timeout_ms))
        };
        // May hash all files of the state, so it is asked for within the turn and with no version of the catalog held.
        // The state is the one that was searched, so that answer and head belong together.
        let head = asked.state.head();
        let is_found = query.may_use_words() || status.vectors.is_some();
        let wants_files = query.scope.iter().any(|name| name == "files") && is_found;
        let searchable = if wants_files { self.searchable_files(view, caller)? } else { None };
        let missing = searchable.as_ref().map_or(0, |searchable| searchable.missing);
        let files = searchable.map(|SearchableFiles { files, .. }| files);
        let read = |segment: &IndexSegment, location: &PassageLocation, inode: u64| {
            let files = files.as_ref().expect("only what is searched is read");
            files.text((segment, location), inode, self.packs())
        };
        let derived = status.vectors.clone();
        let file_source = files.clone().map(|files| FileSource {
            source: "files".into(),
            branch: path.clone(),
            files,
            derived,
            read: &read,
        });
        // Looked up only now: indexing files may have used up a part, and words are to answer in what the embedder leaves.
        let left = limit.saturating_sub(elapsed());
        let embedded = embed_query(&status, (&sources, file_source.as_ref()), query, left)?;
        // The embedder may have used up the time; this also lets other queries of the same user have their turn.
        late().map_or(Ok(()), Err)?;
        let asking = embedded.query.as_ref().unwrap_or(query);
        let searched = (&asked, &sources[..], file_source.as_ref());
        let answer = run_query(searched, metric, language, asking, embedded.no_vector(), &late)?;
        let mut reason = if answer.reason.is_some() { answer.reason } else { embedded.reason };
        // Without an embedder no file has a vector, so that none is missing among those.
        if missing > 0 && (answer.mode != Mode::Vector || status.vectors.is_some()) {
            reason = Some(with_missing_files(reason, missing));
        }
        Ok(Answer {
            hits: answer.hits,
            mode: answer.mode,
            reason,
            branch: path,
            head,
            at: None,
            exact: answer.exact,
            micros: elapsed().as_micros() as u64,
            query: query.echo.clone(),
            tag: query.tag.clone(),
        })
    }
}

/// Returns the reason of an answer with how many files it left out, since they are not indexed yet.
fn with_missing_files(reason: Option<String>, missing: u64) -> String {
    let more = match missing {
        1 => "1 file is not indexed yet".to_owned(),
        _ => format!("{missing} files are not indexed yet"),
    };
    match reason {
        Some(reason) => format!("{reason}; {more}"),
        None => more,
    }
}

/// What became of a query's text: a vector, or why there is none.
struct EmbeddedQuery {
    /// The query with the vector of its text; `None` if it is put as it was.
    query: Option<Query>,
    /// What the answer's header says of it; `None` if there is nothing to say.
    reason: Option<String>,
    /// Why there is no vector, for the error where a query needs one; `None` if there is.
    obstacle: Option<String>,
}

impl EmbeddedQuery {
    fn no_vector(&self) -> &str {
        self.obstacle.as_deref().unwrap_or("none was given, and the record has none")
    }
}

/// Embeds the text of a query that has no vector, where that is of use, in a share of the time that is left. No lock is held
/// meanwhile.
fn embed_query(
    status: &EmbeddingStatus,
    (sources, files): (&[SearchSource], Option<&FileSource<'_>>),
    query: &Query,
    left: Duration,
) -> Result<EmbeddedQuery, Error> {
    let without_vector = |reason: Option<String>, obstacle| Ok(EmbeddedQuery { query: None, reason, obstacle });
    let Some(text) = query.text.as_deref().filter(|_| query.vector.is_none() && query.mode != Some(Mode::Text)) else {
        return without_vector(None, status.obstacle.as_ref().map(Obstacle::reason));
    };
    if let Some(obstacle) = &status.obstacle {
        // Where nobody ever set an embedder, words are what was asked for.
        let reason = (obstacle.code != "none").then(|| obstacle.reason());
        return without_vector(reason, Some(obstacle.reason()));
    }
    let (Some(slot), Some(vectors)) = (&status.slot, &status.vectors) else { return without_vector(None, None) };
    let (mut unembedded, mut records, mut has_vectors) = (0, 0, files.map_or(Ok(false), FileSource::has_vectors)?);
    for SearchSource { state, derived, .. } in sources {
        unembedded += derived.as_ref().map_or(Ok(0), |derived| derived.unembedded(state))?;
        records += state.totals().records;
        has_vectors |= state.totals().vectors > 0 || derived.as_ref().is_some_and(|derived| derived.has_any(state));
    }
    let of_files = || (files.is_some() && slot.is_working()).then(|| "files are still being embedded".to_owned());
    let of_records = (unembedded > 0).then(|| format!("{unembedded} of {records} records are not embedded yet"));
    let reason = of_records.or_else(of_files);
    if !has_vectors {
        return without_vector(reason.clone(), Some(reason.unwrap_or_else(|| "nothing has a vector".to_owned())));
    }
    let (share, of) = EMBEDDING_SHARE;
    match slot.embed_query(text, vectors.dim, left / of * share) {
        Ok(vector) => {
            Ok(EmbeddedQuery { query: Some(Query { vector: Some(vector), ..query.clone() }), reason, obstacle: None })
        }
        Err(error) => {
            let reason = format!("embedder_missing: {error}");
            without_vector(Some(reason.clone()), Some(reason))
        }
    }
}

/// Returns a log as a source to search: all of it, or with `only_live` what was not archived, which is its base.
fn log_source(name: &str, log: &Branch, status: &EmbeddingStatus, only_live: bool) -> SearchSource {
    let state = if only_live { &log.base } else { &log.state };
    SearchSource { source: name.into(), state: state.clone(), derived: status.vectors.clone(), is_log: true }
}

fn unknown_scope(name: &str) -> Error {
    Error::NoScope(name.chars().take(80).collect())
}
