//! The settings of a branch: the files of `config/`.

mod setting;

use std::sync::{Arc, OnceLock};

use super::retained::Retention;
use crate::lineage::Strategy;
use crate::merge::files::Rules;
use crate::merge::gate::Gate;
use crate::object::{CodecError, Reader, Writer};
use crate::text::Language;
use crate::vector::Metric;

pub use setting::{Setting, check};

/// Added to the stored code of a value that nobody wrote to the branch itself.
const INHERITED: u8 = 0x80;

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

    /// Returns the gate for merges into the branch, by default `open`.
    pub fn gate(&self) -> &Gate {
        // `check` refuses values that do not parse, so a stored one always does.
        self.0.gate.get_or_init(|| Arc::new(Gate::parse(self.get(Setting::Gate)).unwrap_or_default()))
    }

    /// Returns how long states of a branch stay; not at all where `config/keep` does not parse.
    pub fn retention(&self) -> Retention {
        *self.0.retention.get_or_init(|| {
            let duration = |setting| self.duration_nanos(setting).unwrap_or_default();
            Retention { keep_nanos: duration(Setting::Keep), interval_nanos: duration(Setting::KeepEvery) }
        })
    }

    /// Returns the rules if they restrict writers in this branch itself. Inherited rules do not: in a fork anybody may
    /// prepare changes.
    pub fn binding_rules(&self) -> Option<&Rules> {
        (!self.0.rules_inherited).then(|| self.rules()).filter(|rules| rules.restrict_writes())
    }

    /// Returns whether both have the same rules for writes to files.
    pub fn has_same_rules(&self, other: &Settings) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.rules_inherited == other.0.rules_inherited
                && self.get(Setting::Rules) == other.get(Setting::Rules))
    }

    /// Returns whether both have the same strategy, rules and gate.
    pub fn merges_like(&self, other: &Settings) -> bool {
        let same = |setting| self.get(setting) == other.get(setting);
        self.has_same_rules(other) && same(Setting::Strategy) && same(Setting::Gate)
    }

    /// Returns a value without its line end, empty if it is unset.
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

    /// Returns a duration setting in nanoseconds; `None` if it is unset or no duration.
    pub fn duration_nanos(&self, setting: Setting) -> Option<i64> {
        parse_duration_nanos(self.get(setting)).ok()
    }

    /// Returns whose stop words and stems queries use; `None` for words as they are.
    pub fn language(&self) -> Option<&'static Language> {
        Language::from_code(self.get(Setting::Language))
    }

    /// Returns how many bytes `scratch/` may hold; 0 if the text does not parse.
    pub fn scratch_bytes_max(&self) -> u64 {
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

/// Parses `1h`, `7d`, `90s` and the like into nanoseconds. Days have 24 hours; months and years fail, and a negative
/// one is for the caller to refuse.
///
/// ```
/// use engramfs::memory::{parse_duration_nanos, parse_size};
///
/// assert_eq!(parse_duration_nanos("90s").unwrap(), 90_000_000_000);
/// assert_eq!(parse_duration_nanos("1d").unwrap(), parse_duration_nanos("24h").unwrap());
/// assert!(parse_duration_nanos("1mo").is_err());
///
/// assert_eq!((parse_size("64M"), parse_size("512")), (Some(64 << 20), Some(512)));
/// assert_eq!((parse_size("1T"), parse_size("1.5G")), (None, None));
/// ```
pub fn parse_duration_nanos(text: &str) -> Result<i64, jiff::Error> {
    let span: jiff::Span = text.parse()?;
    let nanos = span.total((jiff::Unit::Nanosecond, jiff::SpanRelativeTo::days_are_24_hours()))?;
    Ok(nanos as i64)
}

/// Parses a number of bytes with an optional K, M or G of 1024, its square and its cube; `None` for anything else and
/// for 2⁶⁴ or more.
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
