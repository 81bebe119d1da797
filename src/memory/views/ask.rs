//! Asking a view.

use crate::memory::catalog::ResolvedView;
use crate::memory::catalog::View;
use crate::memory::{Error, Memory};
use crate::search::{Answer, Query, SearchError, SearchSource, ask};

impl Memory {
    /// Answers a query to a view for the store's owner; see [`Memory::ask_for`].
    pub fn ask(&self, view: &View, query: &Query) -> Result<Answer, Error> {
        self.ask_for(self.environment.owner.uid, view, query)
    }

    /// Answers a query to a view, by default from the branch and the shared log, in turns with what else a user
    /// asks.
    ///
    /// Kind `Timeout` when the query's time limit is reached, `Invalid` for a vector of another
    /// length or an unknown scope, `NotFound` for an id that is not there.
    pub fn ask_for(&self, uid: u32, view: &View, query: &Query) -> Result<Answer, Error> {
        let start = self.now();
        let (places, metric, language, path) = {
            let catalog = self.catalog();
            let seen = ResolvedView::new(&catalog, view)?;
            let mut places = Vec::new();
            for name in &query.scope {
                match name.as_str() {
                    "branch" => places.insert(0, SearchSource { source: "branch".into(), state: seen.state.clone() }),
                    // The shared log has no entries yet.
                    "log" => {}
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
        let share = self.admission.shares.enter(uid);
        let late = || {
            share.pause();
            (self.now() >= deadline).then_some(SearchError::Timeout(query.timeout_ms))
        };
        let head = places
            .first()
            .map_or_else(|| self.state(view).map(|state| state.head()), |place| Ok(place.state.head()))?;
        let asked = ask(&places, metric, language, query, &late)?;
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
