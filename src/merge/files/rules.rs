//! All rules of a branch, and which of them is for a path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Candidate, Glob, GlobBuilder, GlobSet};
use thiserror::Error;

use super::kind::FileMergeKind;
use super::rule::{Rule, RuleFault, truncated_for_message};
use crate::lineage::Strategy;
use crate::workspace::{Tree, TreeError};

/// The rules of a new root branch, as `config/rules` shows them.
pub const DEFAULT_RULES: &str = "*.jsonl  union event_id
**       text";

/// Stands for [`WORKSPACE_RULES`] where it is a line of the rules.
const INCLUDE: &str = "include";
/// The rules of a versioned agent workspace, for those who lay their files out like one.
const WORKSPACE_RULES: &str = "/core/**                           text manual
/memory/agent_state/**             newest
/memory/episodic/**                never ttl=24h
/memory/**/*.jsonl                 union event_id
/embeddings/index/**               manifest artifact_id
/embeddings/vectors/**             never
/.sdlc_ide/logs/audit_trail.jsonl  union event_id append
/.sdlc_ide/logs/**                 never append
/.sdlc_ide/**                      never
/cache/**                          never";

/// Longest pattern, in bytes. It bounds how deep braces nest, which the matcher follows by recursion.
const PATTERN_BYTES_MAX: usize = 1024;

/// A line of the rules that can't be parsed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line} of the rules: {problem}")]
pub struct RuleError {
    /// The line's number, from 1.
    pub line: usize,
    /// What is wrong, with the word in question.
    pub problem: String,
    /// What to write instead, beginning with "write".
    pub hint: String,
}

/// The rules for the files of a branch; the first that matches a path counts.
///
/// ```
/// use engramfs::lineage::Strategy;
/// use engramfs::merge::files::Rules;
///
/// let rules = Rules::parse("/core/** text manual\n*.jsonl union event_id append").unwrap();
/// assert_eq!(rules.rule_for(b"logs/today.jsonl").kind.name(), "union");
/// assert!(rules.rule_for(b"logs/today.jsonl").append);
/// assert_eq!(rules.rule_for(b"core/plan.md").strategy(Strategy::NewestWins), Strategy::Manual);
/// // What no rule names merges as a text.
/// assert_eq!(rules.rule_for(b"notes/plan.md").kind.name(), "text");
///
/// let error = Rules::parse("*.md text\n*.log onion").unwrap_err();
/// assert_eq!((error.line, error.problem.as_str()), (2, "'onion' is no kind of merge"));
/// println!("{error}; {}", error.hint);
/// ```
#[derive(Clone, Debug)]
pub struct Rules {
    patterns: GlobSet,
    /// In order of their lines, and one more: for the paths that none matches.
    rules: Box<[Rule]>,
}

impl Rules {
    /// Parses the text of `config/rules`: one rule a line, blank lines and `#` comments allowed.
    ///
    /// A line is `PATTERN KIND [KEY] [OPTION …]`. In patterns `*` and `?` stand for anything but
    /// `/`, `**` for any number of directories, `[a-z]` for one of these characters and `[!a-z]` for any
    /// other, `{a,b}` for either, `\` takes the next character as it is; blanks are written `?`. A
    /// pattern that begins with `/` starts at `files/`, all others match at any depth. The line
    /// `include workspace` stands for the rules of a layout. Fails at the first bad line.
    pub fn parse(text: &str) -> Result<Rules, RuleError> {
        let (mut globs, mut rules) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let at = |fault: RuleFault| RuleError { line: index + 1, problem: fault.problem, hint: fault.hint.into() };
            for line in expand_include(line).map_err(at)?.lines() {
                let rule = Rule::parse(line).map_err(at)?;
                globs.push(glob(&rule.pattern).map_err(at)?);
                rules.push(rule);
            }
        }
        // A list of rules names exceptions. What it does not name merges as under the last default.
        rules.push(Rule::new("**", FileMergeKind::text()));
        let patterns = GlobSet::new(&globs).map_err(|error| RuleError {
            line: text.lines().count(),
            problem: format!("the patterns up to here are too much for the matcher ({error})"),
            hint: "write fewer or simpler patterns".into(),
        })?;
        Ok(Rules { patterns, rules: rules.into() })
    }

    /// Returns the rule for a path, which is relative to `files/` and has no `/` in front.
    ///
    /// A path that no rule matches is `text` without options, like under the default's last line.
    pub fn rule_for(&self, path: &[u8]) -> &Rule {
        let matching = self.patterns.matches_candidate(&Candidate::new(Path::new(OsStr::from_bytes(path))));
        let first = matching.into_iter().min().unwrap_or(self.rules.len() - 1);
        &self.rules[first]
    }

    /// Returns the rules with the sides of their strategies exchanged: for a pull, where the branch
    /// receives.
    pub fn with_sides_swapped(&self) -> Rules {
        let turn = |rule: &Rule| Rule { strategy: rule.strategy.map(Strategy::with_sides_swapped), ..rule.clone() };
        Rules { patterns: self.patterns.clone(), rules: self.rules.iter().map(turn).collect() }
    }

    /// Returns the rules with what never merges merging as a whole: for a revert, where both sides are one branch.
    pub fn with_all_merging(&self) -> Rules {
        let merge = |rule: &Rule| {
            let kind = if rule.kind.never_merges() { FileMergeKind::whole() } else { rule.kind.clone() };
            Rule { kind, ..rule.clone() }
        };
        Rules { patterns: self.patterns.clone(), rules: self.rules.iter().map(merge).collect() }
    }

    /// Returns whether something in one of the trees merges by its rule. Fails with [`TreeError::Exceeded`] if a tree has
    /// more than `limit` paths.
    pub fn merge_any(&self, trees: &[&Tree], limit: usize) -> Result<bool, TreeError> {
        for tree in trees {
            let all = Tree::default().differences_at_most(tree, limit).ok_or(TreeError::Exceeded)?;
            let mut below = all.iter().filter(|it| !it.path.is_empty());
            if below.any(|it| !self.rule_for(&it.path).kind.never_merges()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether some rule says who may write, or how.
    pub fn restrict_writes(&self) -> bool {
        self.iter().any(|rule| rule.write.is_some() || rule.append)
    }

    /// Returns whether some rule keeps files out of what queries find.
    pub fn has_noindex(&self) -> bool {
        self.iter().any(|rule| rule.noindex)
    }

    /// Returns the rules in the order of their lines, without the default rule.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules[..self.rules.len() - 1].iter()
    }
}

impl Default for Rules {
    /// Returns [`DEFAULT_RULES`], parsed.
    fn default() -> Rules {
        Rules::parse(DEFAULT_RULES).expect("the default rules are well formed, as a test proves")
    }
}

/// Returns the rules that a line means: itself, unless it includes a layout.
fn expand_include(line: &str) -> Result<&str, RuleFault> {
    let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
    if words.next() != Some(INCLUDE) {
        return Ok(line);
    }
    match (words.next(), words.next()) {
        (Some("workspace"), None) => Ok(WORKSPACE_RULES),
        (name, _) => {
            let problem = format!("'{}' is nothing to include", truncated_for_message(name.unwrap_or_default()));
            Err(RuleFault::new(problem, "write include workspace, or ?include for files of that name"))
        }
    }
}

/// Compiles a pattern into a glob over paths relative to `files/`.
fn glob(pattern: &str) -> Result<Glob, RuleFault> {
    const HINT: &str = "write a pattern such as *.md, core/** or /notes/{a,b}.txt";
    let fault =
        |why: &str| RuleFault::new(format_args!("'{}' is no pattern: {why}", truncated_for_message(pattern)), HINT);
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(fault("it is longer than 1024 bytes"));
    }
    if pattern.ends_with('/') {
        return Err(RuleFault::new(
            format_args!("'{}' ends in a slash", truncated_for_message(pattern)),
            "write core/** for all that is in the directory core",
        ));
    }
    let anchored = match pattern.strip_prefix('/') {
        Some(path) => path.to_owned(),
        None => format!("**/{pattern}"),
    };
    let built = GlobBuilder::new(&anchored).literal_separator(true).backslash_escape(true).build();
    built.map_err(|error| fault(&error.kind().to_string()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::rule::Principal;
    use super::*;
    use crate::lineage::Strategy;

    fn rule_kind(rules: &Rules, path: &str) -> String {
        rules.rule_for(path.as_bytes()).kind.name().into()
    }

    #[test]
    fn the_default_rules_leave_nothing_out() {
        let rules = Rules::default();
        for (path, kind) in [
            ("log.jsonl", "union"),
            ("a/cache/log.jsonl", "union"),
            ("core/a.md", "text"),
            ("agent_state/plan.json", "text"),
            ("src/cache/mod.rs", "text"),
            ("tmp/x", "text"),
            ("episodic/x", "text"),
        ] {
            assert_eq!(rule_kind(&rules, path), kind, "{path}");
        }
        assert_eq!(rules.rule_for(b"x.jsonl").kind.key(), "event_id");
        assert_eq!(rules.iter().count(), 2);
    }

    #[test]
    fn a_line_includes_the_rules_of_a_workspace_at_its_place() {
        let rules = Rules::parse("/cache/keep whole\n  include   workspace # the layout\n*.md never").unwrap();
        for (path, kind) in [
            ("cache/keep", "whole"),
            ("cache/x", "never"),
            ("x/cache/a", "text"),
            ("core/a.md", "text"),
            ("x/core/a.md", "never"),
            ("memory/agent_state/deep/er.jsonl", "newest"),
            ("memory/episodic/x.jsonl", "never"),
            ("memory/a/b/log.jsonl", "union"),
            ("memory/log.jsonl", "union"),
            ("log.jsonl", "text"),
            ("embeddings/index/m.json", "manifest"),
            ("embeddings/vectors/v.bin", "never"),
            (".sdlc_ide/logs/audit_trail.jsonl", "union"),
            (".sdlc_ide/logs/other.jsonl", "never"),
            (".sdlc_ide/state", "never"),
        ] {
            assert_eq!(rule_kind(&rules, path), kind, "{path}");
        }
        assert_eq!(rules.rule_for(b"core/a").strategy, Some(Strategy::Manual));
        assert_eq!(rules.rule_for(b"memory/episodic/a").ttl_nanos, Some(86_400_000_000_000));
        assert_eq!(rules.rule_for(b"embeddings/index/a").kind.key(), "artifact_id");
        assert!(
            rules.rule_for(b".sdlc_ide/logs/audit_trail.jsonl").append && rules.rule_for(b".sdlc_ide/logs/x").append
        );
        assert!(!rules.rule_for(b".sdlc_ide/x").append);
        assert_eq!(rules.iter().count(), 12);
    }

    #[test]
    fn patterns_match_by_depth_wildcards_and_alternatives() {
        let cases: [(&str, &[&str], &[&str]); 9] = [
            ("*.md", &["a.md", "x/y/a.md", ".md"], &["a.md/x", "amd"]),
            ("/*.md", &["a.md"], &["x/a.md"]),
            ("/a/**", &["a/b", "a/b/c"], &["a", "x/a/b"]),
            ("a/**/z", &["a/z", "a/b/c/z", "x/a/z"], &["az", "a/zz"]),
            ("a?c", &["abc", "x/abc"], &["a/c", "ac"]),
            ("[a-c]x[!0-9]", &["axy", "cxz"], &["dxy", "ax1"]),
            ("*.{rs,toml}", &["a.rs", "b/c.toml"], &["a.txt"]),
            ("**", &["a", "a/b"], &[]),
            ("a\\*", &["a*"], &["ab"]),
        ];
        for (pattern, hits, misses) in cases {
            let rules = Rules::parse(&format!("{pattern} never")).unwrap();
            hits.iter().for_each(|path| assert_eq!(rule_kind(&rules, path), "never", "{pattern} × {path}"));
            misses.iter().for_each(|path| assert_eq!(rule_kind(&rules, path), "text", "{pattern} × {path}"));
        }
        let rules = Rules::parse("*.bin never").unwrap();
        assert!(rules.rule_for(b"\xff\xfe/\x80.bin").kind.never_merges(), "names need not be UTF-8");
    }

    #[test]
    fn the_first_match_counts_and_comments_do_not() {
        let text = "# mine\n\n  /a/b  whole  # here\n\ta/* newest\r\n* never";
        let rules = Rules::parse(text).unwrap();
        assert_eq!(rule_kind(&rules, "a/b"), "whole");
        assert_eq!(rule_kind(&rules, "a/c"), "newest");
        assert_eq!(rule_kind(&rules, "c"), "never");
        assert_eq!(rule_kind(&Rules::parse("").unwrap(), "c"), "text");
    }

    #[test]
    fn a_rule_without_a_kind_is_text() {
        let rules =
            Rules::parse("logs/** append\npriv/** write=uid:1001 # his\nraw/** noindex\n* parent-wins").unwrap();
        assert!(rules.rule_for(b"raw/x").noindex && !rules.rule_for(b"x").noindex && rules.has_noindex());
        assert!(["logs/x", "priv/x", "raw/x", "x"].iter().all(|path| rule_kind(&rules, path) == "text"));
        assert!(rules.rule_for(b"logs/x").append && !rules.rule_for(b"priv/x").allows(0, &[]));
        assert_eq!(rules.rule_for(b"x").strategy, Some(Strategy::ParentWins));
    }

    #[test]
    fn options_come_in_any_order() {
        let rules = Rules::parse("logs/** text append write=uid:1001,gid:50 noindex child-wins ttl=90s").unwrap();
        let rule = rules.rule_for(b"logs/x");
        let mut options = ["append", "write=uid:1001,gid:50", "noindex", "child-wins", "ttl=90s"];
        for at in 0..options.len() * 2 {
            options.rotate_left(1);
            if at == options.len() {
                options.reverse();
            }
            let other = Rules::parse(&format!("logs/** text {}", options.join(" "))).unwrap();
            assert_eq!(format!("{:?}", other.rule_for(b"logs/x")), format!("{rule:?}"), "{options:?}");
        }
        assert!(
            rule.noindex
                && !rules.with_sides_swapped().rule_for(b"other").noindex
                && rules.with_sides_swapped().rule_for(b"logs/x").noindex
        );
        assert_eq!(
            (rule.append, rule.ttl_nanos, rule.strategy),
            (true, Some(90_000_000_000), Some(Strategy::ChildWins))
        );
        assert_eq!(rule.write.as_deref(), Some(&[Principal::Uid(1001), Principal::Gid(50)][..]));
        assert!(rule.allows(1001, &[]) && rule.allows(7, &[1, 50]));
        assert!(!rule.allows(50, &[1001]) && !rule.allows(0, &[0]));
        assert!(rules.rule_for(b"other").allows(7, &[]));
    }

    #[test]
    fn the_kind_decides_where_neither_rule_nor_branch_should() {
        let rules = Rules::parse("a newest\nb newest manual\nc union id\nd text").unwrap();
        let strategy = |path: &str| rules.rule_for(path.as_bytes()).strategy(Strategy::ParentWins);
        assert_eq!(strategy("a"), Strategy::NewestWins);
        assert_eq!(strategy("b"), Strategy::Manual);
        assert_eq!(strategy("c"), Strategy::NewestWins);
        assert_eq!(strategy("d"), Strategy::ParentWins);
    }

    #[test]
    fn a_bad_line_is_named_with_what_to_write() {
        for (line, problem) in [
            ("core/**", "no kind"),
            ("core/** merge", "'merge' is no kind"),
            ("include", "nothing to include"),
            ("include elsewhere", "'elsewhere' is nothing to include"),
            ("include workspace manual", "nothing to include"),
            ("*.jsonl union", "without a key"),
            ("*.jsonl union manual", "without a key"),
            ("*.json manifest ttl=1h", "without a key"),
            ("a text best-wins", "no option"),
            ("a text ttl=soon", "no lifetime"),
            ("a text ttl=-1h", "no lifetime"),
            ("a text ttl=0s", "no lifetime"),
            ("a text write=", "no list"),
            ("a text write=uid:ann", "no list"),
            ("a text write=uid:+1", "no list"),
            ("a text write=uid:1,", "no list"),
            ("a text append append", "again"),
            ("a noindex noindex", "again"),
            ("a text ttl=1h append ttl=1h", "again"),
            ("a text write=uid:1 append write=uid:2", "again"),
            ("*.jsonl union noindex", "without a key"),
            ("a text manual child-wins", "again"),
            ("[a text", "no pattern"),
            ("{a text", "no pattern"),
            ("core/ text", "slash"),
            ("/ text", "slash"),
        ] {
            let error = Rules::parse(&format!("# one\n\n{line}\n* text")).unwrap_err();
            assert_eq!(error.line, 3, "{line}");
            assert!(error.problem.contains(problem), "{line}: {error}");
            assert!(error.hint.starts_with("write "), "{error}");
        }
        let long = |length: usize| Rules::parse(&format!("{} text", "a".repeat(length)));
        assert!(long(1_024).is_ok() && long(1_025).is_err());
        let deep = format!("{}{} text", "{".repeat(600), "}".repeat(600));
        assert!(Rules::parse(&deep).unwrap_err().problem.contains("1024"));
        let deep = format!("{}{} text", "{".repeat(500), "}".repeat(500));
        assert!(Rules::parse(&deep).is_ok_and(|rules| rules.rule_for(b"a").kind == FileMergeKind::text()));
    }
}
