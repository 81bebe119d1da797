//! The text of `config/rules` behind a path that is looked up in it.
#![no_main]

use engramfs::merge::files::Rules;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (path, text) = engramfs_fuzz::split(bytes);
    let Ok(rules) = std::str::from_utf8(text).map(Rules::parse) else { return };
    let Ok(rules) = rules else { return };
    assert_eq!(rules.with_sides_swapped().rule_for(path).pattern, rules.rule_for(path).pattern);
    for rule in rules.iter() {
        rule.allows(1000, &[1, 2]);
    }
});
