//! How the contents of a file merge that both sides changed: the table of kinds.
//!
//! A kind that looks inside is one file here, with its [`KindSpec`] and what it can't merge, and its line of [`KINDS`]; rules,
//! hints and plans know it by these.

mod json;
mod keyed_items;
mod manifest;
mod text;
mod union;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Contents, Fallback, MergedContent, Strategy};

/// All kinds, in the order in which the hint for a bad rule lists them.
pub(super) const KINDS: [&KindSpec; 7] =
    [&union::UNION, &NEWEST, &manifest::MANIFEST, &text::TEXT, &WHOLE, &UNIT, &NEVER];

/// The file that was changed later is taken.
const NEWEST: KindSpec =
    KindSpec { name: "newest", takes_key: false, strategy: Some(Strategy::NewestWins), method: MergeMethod::Whole };
/// Both changed is a conflict, which the strategy of the rule or else of the branch decides.
const WHOLE: KindSpec = KindSpec { name: "whole", takes_key: false, strategy: None, method: MergeMethod::Whole };
/// A directory, or a file with its companions, is taken as a whole from one side; both changed is a conflict.
const UNIT: KindSpec =
    KindSpec { name: "unit", takes_key: false, strategy: Some(Strategy::Manual), method: MergeMethod::Whole };
/// The file does not merge at all: each branch keeps its own.
const NEVER: KindSpec = KindSpec { name: "never", takes_key: false, strategy: None, method: MergeMethod::Never };

/// What tells a merge kind from others: rules, hints and plans know it by this alone.
#[derive(Debug)]
pub(super) struct KindSpec {
    /// The word in `config/rules`, unique among [`KINDS`].
    pub name: &'static str,
    /// Whether a key follows the word; a rule without it is refused.
    pub takes_key: bool,
    /// How its conflicts are decided where the rule does not say, whatever the branch says; none follows the branch.
    pub strategy: Option<Strategy>,
    /// What it does with contents that both sides changed.
    pub method: MergeMethod,
}

/// What a kind does with contents that both sides changed.
#[derive(Debug)]
pub(super) enum MergeMethod {
    /// Nothing: the parent's stays.
    Never,
    /// It takes one of them, without reading either.
    Whole,
    /// It reads them. It gets the key, empty if it takes none; a [`Fallback`] has them merged as a whole.
    ByContent(fn(&Contents<'_>, &str, Strategy) -> Result<MergedContent, Fallback>),
}

/// A kind named in a rule: its row of the table, and its key.
#[derive(Clone, Debug)]
pub struct FileMergeKind {
    spec: &'static KindSpec,
    key: Arc<str>,
}

impl FileMergeKind {
    /// Returns the kind of files that no rule names: three-way by lines, overlapping changes are a conflict.
    pub fn text() -> FileMergeKind {
        FileMergeKind::new(&text::TEXT, "")
    }

    /// Returns the kind of files that are taken as a whole from one side.
    pub(super) fn whole() -> FileMergeKind {
        FileMergeKind::new(&WHOLE, "")
    }

    /// Returns a kind of the table; `key` is empty if it takes none.
    pub(super) fn new(spec: &'static KindSpec, key: &str) -> FileMergeKind {
        FileMergeKind { spec, key: key.into() }
    }

    /// Returns its name in `config/rules`.
    pub fn name(&self) -> &'static str {
        self.spec.name
    }

    /// Returns the key that the rule names, such as `event_id`; empty if the kind takes none.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Returns whether each branch keeps its own, so that plans leave such files out.
    pub(super) fn never_merges(&self) -> bool {
        matches!(self.spec.method, MergeMethod::Never)
    }

    /// Returns whether such a file is decided together with its companions, as a unit.
    pub(super) fn is_unit(&self) -> bool {
        self.name() == UNIT.name
    }

    /// Returns whether it is that of files that no rule names: databases among them are units.
    pub(super) fn is_text(&self) -> bool {
        self.name() == text::TEXT.name
    }

    /// Returns whether merging means to read what the file holds.
    pub(super) fn reads_content(&self) -> bool {
        matches!(self.spec.method, MergeMethod::ByContent(_))
    }

    /// Returns the row of [`KINDS`] that it was made of.
    pub(super) fn spec(&self) -> &'static KindSpec {
        self.spec
    }
}

impl PartialEq for FileMergeKind {
    fn eq(&self, other: &FileMergeKind) -> bool {
        (self.name(), &self.key) == (other.name(), &other.key)
    }
}

impl Eq for FileMergeKind {}

impl Hash for FileMergeKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name(), &self.key).hash(state);
    }
}

/// Returns the hint of a refused rule: all words of [`KINDS`], each with KEY where it takes one.
pub(super) fn hint() -> String {
    let words = KINDS.map(|spec| if spec.takes_key { format!("{} KEY", spec.name) } else { spec.name.to_owned() });
    let (last, others) = words.split_last().expect("there are kinds");
    format!("write {} or {last} behind the pattern, or the line include workspace", others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::files::Rules;

    #[test]
    fn each_kind_is_named_by_rules_the_hint_and_the_page() {
        let page = include_str!("../../../../docs/SEMANTICS.md");
        for spec in KINDS {
            let key = if spec.takes_key { " id" } else { "" };
            let rules = Rules::parse(&format!("* {}{key}", spec.name)).expect("a rule of that kind");
            let kind = &rules.rule_for(b"a").kind;
            assert_eq!((kind.name(), kind.key()), (spec.name, key.trim()));
            assert!(hint().contains(spec.name));
            let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
            let is_about =
                |row: &&str| row.contains(&format!("`{}`", spec.name)) || row.contains(&format!("`{} ", spec.name));
            assert!(rows.iter().any(is_about), "no table of docs/SEMANTICS.md has a row for {}", spec.name);
        }
        assert_eq!(
            hint(),
            "write union KEY, newest, manifest KEY, text, whole, unit or never behind the pattern, or the line include workspace"
        );
    }
}
