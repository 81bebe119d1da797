//! A branch as plain maps, and the three-way merge of two.

use std::collections::{BTreeMap, BTreeSet};

/// A value, and when it was written; none is a delete.
pub type Value = (Option<String>, u64);

#[derive(Clone, Default)]
pub struct ModelBranch {
    pub path: String,
    pub parent: Option<usize>,
    pub records: BTreeMap<String, (String, u64)>,
    pub graves: BTreeMap<String, u64>,
    pub base: BTreeMap<String, String>,
    pub checkpoints: BTreeMap<String, BTreeMap<String, (String, u64)>>,
    pub checkpoint_graves: BTreeMap<String, BTreeMap<String, u64>>,
    pub checkpoint_bases: BTreeMap<String, BTreeMap<String, String>>,
    pub strategy: &'static str,
    pub alive: bool,
    /// What it was behind each entry that changed it, and its base then.
    pub history: Vec<(u64, ModelState)>,
}

#[derive(Clone)]
pub struct ModelState {
    pub records: BTreeMap<String, (String, u64)>,
    pub graves: BTreeMap<String, u64>,
    pub base: BTreeMap<String, String>,
}

impl ModelBranch {
    pub fn values(&self) -> BTreeMap<String, String> {
        self.records.iter().map(|(id, (text, _))| (id.clone(), text.clone())).collect()
    }

    pub fn change(&self, id: &str) -> Value {
        match self.records.get(id) {
            Some((text, time)) => (Some(text.clone()), *time),
            None => (None, self.graves.get(id).copied().unwrap_or(0)),
        }
    }

    /// Notes what it is behind an entry.
    pub fn note(&mut self, seq: u64) {
        if self.history.last().is_none_or(|(last, _)| *last < seq) {
            let (records, graves, base) = (self.records.clone(), self.graves.clone(), self.base.clone());
            self.history.push((seq, ModelState { records, graves, base }));
        }
    }

    pub fn with(&self, state: &ModelState, base: &ModelState) -> ModelBranch {
        let base = ModelBranch { records: base.records.clone(), ..Default::default() }.values();
        ModelBranch { records: state.records.clone(), graves: state.graves.clone(), base, ..self.clone() }
    }

    pub fn set(&mut self, id: &str, value: Value) {
        match value {
            (Some(text), time) => {
                self.graves.remove(id);
                self.records.insert(id.to_owned(), (text, time));
            }
            (None, time) => {
                if self.records.remove(id).is_some() {
                    self.graves.insert(id.to_owned(), time);
                }
            }
        }
    }
}

/// The plain three-way merge: for each id by the truth table.
pub fn three_way(child: &ModelBranch, parent: &ModelBranch, name: &str, strategy: &str) -> Option<ModelBranch> {
    let mut result = parent.clone();
    let ids = child.base.keys().chain(child.records.keys()).collect::<BTreeSet<_>>();
    for id in ids {
        let base = child.base.get(id);
        let (ours, theirs) = (parent.change(id), child.change(id));
        if theirs.0.as_ref() == base {
            continue;
        }
        let take = if ours.0.as_ref() == base {
            true
        } else if ours.0 == theirs.0 {
            false
        } else if strategy == "keep-both" && base.is_none() {
            let ids = (1..).map(|n| if n == 1 { format!("{id}~{name}") } else { format!("{id}~{name}~{n}") });
            let of_all = [&parent.records, &child.records, &result.records];
            let is_free = |id: &String| of_all.iter().all(|records| !records.contains_key(id));
            let id = ids.into_iter().find(is_free).unwrap();
            result.set(&id, theirs.clone());
            false
        } else {
            match strategy {
                "child-wins" => true,
                "parent-wins" => false,
                "manual" => return None,
                // Of a record that is in the base `keep-both` keeps the later one, too.
                "newest-wins" | "keep-both" => ours.1 <= theirs.1,
                other => panic!("the model has no rule for {other}"),
            }
        };
        if take {
            result.set(id, theirs);
        }
    }
    Some(result)
}
