//! Gates: the conditions under which a branch takes merges.
//!
//! Nothing is run and nobody is asked here. A [`Gate`] looks at what a merge does; what that leaves open, such as who has
//! approved, are [`Requirement`]s for whoever does the merge.

use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// The value of `config/gate` that asks for nothing.
pub const OPEN: &str = "open";
/// Conditions of one gate at most.
const CONDITIONS_MAX: usize = 64;
/// How deep braces nest in a pattern that is parsed, since its parser follows them by recursion. The regular expression that comes of
/// it nests 250 deep at most, and each level of braces takes up to three of these.
const BRACES_MAX: usize = 500;

/// The conditions of a gate, at most 64. All have to hold.
///
/// ```
/// use engramfs::merge::gate::{ChangedPath, Gate, MergeExtent, Requirement};
///
/// let gate = Gate::parse("approval 2 for files/core/**\ndeletes 0").unwrap();
/// let gone = ChangedPath { path: "files/core/plan.md".into(), is_deleted: true };
/// let findings = gate.examine(&MergeExtent { changed: &[gone], conflicts: 0 });
///
/// assert_eq!(findings.reasons, ["deletes 0: there are 1 deletes"]);
/// let (line, requirement) = &findings.requirements[0];
/// assert_eq!(&**line, "approval 2 for files/core/**");
/// assert_eq!(*requirement, Requirement::Approvals { count: 2, is_strict: false });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Gate(Vec<(Arc<str>, Condition)>);

#[derive(Clone, Debug)]
enum Condition {
    /// So many approvers have approved; with patterns that is asked for only where the merge changes something that
    /// matches.
    Approval { count: usize, paths: Option<GlobSet>, is_strict: bool },
    /// At most this many records and files are deleted.
    Deletes(u64),
    /// At most this many are added or changed.
    Puts(u64),
    /// At most this many conflicts were decided.
    Conflicts(u64),
    /// Nothing is changed but what matches.
    Only(GlobSet),
    /// The agent has written a summary to the shared log.
    Summary,
}

/// What a merge does to the branch that receives it.
#[derive(Clone, Copy, Debug)]
pub struct MergeExtent<'a> {
    /// What changes: records as `vectors/ID`, files as `files/PATH`.
    pub changed: &'a [ChangedPath],
    /// How many records and files both sides changed differently, decided ones included.
    pub conflicts: u64,
}

/// One path that a merge changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedPath {
    /// Its name, as `diff` shows it; `vectors/ID` for a record.
    pub path: Arc<str>,
    /// Whether it is there no longer; else it is new or changed, and counts among `puts`.
    pub is_deleted: bool,
}

/// A requirement that does not follow from the merge itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// This many approvals of the plan. Strict ones hold only while both heads stay as they were.
    Approvals {
        /// How many, from 1.
        count: usize,
        /// Whether an approval holds only for the two heads it was given for.
        is_strict: bool,
    },
    /// An entry of the child's agent in the shared log since the base.
    Summary,
}

/// What a gate says of a merge; with neither reasons nor requirements it lets it pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateFindings {
    /// Why it refuses; nobody can change that but by changing the branch.
    pub reasons: Vec<String>,
    /// What it still asks for, each with the line of the gate.
    pub requirements: Vec<(Arc<str>, Requirement)>,
}

impl Gate {
    /// Parses `config/gate`, one condition a line; `None` if a line is not a condition, or there are more than 64.
    ///
    /// Conditions are `approval N [for PATTERN …] [strict]` with N from 1, `deletes N`, `puts N`, `conflicts N`, each
    /// with at most N, `only PATTERN …` and `summary`. The line `open` asks for nothing; blank lines and those that
    /// begin with `#` are left out.
    ///
    /// ```
    /// use engramfs::merge::gate::Gate;
    ///
    /// let gate = Gate::parse("approval 2 for files/core/**\ndeletes 10").unwrap();
    /// assert!(!gate.is_open());
    /// assert!(Gate::parse("open").unwrap().is_open());
    /// assert!(Gate::parse("score 0.9").is_none(), "a score never opens a gate");
    /// ```
    pub fn parse(text: &str) -> Option<Gate> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut conditions = Vec::new();
        // One bad line makes the whole gate invalid: passing over it would open the gate wider than its writer meant.
        for line in lines.filter(|line| *line != OPEN) {
            conditions.push((line.into(), Condition::parse(line)?));
        }
        (conditions.len() <= CONDITIONS_MAX).then_some(Gate(conditions))
    }

    /// Returns whether it asks for nothing, so that merges need not be looked at.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether it requires a summary in the shared log, which is looked up before the merge.
    pub fn asks_summary(&self) -> bool {
        self.0.iter().any(|(_, condition)| matches!(condition, Condition::Summary))
    }

    /// Looks at what a merge does, and returns what stands against it, in the order of the lines. A reason has
    /// its line in front, as in `deletes 0: there are 1 deletes`. With neither reasons nor requirements the gate lets
    /// it pass.
    pub fn examine(&self, extent: &MergeExtent<'_>) -> GateFindings {
        let mut findings = GateFindings::default();
        for (line, condition) in &self.0 {
            match condition.examine(extent) {
                ConditionResult::Holds => {}
                ConditionResult::Fails(reason) => findings.reasons.push(format!("{line}: {reason}")),
                ConditionResult::Asks(demand) => findings.requirements.push((line.clone(), demand)),
            }
        }
        findings
    }
}

enum ConditionResult {
    Holds,
    Fails(String),
    Asks(Requirement),
}

impl Condition {
    fn parse(line: &str) -> Option<Condition> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().ok();
        Some(match *words.as_slice() {
            ["approval", count, ref rest @ ..] => {
                // Taken off before the patterns are read, or `strict` would be one of them.
                let (rest, is_strict) = match rest {
                    [rest @ .., "strict"] => (rest, true),
                    rest => (rest, false),
                };
                let paths = match rest {
                    [] => None,
                    ["for", patterns @ ..] if !patterns.is_empty() => Some(build_globs(patterns)?),
                    _ => return None,
                };
                let count = count.parse().ok().filter(|count| *count > 0)?;
                Condition::Approval { count, paths, is_strict }
            }
            ["deletes", most] => Condition::Deletes(number(most)?),
            ["puts", most] => Condition::Puts(number(most)?),
            ["conflicts", most] => Condition::Conflicts(number(most)?),
            ["only", ref patterns @ ..] if !patterns.is_empty() => Condition::Only(build_globs(patterns)?),
            ["summary"] => Condition::Summary,
            _ => return None,
        })
    }

    fn examine(&self, extent: &MergeExtent<'_>) -> ConditionResult {
        let at_most = |found: u64, most: u64, what: &str| match found <= most {
            true => ConditionResult::Holds,
            false => ConditionResult::Fails(format!("there are {found} {what}")),
        };
        let count = |deleted: bool| extent.changed.iter().filter(|change| change.is_deleted == deleted).count() as u64;
        match self {
            // An approval for some paths is not asked for where the merge touches none of them.
            Condition::Approval { paths: Some(paths), .. }
                if !extent.changed.iter().any(|change| matches(paths, &change.path)) =>
            {
                ConditionResult::Holds
            }
            Condition::Approval { count, is_strict, .. } => {
                ConditionResult::Asks(Requirement::Approvals { count: *count, is_strict: *is_strict })
            }
            Condition::Deletes(most) => at_most(count(true), *most, "deletes"),
            Condition::Puts(most) => at_most(count(false), *most, "puts"),
            Condition::Conflicts(most) => at_most(extent.conflicts, *most, "conflicts"),
            Condition::Only(paths) => match extent.changed.iter().find(|change| !matches(paths, &change.path)) {
                Some(other) => ConditionResult::Fails(format!("{} is changed, too", other.path)),
                None => ConditionResult::Holds,
            },
            Condition::Summary => ConditionResult::Asks(Requirement::Summary),
        }
    }
}

/// A record is matched with and without the end of its file's name.
fn matches(patterns: &GlobSet, path: &str) -> bool {
    patterns.is_match(path) || (path.starts_with("vectors/") && patterns.is_match(format!("{path}.json")))
}

/// As in rules: `*` stands for anything but `/`, `**` for any number of directories.
fn build_globs(patterns: &[&str]) -> Option<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        // What matches nothing that is ever changed is a mistake.
        let known = pattern.starts_with("files/") || pattern.starts_with("vectors/") || pattern.starts_with("**");
        // Before it is parsed: too deep a pattern would end the process.
        if brace_depth(pattern) > BRACES_MAX {
            return None;
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build().ok()?;
        known.then(|| set.add(glob))?;
    }
    set.build().ok()
}

/// Returns how deep braces nest at most; an escaped one counts, too.
fn brace_depth(pattern: &str) -> usize {
    let (mut depth, mut most) = (0usize, 0);
    for byte in pattern.bytes() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(paths: &[&str]) -> Vec<ChangedPath> {
        let change = |path: &&str| {
            let (path, is_deleted) = path.strip_prefix('-').map_or((*path, false), |path| (path, true));
            ChangedPath { path: path.into(), is_deleted }
        };
        paths.iter().map(change).collect()
    }

    fn examine(gate: &str, paths: &[&str], conflicts: u64) -> GateFindings {
        let changed = changed(paths);
        Gate::parse(gate).unwrap_or_default().examine(&MergeExtent { changed: &changed, conflicts })
    }

    #[test]
    fn limits_count_what_changes() {
        assert_eq!(examine("deletes 1\nputs 1", &["-vectors/a", "files/b"], 0), GateFindings::default());
        assert_eq!(examine("deletes 0", &["-vectors/a"], 0).reasons, ["deletes 0: there are 1 deletes"]);
        assert_eq!(examine("puts 1", &["vectors/a", "files/b"], 0).reasons, ["puts 1: there are 2 puts"]);
        assert_eq!(examine("conflicts 0", &[], 3).reasons, ["conflicts 0: there are 3 conflicts"]);
    }

    #[test]
    fn only_names_all_that_may_change() {
        let gate = "only vectors/note-* files/notes/**";
        assert_eq!(examine(gate, &["vectors/note-1", "-files/notes/a/b"], 0), GateFindings::default());
        assert_eq!(examine(gate, &["files/other"], 0).reasons.len(), 1);
        assert_eq!(examine("only vectors/*.json", &["vectors/a"], 0), GateFindings::default());
        assert_eq!(examine("only files/*", &["files/a/b"], 0).reasons.len(), 1, "* leads into no directory");
    }

    #[test]
    fn approvals_for_a_pattern_are_asked_where_it_is_touched() {
        let gate = "approval 2 for files/core/** strict";
        assert_eq!(examine(gate, &["files/other"], 0), GateFindings::default());
        let requirements = examine(gate, &["-files/core/prd/a.json"], 0).requirements;
        assert_eq!(requirements, [(gate.into(), Requirement::Approvals { count: 2, is_strict: true })]);
        assert_eq!(examine("approval 1", &[], 0).requirements.len(), 1);
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for bad in [
            "",
            "approval",
            "approval 0",
            "approval x",
            "approval 1 of files/a",
            "only",
            "only a/b",
            "deletes -1",
            "score 1",
        ] {
            assert!(Gate::parse(bad).is_none_or(|gate| gate.is_open() && bad.is_empty()), "{bad}");
        }
        assert!(Gate::parse("approval 1\nnonsense").is_none(), "no line is passed over");
    }

    #[test]
    fn a_gate_has_64_conditions_at_most() {
        let gate = |count: usize| Gate::parse(&"deletes 1\n".repeat(count));
        assert!(gate(64).is_some() && gate(65).is_none());
        assert!(
            Gate::parse(&format!("open\n# a comment\n{}", "deletes 1\n".repeat(64))).is_some(),
            "lines that ask for something"
        );
    }

    /// The matcher follows braces by recursion, and what owners write must not end the server.
    #[test]
    fn braces_nest_to_a_limit() {
        let gate = |depth: usize| format!("only files/{}a{}", "a{b,c".repeat(depth), "}".repeat(depth));
        assert!(Gate::parse(&gate(80)).is_some());
        assert!([251, 501, 32_000].into_iter().all(|depth| Gate::parse(&gate(depth)).is_none()));
        assert!(Gate::parse(&format!("only files/{}", "{a,b}".repeat(600))).is_some(), "side by side is not deep");
        // Escaped ones count, too, and never nest in the regular expression, whose own limit is lower.
        let escaped = |count: usize| Gate::parse(&format!("only files/{}", r"\{".repeat(count))).is_some();
        assert_eq!([BRACES_MAX, BRACES_MAX + 1].map(escaped), [true, false]);
    }
}
