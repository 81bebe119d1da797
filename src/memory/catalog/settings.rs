//! The settings of a branch: the files of `config/`.

use std::sync::{Arc, OnceLock};

use super::embedder_record::EmbedderRecord;
use super::proposal::parse_approvers;
use super::quota::Quota;
use super::retained::Retention;
use super::shared_log::OWN_LOG;
use super::signals::{LEASE_LIFETIME, SESSION_SCOPE};
use crate::lineage::Strategy;
use crate::memory::SettingError;
use crate::merge::files::{DEFAULT_RULES, Rules};
use crate::merge::gate::{self, Gate};
use crate::object::{CodecError, Reader, Writer, stored_codes};
use crate::text::Language;
use crate::vector::{DIM_MAX, Metric};

stored_codes! {
    /// One setting of a branch; the order is that in which stored settings have their values.
    ///
    /// ```
    /// use engramfs::memory::{Setting, check_setting};
    ///
    /// assert_eq!(Setting::from_name("keep"), Some(Setting::Keep));
    /// assert_eq!(check_setting(Setting::Keep, "30d\n").unwrap(), "30d");
    ///
    /// let error = check_setting(Setting::Metric, "hamming").unwrap_err();
    /// assert_eq!(error.advice().hint, "write cosine, l2 or dot");
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Setting {
        /// How merges into the branch decide conflicts; `newest-wins` by default.
        Strategy = 1,
        /// How files merge: rules, one a line, up to 64 KiB; by default [`DEFAULT_RULES`].
        Rules = 2,
        /// Numbers in a vector, 1 to 65,536; one for all branches below a root branch, unset before the first vector.
        Dim = 3,
        /// How vectors are compared; one for all likewise, `cosine` by default.
        Metric = 4,
        /// Who is at work; unset, it is the caller's user name.
        Agent = 5,
        /// In which session, up to 200 bytes; another one ends signals of the session before. Empty by default.
        Session = 6,
        /// For which task, up to 200 bytes; empty by default.
        Task = 7,
        /// What guards merges into the branch; `open` by default.
        Gate = 8,
        /// Who may approve them: `uid:N`, one a line; empty by default.
        Approvers = 9,
        /// After how long without a write `gc` discards the branch, such as `7d`; empty, the default, is never.
        Ttl = 10,
        /// How long earlier states stay readable; `30d` by default.
        Keep = 11,
        /// How much `scratch/` may hold: bytes, or with K, M or G behind; at most `1G`, by default `64M`.
        ScratchSize = 12,
        /// How much the branch and those below it may hold of their own; empty, the default, is without a limit.
        Quota = 13,
        /// Whose stop words and stems queries by words use: a code such as `en`, the default, or `none`.
        Language = 14,
        /// The embedder whose vectors its branches have; one for all below a root branch, set by the store itself.
        Embedder = 15,
        /// Of earlier states that lie within so long the newest stays; `1m` by default, `0s` keeps all.
        KeepEvery = 16,
        /// Whose shared log the branch has: `inherit`, the default, or `own`, which root branches have.
        Log = 17,
        /// The `ttl` that a fork begins with; empty by default.
        ChildTtl = 18,
        /// How long the signals last that are written through the branch: a duration, or `lease`; empty, the default, is
        /// for ever.
        SignalTtl = 19,
        /// Whether they end with its session: `store`, the default, or `session`.
        SignalScope = 20,
    }
}

impl Setting {
    fn index(self) -> usize {
        usize::from(self.code()) - 1
    }

    /// Returns the file's name in `config/`, which the files of an export have, too.
    pub fn name(self) -> &'static str {
        match self {
            Setting::Strategy => "strategy",
            Setting::Rules => "rules",
            Setting::Dim => "dim",
            Setting::Metric => "metric",
            Setting::Agent => "agent",
            Setting::Session => "session",
            Setting::Task => "task",
            Setting::Gate => "gate",
            Setting::Approvers => "approvers",
            Setting::Ttl => "ttl",
            Setting::Keep => "keep",
            Setting::ScratchSize => "scratch_size",
            Setting::Quota => "quota",
            Setting::Language => "language",
            Setting::Embedder => "embedder",
            Setting::KeepEvery => "keep_every",
            Setting::Log => "log",
            Setting::ChildTtl => "child_ttl",
            Setting::SignalTtl => "signal_ttl",
            Setting::SignalScope => "signal_scope",
        }
    }

    /// Returns the setting with that file name; none where there is no such setting.
    pub fn from_name(name: &str) -> Option<Setting> {
        Setting::ALL.into_iter().find(|setting| setting.name() == name)
    }

    /// Returns whether one value serves all branches below a root branch.
    pub fn is_shared(self) -> bool {
        matches!(self, Setting::Dim | Setting::Metric | Setting::Embedder)
    }

    /// Returns whether a value is a list of lines, which may be written one by one.
    pub fn is_multiline(self) -> bool {
        matches!(self, Setting::Rules | Setting::Gate | Setting::Approvers)
    }

    fn default_value(self) -> &'static str {
        match self {
            Setting::Strategy => Strategy::NewestWins.name(),
            Setting::Rules => DEFAULT_RULES,
            Setting::Metric => Metric::default().name(),
            Setting::Gate => gate::OPEN,
            Setting::Keep => "30d",
            Setting::KeepEvery => "1m",
            Setting::ScratchSize => "64M",
            Setting::Language => "en",
            Setting::Log => INHERITED_LOG,
            Setting::SignalScope => STORE_SCOPE,
            Setting::ChildTtl
            | Setting::SignalTtl
            | Setting::Dim
            | Setting::Agent
            | Setting::Session
            | Setting::Task => "",
            Setting::Approvers | Setting::Ttl | Setting::Quota | Setting::Embedder => "",
        }
    }

    fn is_inherited(self) -> bool {
        matches!(
            self,
            Setting::Strategy
                | Setting::Rules
                | Setting::Keep
                | Setting::KeepEvery
                | Setting::ScratchSize
                | Setting::Language
                | Setting::ChildTtl
                | Setting::SignalTtl
                | Setting::SignalScope
        )
    }
}

/// The value of `config/log` by which a branch has the log of its parent.
pub const INHERITED_LOG: &str = "inherit";
/// The value of `config/signal_scope` by which signals outlast the session of who wrote them.
const STORE_SCOPE: &str = "store";
/// Longest agent, session or task, in bytes.
const LABEL_BYTES_MAX: usize = 200;
/// Most that `config/scratch_size` allows, in bytes: what is in `scratch/` is held in memory.
const SCRATCH_BYTES_MAX: u64 = 1 << 30;
/// Added to the stored code of a value that nobody wrote to the branch itself.
const INHERITED: u8 = 0x80;
/// Longest `config/rules`, in bytes.
const RULES_BYTES_MAX: usize = 64 * 1024;

/// The values of all settings, with what was parsed of them; a clone is one reference.
#[derive(Clone, Debug)]
pub struct Settings(Arc<Values>);

#[derive(Debug)]
struct Values {
    texts: [Arc<str>; Setting::ALL.len()],
    /// Whether the rules came from a parent, and nobody wrote any to this branch.
    rules_inherited: bool,
    /// The rules for files, parsed at first use.
    rules: OnceLock<Arc<Rules>>,
    /// What merges have to pass, parsed at first use.
    gate: OnceLock<Arc<Gate>>,
    /// How long states stay, likewise: each entry asks.
    retention: OnceLock<Retention>,
}

impl Default for Settings {
    /// Returns the values of a new root branch; all that are default share them.
    fn default() -> Settings {
        static DEFAULTS: OnceLock<Settings> = OnceLock::new();
        let make = || Settings::from_texts(Setting::ALL.map(|setting| setting.default_value().into()), false);
        DEFAULTS.get_or_init(make).clone()
    }
}

impl Settings {
    fn from_texts(texts: [Arc<str>; Setting::ALL.len()], rules_inherited: bool) -> Settings {
        let (rules, gate, retention) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Settings(Arc::new(Values { texts, rules_inherited, rules, gate, retention }))
    }

    /// Returns the rules for files, parsed at first use; the default ones where the text does not parse.
    pub fn rules(&self) -> &Rules {
        self.0.rules.get_or_init(|| Arc::new(Rules::parse(self.get(Setting::Rules)).unwrap_or_default()))
    }

    /// Returns what merges into the branch have to pass; by default nothing (`open`).
    pub fn gate(&self) -> &Gate {
        // `check` refuses values that do not parse, so a stored one always does.
        self.0.gate.get_or_init(|| Arc::new(Gate::parse(self.get(Setting::Gate)).unwrap_or_default()))
    }

    /// Returns how long states of a branch stay; not at all where `config/keep` does not parse.
    pub fn retention(&self) -> Retention {
        *self.0.retention.get_or_init(|| {
            let duration = |setting| self.duration(setting).unwrap_or_default();
            Retention { keep_nanos: duration(Setting::Keep), interval_nanos: duration(Setting::KeepEvery) }
        })
    }

    /// Returns the rules if they say who may write where and that in this branch, too: inherited ones do not, so that
    /// anybody may prepare in a fork what they keep out of the branch above.
    pub fn binding_rules(&self) -> Option<&Rules> {
        (!self.0.rules_inherited).then(|| self.rules()).filter(|rules| rules.restrict_writes())
    }

    /// Returns whether files are written by the same rules, so that what one has let pass the other would.
    pub fn has_same_rules(&self, other: &Settings) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.rules_inherited == other.0.rules_inherited
                && self.get(Setting::Rules) == other.get(Setting::Rules))
    }

    /// Returns whether merges go by the same strategy, rules and gate.
    pub fn merges_like(&self, other: &Settings) -> bool {
        let same = |setting| self.get(setting) == other.get(setting);
        self.has_same_rules(other) && same(Setting::Strategy) && same(Setting::Gate)
    }

    /// Returns a value without its line end, empty where it is unset.
    pub fn get(&self, setting: Setting) -> &Arc<str> {
        &self.0.texts[setting.index()]
    }

    /// Returns the settings with one value replaced; the value must have passed [`check`].
    pub fn with_setting(&self, setting: Setting, value: &str) -> Settings {
        let mut texts = self.0.texts.clone();
        texts[setting.index()] = value.into();
        Settings::from_texts(texts, self.0.rules_inherited && setting != Setting::Rules).share_parsed_with(self)
    }

    /// Returns the same settings, their rules marked as inherited: they no longer say who may write to the branch.
    pub fn with_inherited_rules(&self) -> Settings {
        Settings::from_texts(self.0.texts.clone(), true).share_parsed_with(self)
    }

    /// Returns whether the rules came from a parent, and nobody wrote any to this branch.
    pub fn has_inherited_rules(&self) -> bool {
        self.0.rules_inherited
    }

    /// Returns what a fork of the branch begins with: what is inherited, `child_ttl` as its `ttl`, and defaults for all
    /// else.
    pub fn for_fork(&self) -> Settings {
        let defaults = Settings::default();
        if Arc::ptr_eq(&self.0, &defaults.0) {
            return defaults;
        }
        let value = |setting: Setting| match setting {
            Setting::Ttl => self.get(Setting::ChildTtl),
            setting if setting.is_inherited() => self.get(setting),
            setting => defaults.get(setting),
        };
        Settings::from_texts(Setting::ALL.map(|setting| value(setting).clone()), true).share_parsed_with(self)
    }

    /// Takes over what others with the same values have parsed, so that a change of one setting leaves the rest parsed.
    fn share_parsed_with(self, other: &Settings) -> Settings {
        let same = |setting| self.get(setting) == other.get(setting);
        if let Some(rules) = other.0.rules.get().filter(|_| same(Setting::Rules)) {
            self.0.rules.get_or_init(|| rules.clone());
        }
        if let Some(gate) = other.0.gate.get().filter(|_| same(Setting::Gate)) {
            self.0.gate.get_or_init(|| gate.clone());
        }
        let keeps = || same(Setting::Keep) && same(Setting::KeepEvery);
        if let Some(retention) = other.0.retention.get().filter(|_| keeps()) {
            self.0.retention.get_or_init(|| *retention);
        }
        self
    }

    /// Returns the strategy of merges into the branch; the default where the text does not parse.
    pub fn strategy(&self) -> Strategy {
        self.get(Setting::Strategy).parse().unwrap_or_default()
    }

    /// Returns the dimension, once it is fixed; none before.
    pub fn dim(&self) -> Option<usize> {
        self.get(Setting::Dim).parse().ok()
    }

    /// Returns the metric of vectors. It is shared, so only the settings of a root branch have the one that counts.
    pub fn metric(&self) -> Metric {
        self.get(Setting::Metric).parse().unwrap_or_default()
    }

    /// Returns a duration setting in nanoseconds; none where it is unset or no duration.
    pub fn duration(&self, setting: Setting) -> Option<i64> {
        parse_duration(self.get(setting)).ok()
    }

    /// Returns whose stop words and stems queries use; none for words as they are.
    pub fn language(&self) -> Option<&'static Language> {
        Language::from_code(self.get(Setting::Language))
    }

    /// Returns how many bytes `scratch/` may hold; 0 where the text does not parse.
    pub fn scratch_size(&self) -> u64 {
        parse_size(self.get(Setting::ScratchSize)).unwrap_or_default()
    }

    /// Appends the stored form: how many settings there are, then the code and the text of each.
    pub fn write(&self, out: &mut Writer) {
        out.number(Setting::ALL.len() as u64);
        for setting in Setting::ALL {
            let inherited = setting == Setting::Rules && self.0.rules_inherited;
            out.byte(setting.code() | if inherited { INHERITED } else { 0 }).text(self.get(setting));
        }
    }

    /// Reads the stored form. A setting that was not there when it was written has its default value.
    /// [`CodecError::Code`] for a setting that this version does not know, [`CodecError::Setting`] for a value that
    /// [`check`] refuses.
    pub fn read(input: &mut Reader<'_>) -> Result<Settings, CodecError> {
        let defaults = Settings::default();
        let mut texts = defaults.0.texts.clone();
        let (mut differs, mut rules_inherited) = (false, false);
        for _ in 0..input.length()? {
            let mut code = input.byte()?;
            if code == Setting::Rules.code() | INHERITED {
                (code, rules_inherited) = (Setting::Rules.code(), true);
            }
            let (setting, text) = (Setting::from_code(code)?, input.text()?);
            let value = &mut texts[setting.index()];
            if **value != *text {
                check(setting, text).map_err(|_| CodecError::Setting(setting.name()))?;
                (*value, differs) = (text.into(), true);
            }
        }
        let is_default = !differs && !rules_inherited;
        Ok(if is_default {
            defaults
        } else {
            Settings::from_texts(texts, rules_inherited).share_parsed_with(&defaults)
        })
    }
}

/// Checks a value before it is set and returns it in the form that is kept.
///
/// A line end behind it does not count. [`SettingError::Value`] says what to write instead, [`SettingError::Rules`]
/// which line is wrong. What depends on the branch, such as a limit above the parent's, is not looked at here.
pub fn check(setting: Setting, value: &str) -> Result<String, SettingError> {
    let value = value.trim_end_matches('\n');
    let bad = |expected| {
        Err(SettingError::Value { setting: setting.name(), shown: value.chars().take(80).collect(), expected })
    };
    let one_line = !value.chars().any(char::is_control);
    match setting {
        Setting::Embedder if !value.is_empty() && EmbedderRecord::parse(value).is_none() => {
            bad("nothing: it is set by the store")
        }
        Setting::Strategy if value.parse::<Strategy>().is_err() => bad(Strategy::NAMES),
        Setting::Metric if value.parse::<Metric>().is_err() => bad(Metric::NAMES),
        Setting::Dim if !value.parse::<usize>().is_ok_and(|dim| (1..=DIM_MAX).contains(&dim)) => {
            bad("a number from 1 to 65536")
        }
        Setting::Agent | Setting::Session | Setting::Task if value.len() > LABEL_BYTES_MAX || !one_line => {
            bad("one line of up to 200 bytes")
        }
        Setting::Gate if value.len() > RULES_BYTES_MAX || value.is_empty() || Gate::parse(value).is_none() => bad(
            "open, or conditions, one a line: approval N [for PATTERN …] [strict], deletes N, puts N, conflicts N, only \
             PATTERN …, summary; patterns begin with files/ or vectors/",
        ),
        Setting::Approvers if value.len() > RULES_BYTES_MAX || parse_approvers(value).is_none() => {
            bad("uid:N for each, one a line, or nothing")
        }
        Setting::Ttl | Setting::ChildTtl
            if !value.is_empty() && !parse_duration(value).is_ok_and(|nanos| nanos > 0) =>
        {
            bad("a duration such as 1h or 7d, or nothing")
        }
        Setting::Keep | Setting::KeepEvery if !parse_duration(value).is_ok_and(|nanos| nanos >= 0) => {
            bad("a duration such as 1h or 30d")
        }
        Setting::ScratchSize if parse_size(value).is_none_or(|size| size > SCRATCH_BYTES_MAX) => {
            bad("a size of at most 1G, such as 64M")
        }
        Setting::Quota if Quota::parse(value).is_none() => {
            bad("limits such as bytes=1G records=100000 branches=100, or nothing")
        }
        Setting::Language if value != "none" && Language::from_code(value).is_none() => {
            bad("none, or one of ar da de el en es fi fr hu it nl no pt ro ru sv ta tr")
        }
        Setting::Log if value != OWN_LOG && value != INHERITED_LOG => bad("own or inherit"),
        Setting::SignalTtl
            if !value.is_empty() && value != LEASE_LIFETIME && !parse_duration(value).is_ok_and(|nanos| nanos > 0) =>
        {
            bad("a duration such as 30s or 10m, lease, or nothing")
        }
        Setting::SignalScope if value != STORE_SCOPE && value != SESSION_SCOPE => bad("store or session"),
        Setting::Rules if value.len() > RULES_BYTES_MAX => bad("rules of up to 64 KiB"),
        Setting::Rules => Ok(Rules::parse(value).map(|_| value.to_owned())?),
        // Every arm above refuses, so what falls through is good.
        _ => Ok(value.to_owned()),
    }
}

/// Parses `1h`, `7d`, `90s` and the like into nanoseconds. Days have 24 hours; months and years fail, and a negative
/// one is for the caller to refuse.
///
/// ```
/// use engramfs::memory::{parse_duration, parse_size};
///
/// assert_eq!(parse_duration("90s").unwrap(), 90_000_000_000);
/// assert_eq!(parse_duration("1d").unwrap(), parse_duration("24h").unwrap());
/// assert!(parse_duration("1mo").is_err());
///
/// assert_eq!((parse_size("64M"), parse_size("512")), (Some(64 << 20), Some(512)));
/// assert_eq!((parse_size("1T"), parse_size("1.5G")), (None, None));
/// ```
pub fn parse_duration(text: &str) -> Result<i64, jiff::Error> {
    let span: jiff::Span = text.parse()?;
    let nanos = span.total((jiff::Unit::Nanosecond, jiff::SpanRelativeTo::days_are_24_hours()))?;
    Ok(nanos as i64)
}

/// Parses a number of bytes with an optional K, M or G of 1024, its square and its cube; none for anything else and for
/// 2⁶⁴ or more.
pub fn parse_size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 1u64 << 10),
        b'M' | b'm' => (&text[..text.len() - 1], 1 << 20),
        b'G' | b'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
