//! One rule: what becomes of the files that a pattern names.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::kind::{self, FileMergeKind, KINDS};
use crate::lineage::Strategy;

/// A user or a group, as `write=` names it: `uid:N` or `gid:N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Principal {
    /// The user with that number; root is bound like all others.
    Uid(u32),
    /// The group with that number. Of a caller the store knows the primary group alone.
    Gid(u32),
}

/// One rule of `config/rules`: a line `PATTERN [KIND [KEY]] [OPTION …]`, its words divided by blanks.
///
/// KIND is a word of the table in `kind.rs`, with the KEY that it takes, such as `text` or `union KEY`; left out before an
/// option it is `text`. OPTION is a strategy, `ttl=DURATION`, `write=uid:N,gid:N,…`, `append` or `noindex`, each at most
/// once. A word that begins with `#` begins a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The paths it is for, as written; see [`Rules::parse`](super::Rules::parse) for its form.
    pub pattern: Arc<str>,
    /// How contents merge; `text` where the rule names no kind.
    pub kind: FileMergeKind,
    /// How its conflicts are decided; `None` if the rule leaves that to the branch. See [`Rule::strategy`].
    pub strategy: Option<Strategy>,
    /// After how many nanoseconds without a write a file is purged, from 1; none keeps it.
    pub ttl_nanos: Option<i64>,
    /// Who may write; none leaves that to the permissions alone.
    pub write: Option<Arc<[Principal]>>,
    /// Whether only appending writes are allowed, to the owner of the rules as well.
    pub append: bool,
    /// Whether queries find nothing in it; the files stay readable.
    pub noindex: bool,
}

impl Rule {
    /// Returns the rule of a pattern that says how contents merge, and nothing else.
    pub(super) fn new(pattern: &str, kind: FileMergeKind) -> Rule {
        Rule {
            pattern: pattern.into(),
            kind,
            strategy: None,
            ttl_nanos: None,
            write: None,
            append: false,
            noindex: false,
        }
    }

    /// Returns how conflicts under this rule are decided, where the branch's strategy is `branch`.
    ///
    /// The rule's own strategy comes first. Without it `union` and `newest` mean the later one and `unit` asks a
    /// person, whatever the branch says; all other kinds follow the branch.
    pub fn strategy(&self, branch: Strategy) -> Strategy {
        self.strategy.or(self.kind.spec().strategy).unwrap_or(branch)
    }

    /// Returns whether the rule lets a user write who has these groups.
    ///
    /// The superuser is bound like everyone: the rule guards against mistakes of agents, which
    /// often run as root.
    ///
    /// ```
    /// use engramfs::merge::files::Rules;
    ///
    /// let rules = Rules::parse("reports/** write=uid:1001,gid:50").unwrap();
    /// let rule = rules.rule_for(b"reports/may.md");
    /// assert!(rule.allows(1001, &[]) && rule.allows(7, &[50]));
    /// assert!(!rule.allows(0, &[0]));
    /// assert!(rules.rule_for(b"notes.md").allows(7, &[]));
    /// ```
    pub fn allows(&self, uid: u32, gids: &[u32]) -> bool {
        self.write.as_ref().is_none_or(|list| {
            list.iter().any(|who| match who {
                Principal::Uid(allowed) => *allowed == uid,
                Principal::Gid(allowed) => gids.contains(allowed),
            })
        })
    }
}

/// What is wrong with one line of the rules, before the number of the line is known.
pub(super) struct RuleFault {
    /// What is wrong, without a full stop, such as "there is no pattern".
    pub problem: String,
    /// What to write, beginning with "write".
    pub hint: Cow<'static, str>,
}

impl RuleFault {
    /// Makes a fault; `hint` begins with "write".
    pub(super) fn new(problem: impl fmt::Display, hint: impl Into<Cow<'static, str>>) -> RuleFault {
        RuleFault { problem: problem.to_string(), hint: hint.into() }
    }
}

const KEY: &str = "write the key behind the kind, as in union event_id";
/// Returns what may stand behind a pattern and a kind.
fn options_hint() -> String {
    let strategies = Strategy::NAMES;
    format!("write a strategy ({strategies}), ttl=1h, write=uid:1001,gid:50, append or noindex, each at most once")
}

impl Rule {
    /// Parses one line that is neither blank nor a comment. Fails at the first word that is not of the form that
    /// [`Rule`] shows; the fault says what is wrong with it, and what to write instead. Patterns are not checked here.
    pub(super) fn parse(line: &str) -> Result<Rule, RuleFault> {
        // A word that begins with `#` starts a comment, as a line does.
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#')).peekable();
        let pattern = words.next().ok_or_else(|| RuleFault::new("there is no pattern", kind::hint()))?;
        // A line that is about something else than merging, such as `logs/** append`.
        let is_kindless = words.peek().is_some_and(|word| is_option(word));
        let kind = if is_kindless { FileMergeKind::text() } else { parse_kind(&mut words)? };
        let mut rule = Rule::new(pattern, kind);
        words.try_for_each(|word| rule.parse_option(word))?;
        Ok(rule)
    }
}

fn parse_kind<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<FileMergeKind, RuleFault> {
    let word = words.next().ok_or_else(|| RuleFault::new("there is no kind", kind::hint()))?;
    let Some(spec) = KINDS.into_iter().find(|spec| spec.name == word) else {
        return Err(RuleFault::new(
            format_args!("'{}' is no kind of merge", truncated_for_message(word)),
            kind::hint(),
        ));
    };
    if !spec.takes_key {
        return Ok(FileMergeKind::new(spec, ""));
    }
    match words.next() {
        // The line would parse with such a word as key, and mean something else than it says.
        Some(key) if !is_option(key) => Ok(FileMergeKind::new(spec, key)),
        _ => Err(RuleFault::new(format_args!("'{word}' comes without a key"), KEY)),
    }
}

fn is_option(word: &str) -> bool {
    matches!(word, "append" | "noindex")
        || word.starts_with("ttl=")
        || word.starts_with("write=")
        || word.parse::<Strategy>().is_ok()
}

impl Rule {
    /// Takes one word behind the kind; the second of its sort is a fault.
    fn parse_option(&mut self, word: &str) -> Result<(), RuleFault> {
        let is_new = if let Some(text) = word.strip_prefix("ttl=") {
            self.ttl_nanos.replace(parse_ttl_nanos(text)?).is_none()
        } else if let Some(list) = word.strip_prefix("write=") {
            self.write.replace(parse_principals(list)?).is_none()
        } else if word == "append" {
            !std::mem::replace(&mut self.append, true)
        } else if word == "noindex" {
            !std::mem::replace(&mut self.noindex, true)
        } else if let Ok(strategy) = word.parse() {
            self.strategy.replace(strategy).is_none()
        } else {
            return Err(RuleFault::new(
                format_args!("'{}' is no option of a rule", truncated_for_message(word)),
                options_hint(),
            ));
        };
        match is_new {
            true => Ok(()),
            false => Err(RuleFault::new(
                format_args!("'{}' says again what was said before", truncated_for_message(word)),
                options_hint(),
            )),
        }
    }
}

/// Parses a duration such as `90s`, `24h` or `7d` into nanoseconds; a day is 24 hours.
fn parse_ttl_nanos(text: &str) -> Result<i64, RuleFault> {
    let nanos = text
        .parse::<jiff::Span>()
        .ok()
        .and_then(|span| span.total((jiff::Unit::Nanosecond, jiff::SpanRelativeTo::days_are_24_hours())).ok());
    match nanos {
        Some(nanos) if nanos >= 1.0 => Ok(nanos.min(i64::MAX as f64) as i64),
        _ => Err(RuleFault::new(
            format_args!("'{}' is no lifetime", truncated_for_message(text)),
            "write a duration such as ttl=1h or ttl=7d",
        )),
    }
}

fn parse_principals(list: &str) -> Result<Arc<[Principal]>, RuleFault> {
    let one = |text: &str| {
        let (sort, number) = text.split_once(':')?;
        let number = number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.parse().ok())??;
        match sort {
            "uid" => Some(Principal::Uid(number)),
            "gid" => Some(Principal::Gid(number)),
            _ => None,
        }
    };
    let not_principals = || {
        let problem = format!("'{}' is no list of users and groups", truncated_for_message(list));
        RuleFault::new(problem, "write numbers, as in write=uid:1001,gid:50")
    };
    list.split(',').map(one).collect::<Option<Arc<[Principal]>>>().ok_or_else(not_principals)
}

/// The first 80 characters, for messages.
pub(super) fn truncated_for_message(text: &str) -> String {
    text.chars().take(80).collect()
}
