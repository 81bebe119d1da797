//! The value of `config/quota`.

use super::settings::parse_size;

/// What `config/quota` allows; nothing if it does not speak of it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Logical bytes of records and files that differ from the base, and of earlier states that are kept.
    pub bytes: Option<u64>,
    /// Records that differ from the base, deleted ones among them.
    pub records: Option<u64>,
    /// How many branches there are below it, at any depth.
    pub branches: Option<u64>,
}

impl Quota {
    /// Parses `bytes=1G records=100000 branches=100`, each at most once and in any order; `None` for anything else.
    pub fn parse(text: &str) -> Option<Quota> {
        let mut quota = Quota::default();
        for word in text.split_ascii_whitespace() {
            let (name, value) = word.split_once('=')?;
            let (slot, value) = match name {
                "bytes" => (&mut quota.bytes, parse_size(value)?),
                "records" => (&mut quota.records, value.parse().ok()?),
                "branches" => (&mut quota.branches, value.parse().ok()?),
                _ => return None,
            };
            if slot.replace(value).is_some() {
                return None;
            }
        }
        Some(quota)
    }
}
