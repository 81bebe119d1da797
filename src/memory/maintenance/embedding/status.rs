//! The state of the embedder of a root branch: what queries may use, and what people are told.

use std::sync::Arc;

use serde_json::{Value, json};

use super::EmbedderSlot;
use crate::branch::BranchVersion;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{Branch, Catalog, CatalogChange, EmbedderRecord};
use crate::memory::{Error, Memory, RecordError, SettingError};
use crate::search::DerivedVectors;
use crate::segment::SegmentError;

/// Characters that `status` shows of an embedder's name, and of its complaint.
const ERROR_CHARS_MAX: usize = 300;

const NO_EMBEDDER: &str = "no embedder is set, so words are matched; to match meaning, mount with \
                                                 --embed MODEL-FOLDER, URL#MODEL or cmd:COMMAND";

/// The state of the embedder of a root branch, as queries and `status` need it.
pub(in crate::memory) struct EmbeddingStatus {
    /// `None` where no embedder is set for the root branch.
    pub slot: Option<Arc<EmbedderSlot>>,
    /// What an entry says of the embedder whose vectors count; `None` before the first such entry.
    pub record: Option<EmbedderRecord>,
    /// The vectors that count; `None` if there can be none.
    pub vectors: Option<DerivedVectors>,
    /// Why a text of a query is not embedded; `None` where it is.
    pub obstacle: Option<Obstacle>,
    /// Whether a `reembed` is making another set; until it is whole this one counts.
    pub rebuilding: bool,
}

/// Why texts of queries are not embedded, so that they are matched by words.
pub(in crate::memory) struct Obstacle {
    /// A word for programs: `none`, `embedder_missing` or `embedder_changed`.
    pub code: &'static str,
    /// What is the matter, and what to do about it.
    pub text: String,
}

impl Obstacle {
    fn embedder_missing(text: impl Into<String>) -> Obstacle {
        Obstacle { code: "embedder_missing", text: text.into() }
    }

    /// Returns the reason that an answer's header gives: `CODE: TEXT`, of `none` the text alone.
    pub fn reason(&self) -> String {
        if self.code == "none" { self.text.clone() } else { format!("{}: {}", self.code, self.text) }
    }
}

impl EmbeddingStatus {
    /// Returns how many records of a state have a text and no vector: of those that an embedder would make one of.
    /// [`SegmentError::Io`] or [`SegmentError::Damaged`] if a segment can't be read.
    pub fn unembedded(&self, state: &BranchVersion) -> Result<u64, SegmentError> {
        match &self.vectors {
            Some(vectors) => vectors.unembedded(state),
            None => Ok(state.totals().records.saturating_sub(state.totals().vectors)),
        }
    }

    /// Returns what `status` shows: null without an embedder, else an object of `name`, `dim`, `identity`, `state`
    /// (`ready`, `missing` or `changed`), `reembedding` and `detail`. Name and detail are cut to 300 characters; what
    /// is not known is null.
    pub fn to_json(&self) -> Value {
        let shown = self.slot.as_ref().map(|slot| slot.embedder.name().to_owned());
        let name = self.record.as_ref().map(|record| record.name.to_string()).or(shown);
        let Some(name) = name else { return Value::Null };
        let state = match &self.obstacle {
            None => "ready",
            Some(obstacle) => obstacle.code.trim_start_matches("embedder_"),
        };
        let detail = self.obstacle.as_ref().map(|obstacle| &*obstacle.text);
        json!({
            "name": name.chars().take(ERROR_CHARS_MAX).collect::<String>(),
            "dim": self.record.as_ref().map(|record| record.dim),
            "identity": self.record.as_ref().map(|record| record.identity.to_string()),
            "state": state, "reembedding": self.rebuilding,
            "detail": detail.map(|text| text.chars().take(ERROR_CHARS_MAX).collect::<String>()),
        })
    }
}

impl Memory {
    /// Returns the state of a branch's embedder. Fails with `Error::Gone` if the root branch is not in this version of
    /// the catalog.
    pub(in crate::memory) fn embedding_status(
        &self,
        catalog: &Catalog,
        branch: &Branch,
    ) -> Result<EmbeddingStatus, Error> {
        let (root, record) = (catalog.branch(branch.root)?, catalog.embedder(branch)?);
        let slot = self.maintenance.embedding.find_slot(root);
        let rebuilding = slot.as_ref().is_some_and(|slot| slot.is_reembedding(root.id));
        let obstacle = obstacle(slot.as_deref(), record.as_ref(), root.settings.dim());
        let fits = |record: &&EmbedderRecord| root.settings.dim().is_none_or(|dim| dim == record.dim);
        let vectors = record.as_ref().filter(fits).map(|record| match &slot {
            Some(slot) => slot.derived_vectors(record),
            None => DerivedVectors { embedder: record.derived_set(), dim: record.dim, recent: Default::default() },
        });
        Ok(EmbeddingStatus { slot, record, vectors, obstacle, rebuilding })
    }
}

impl Memory {
    /// Returns how many numbers the vectors of the embedder of a root branch have; `None` before its entry, and where it
    /// is not set now, or is not used for having another number of them than that entry or `config/dim` says.
    pub(in crate::memory) fn embedder_dim(&self, root: &Branch) -> Option<usize> {
        let slot = self.maintenance.embedding.find_slot(root)?;
        let dim = EmbedderRecord::parse_without_probes(root.settings.get(Setting::Embedder))?.dim;
        let fits_set = root.settings.dim().is_none_or(|set| set == dim);
        (fits_set && slot.identity().is_ok_and(|identity| identity.dim == dim)).then_some(dim)
    }

    /// Checks a command that is about to be done: while an embedder serves, no first vector and no setting of another
    /// branch may fix another length than that of its vectors, which would turn it off for all.
    ///
    /// [`RecordError::Dimension`] for a vector, [`SettingError::Fixed`] for `config/dim`. A replay does not ask, as it
    /// knows no embedder.
    pub(in crate::memory) fn check_embedder_dim(
        &self,
        catalog: &Catalog,
        changes: &[CatalogChange],
    ) -> Result<(), Error> {
        for change in changes {
            if let CatalogChange::Set(root, Setting::Dim, value) = change
                && let Ok(found) = value.parse::<usize>()
                && let Some(expected) = catalog.branches.get(root).and_then(|root| self.embedder_dim(root))
                && found != expected
            {
                let is_vector = changes.iter().any(|change| matches!(change, CatalogChange::FixDimAndMetric(_)));
                return Err(match is_vector {
                    true => RecordError::Dimension { found, expected }.into(),
                    false => SettingError::Fixed(Setting::Dim.name()).into(),
                });
            }
        }
        Ok(())
    }
}

fn obstacle(slot: Option<&EmbedderSlot>, record: Option<&EmbedderRecord>, dim: Option<usize>) -> Option<Obstacle> {
    let Some(slot) = slot else {
        return Some(match record {
            None => Obstacle { code: "none", text: NO_EMBEDDER.to_owned() },
            Some(record) => Obstacle::embedder_missing(format!(
                "the vectors here were made by {}, which is not set now, so words are matched; mount with --embed",
                record.name
            )),
        });
    };
    let identity = match slot.identity() {
        Ok(identity) => identity,
        Err(None) => return Some(Obstacle::embedder_missing(format!("{} was not reached yet", slot.embedder.name()))),
        Err(Some(error)) => return Some(Obstacle::embedder_missing(format!("{error}; {}", error.hint()))),
    };
    if let Some(dim) = dim.filter(|dim| *dim != identity.dim) {
        let text = format!(
            "vectors here have {dim} numbers and those of {} {}, so its vectors are not used; give one that fits",
            identity.name, identity.dim
        );
        return Some(Obstacle { code: "embedder_changed", text });
    }
    let changed = |name: &str| {
        let text = format!(
            "the vectors here were made by {name}, and {} makes others; run engramfs reembed, or set the one before",
            identity.name
        );
        Some(Obstacle { code: "embedder_changed", text })
    };
    match record.map(|record| (record, slot.is_of_set(&record.derived_set()))) {
        // Until the vectors of the fixed texts were compared, those that are stored may be another embedder's.
        None | Some((_, None)) => Some(Obstacle::embedder_missing(format!("{} is being made known", identity.name))),
        Some((record, Some(false))) => changed(&record.name),
        Some((_, Some(true))) => None,
    }
}
