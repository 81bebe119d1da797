//! One setting: its code, its name and what holds of it in every branch.

use super::{parse_duration_nanos, parse_size};
use crate::lineage::Strategy;
use crate::memory::SettingError;
use crate::memory::catalog::proposal::parse_approvers;
use crate::memory::catalog::shared_log::OWN_LOG;
use crate::memory::catalog::signals::{LEASE_LIFETIME, SESSION_SCOPE};
use crate::memory::catalog::{EmbedderRecord, Quota};
use crate::merge::files::{DEFAULT_RULES, Rules};
use crate::merge::gate::{self, Gate};
use crate::object::stored_codes;
use crate::text::Language;
use crate::vector::{DIM_MAX, Metric};

/// The value of `config/log` by which a branch has the log of its parent.
const INHERITED_LOG: &str = "inherit";
/// The value of `config/signal_scope` by which signals outlast the session of who wrote them.
const STORE_SCOPE: &str = "store";
/// Longest agent, session or task, in bytes.
const LABEL_BYTES_MAX: usize = 200;
/// Most that `config/scratch_size` allows, in bytes: what is in `scratch/` is held in memory.
const SCRATCH_BYTES_MAX: u64 = 1 << 30;
/// Longest list of lines, such as `config/rules`, in bytes.
const LIST_BYTES_MAX: usize = 64 * 1024;

stored_codes! {
    /// A setting of a branch, in the order in which values are stored.
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
        /// The dimension of vectors, 1 to 65,536; shared below a root branch, and unset before the first vector.
        Dim = 3,
        /// How vectors are compared; shared below a root branch, `cosine` by default.
        Metric = 4,
        /// The name of the agent, up to 200 bytes; by default, unset, the caller's user name.
        Agent = 5,
        /// The agent's session, up to 200 bytes; empty by default. A new one ends signals of the old one.
        Session = 6,
        /// The agent's task, up to 200 bytes; empty by default.
        Task = 7,
        /// The gate of merges into the branch, up to 64 conditions; `open` by default.
        Gate = 8,
        /// Who may approve merges: `uid:N`, one a line; empty by default.
        Approvers = 9,
        /// How long without a write until `gc` discards the branch, such as `7d`; empty, the default, is never.
        Ttl = 10,
        /// How long earlier states stay readable; `30d` by default.
        Keep = 11,
        /// How many bytes `scratch/` may hold, with an optional K, M or G; at most `1G`, by default `64M`.
        ScratchSize = 12,
        /// Limits of what the branch and those below it hold, such as `bytes=1G records=100000`; empty, the default, is
        /// no limit.
        Quota = 13,
        /// The language of stop words and stems in queries: a code such as `en`, the default, or `none`.
        Language = 14,
        /// The embedder of its vectors; shared below a root branch, and set by the store itself.
        Embedder = 15,
        /// The interval of which only the newest earlier state is kept; `1m` by default, `0s` keeps all.
        KeepEvery = 16,
        /// The shared log of the branch: `inherit`, the default, for that of its parent, or `own`. A root branch always
        /// owns one.
        Log = 17,
        /// The `ttl` that a fork begins with; empty by default.
        ChildTtl = 18,
        /// The lifetime of signals written through the branch: a duration, or `lease`; empty, the default, is
        /// unlimited.
        SignalTtl = 19,
        /// Whether signals end with the branch's session: `session` if they do, `store`, the default, if not.
        SignalScope = 20,
    }
}

/// What holds of a setting in every branch.
struct SettingSpec {
    name: &'static str,
    default_value: &'static str,
    inheritance: Inheritance,
    /// Whether a value is a list of lines.
    is_multiline: bool,
}

/// What the branches below have of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inheritance {
    /// Nothing: a fork begins with the default value.
    Own,
    /// A fork begins with the value of its parent.
    Inherited,
    /// All of them have the one value that their root branch keeps.
    Shared,
}

impl SettingSpec {
    const fn line(name: &'static str, default_value: &'static str, inheritance: Inheritance) -> SettingSpec {
        SettingSpec { name, default_value, inheritance, is_multiline: false }
    }

    const fn list(name: &'static str, default_value: &'static str, inheritance: Inheritance) -> SettingSpec {
        SettingSpec { name, default_value, inheritance, is_multiline: true }
    }
}

impl Setting {
    /// The table of all settings. A new one has its row here and its arm in [`check`]: the compiler asks for both.
    fn spec(self) -> SettingSpec {
        use Inheritance::{Inherited, Own, Shared};
        match self {
            Setting::Strategy => SettingSpec::line("strategy", Strategy::NewestWins.name(), Inherited),
            Setting::Rules => SettingSpec::list("rules", DEFAULT_RULES, Inherited),
            Setting::Dim => SettingSpec::line("dim", "", Shared),
            Setting::Metric => SettingSpec::line("metric", Metric::default().name(), Shared),
            Setting::Agent => SettingSpec::line("agent", "", Own),
            Setting::Session => SettingSpec::line("session", "", Own),
            Setting::Task => SettingSpec::line("task", "", Own),
            Setting::Gate => SettingSpec::list("gate", gate::OPEN, Own),
            Setting::Approvers => SettingSpec::list("approvers", "", Own),
            Setting::Ttl => SettingSpec::line("ttl", "", Own),
            Setting::Keep => SettingSpec::line("keep", "30d", Inherited),
            Setting::ScratchSize => SettingSpec::line("scratch_size", "64M", Inherited),
            Setting::Quota => SettingSpec::line("quota", "", Own),
            Setting::Language => SettingSpec::line("language", "en", Inherited),
            Setting::Embedder => SettingSpec::line("embedder", "", Shared),
            Setting::KeepEvery => SettingSpec::line("keep_every", "1m", Inherited),
            Setting::Log => SettingSpec::line("log", INHERITED_LOG, Own),
            Setting::ChildTtl => SettingSpec::line("child_ttl", "", Inherited),
            Setting::SignalTtl => SettingSpec::line("signal_ttl", "", Inherited),
            Setting::SignalScope => SettingSpec::line("signal_scope", STORE_SCOPE, Inherited),
        }
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.code()) - 1
    }

    /// Returns the name of its file in `config/`, also used in an export.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// Returns the setting with that file name; `None` if there is no such setting.
    pub fn from_name(name: &str) -> Option<Setting> {
        Setting::ALL.into_iter().find(|setting| setting.name() == name)
    }

    /// Returns whether one value serves all branches below a root branch.
    pub fn is_shared(self) -> bool {
        self.spec().inheritance == Inheritance::Shared
    }

    /// Returns whether a value is a list of lines, which may be written one by one.
    pub fn is_multiline(self) -> bool {
        self.spec().is_multiline
    }

    /// Returns the value in a new root branch, empty for one that is unset.
    pub(super) fn default_value(self) -> &'static str {
        self.spec().default_value
    }

    /// Returns whether a fork begins with the value of its parent. `ttl` is not inherited, but a fork begins with
    /// `child_ttl` in it.
    pub(super) fn is_inherited(self) -> bool {
        self.spec().inheritance == Inheritance::Inherited
    }
}

/// Checks a value, and returns it in the form in which it is stored.
///
/// Line ends at its end are removed. Fails with [`SettingError::Value`], which says what to write instead, or
/// [`SettingError::Rules`], which names the wrong line. Conditions of the branch, such as a limit of its parent, are
/// not checked.
pub fn check(setting: Setting, value: &str) -> Result<String, SettingError> {
    let value = value.trim_end_matches('\n');
    let is_short_list = value.len() <= LIST_BYTES_MAX;
    let lasts = |least: i64| parse_duration_nanos(value).is_ok_and(|nanos| nanos >= least);
    let (is_valid, expected) = match setting {
        Setting::Embedder => {
            (value.is_empty() || EmbedderRecord::parse(value).is_some(), "nothing: it is set by the store")
        }
        Setting::Strategy => (value.parse::<Strategy>().is_ok(), Strategy::NAMES),
        Setting::Metric => (value.parse::<Metric>().is_ok(), Metric::NAMES),
        Setting::Dim => {
            (value.parse::<usize>().is_ok_and(|dim| (1..=DIM_MAX).contains(&dim)), "a number from 1 to 65536")
        }
        Setting::Agent | Setting::Session | Setting::Task => {
            (value.len() <= LABEL_BYTES_MAX && !value.chars().any(char::is_control), "one line of up to 200 bytes")
        }
        Setting::Gate => (
            is_short_list && !value.is_empty() && Gate::parse(value).is_some(),
            "open, or up to 64 conditions, one a line: approval N [for PATTERN …] [strict], deletes N, puts N, conflicts N, only \
             PATTERN …, summary; patterns begin with files/ or vectors/",
        ),
        Setting::Approvers => {
            (is_short_list && parse_approvers(value).is_some(), "uid:N for each, one a line, or nothing")
        }
        Setting::Ttl | Setting::ChildTtl => (value.is_empty() || lasts(1), "a duration such as 1h or 7d, or nothing"),
        Setting::Keep | Setting::KeepEvery => (lasts(0), "a duration such as 1h or 30d"),
        Setting::ScratchSize => {
            (parse_size(value).is_some_and(|size| size <= SCRATCH_BYTES_MAX), "a size of at most 1G, such as 64M")
        }
        Setting::Quota => {
            (Quota::parse(value).is_some(), "limits such as bytes=1G records=100000 branches=100, or nothing")
        }
        Setting::Language => (
            value == "none" || Language::from_code(value).is_some(),
            "none, or one of ar da de el en es fi fr hu it nl no pt ro ru sv ta tr",
        ),
        Setting::Log => ([OWN_LOG, INHERITED_LOG].contains(&value), "own or inherit"),
        Setting::SignalTtl => (
            value.is_empty() || value == LEASE_LIFETIME || lasts(1),
            "a duration such as 30s or 10m, lease, or nothing",
        ),
        Setting::SignalScope => ([STORE_SCOPE, SESSION_SCOPE].contains(&value), "store or session"),
        Setting::Rules => {
            if is_short_list {
                Rules::parse(value)?;
            }
            (is_short_list, "rules of up to 64 KiB")
        }
    };
    if is_valid {
        return Ok(value.to_owned());
    }
    Err(SettingError::Value { setting: setting.name(), shown: value.chars().take(80).collect(), expected })
}
