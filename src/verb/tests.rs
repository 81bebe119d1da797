//! The table is held against the lines of `ctl` and against the pages.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::*;

const SEMANTICS: &str = include_str!("../../docs/SEMANTICS.md");

/// Returns the words of a usage with a value for each argument.
fn example(usage: &str) -> String {
    let written = usage.replace(['[', ']', '…'], "").replace("child|parent", "parent").replace("AGE", "7d");
    let written = written
        .replace("HASH", &"0a".repeat(32))
        .replace("UID", "7")
        .replace("ID|files/PATH|shared/log/NUMBER|shared/signals/KEY", "files/a");
    let written = written.replace(" N ", " 3 ").replace("BEFORE_ID", "12");
    written.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn in_ctl() -> impl Iterator<Item = &'static VerbSpec> {
    VERBS.iter().copied().filter(|spec| spec.channel == Channel::Ctl)
}

fn canonical(line: &str) -> Option<String> {
    Verb::parse(line).map(|verb| verb.to_line())
}

#[test]
fn each_usage_parses_and_is_written_again() {
    for spec in in_ctl() {
        let line = example(&line::usage(spec));
        assert_eq!(canonical(&line), Some(line.clone()), "{line}");
        assert_eq!(Verb::parse(&line).unwrap().spec().name, spec.name);
    }
}

#[test]
fn words_and_arguments_are_unique() {
    for (at, spec) in VERBS.iter().enumerate() {
        assert!(VERBS[..at].iter().all(|other| other.name != spec.name), "{}", spec.name);
        for (at, argument) in spec.arguments.iter().enumerate() {
            assert!(spec.arguments[..at].iter().all(|other| other.name != argument.name), "{}", spec.name);
        }
    }
}

#[test]
fn rights_of_a_dry_run_are_for_verbs_that_have_one() {
    for spec in VERBS.iter().filter(|spec| spec.dry_run.is_some()) {
        assert!(spec.arguments.iter().any(|argument| argument.name == spec::DRY_RUN.name), "{}", spec.name);
    }
}

#[test]
fn the_page_says_who_may_ask_for_each_verb() {
    let rows: Vec<&str> = SEMANTICS.lines().filter(|line| line.starts_with('|')).collect();
    for spec in VERBS {
        let [bare, with_arguments] = [format!("`{}`", spec.name), format!("`{} ", spec.name)];
        // In a mount a branch is discarded by rmdir, which is what the page speaks of.
        let found = |row: &&str| {
            row.contains(&bare) || row.contains(&with_arguments) || row.contains(&format!("| {} |", spec.name))
        };
        assert!(rows.iter().any(found), "no table of docs/SEMANTICS.md has a row for {}", spec.name);
    }
}

/// Brackets aside: the page may put one option into another, as in `[A [B]]`.
#[test]
fn the_page_writes_each_verb_as_its_usage_does() {
    let words = |usage: &str| usage.replace(['[', ']'], "");
    let page = SEMANTICS.replace("\\|", "|").replace(" | from discarded ", " from-discarded ");
    let written: Vec<String> = page.split('`').map(words).collect();
    for spec in in_ctl().filter(|spec| !["merge", "promote", "pull"].contains(&spec.name)) {
        let usage = words(&line::usage(spec));
        assert!(written.contains(&usage), "docs/SEMANTICS.md has no `{usage}`");
    }
}

#[test]
fn verbs_take_their_arguments() {
    for (line, written) in [
        ("gc --dry-run  --older-than 7d", "gc --dry-run --older-than 7d"),
        ("gc", "gc"),
        (" pull ", "pull"),
        ("merge --dry-run", "merge --dry-run"),
        ("promote\t--dry-run", "promote --dry-run"),
        ("fork x from v1", "fork x from v1"),
        ("fork from", "fork from"),
        ("checkpoint v1 before  the storm ", "checkpoint v1 before  the storm"),
        ("checkpoint v1", "checkpoint v1"),
        ("rollback v1", "rollback v1"),
        ("rollback v1 -- files/a  files/b/**", "rollback v1 -- files/a files/b/**"),
        ("rollback \"v1\" -- \"files/a b\"  files/c", "rollback v1 -- \"files/a b\" files/c"),
        ("merge --  two  words --dry-run", "merge -- two  words --dry-run"),
        ("free-agent Ann  Smith", "free-agent \"Ann  Smith\""),
        ("fork x from \"discarded\" owner 7", "fork x from \"discarded\" owner 7"),
        ("propose \"all\"", "propose all"),
        ("propose \"all\" of it", "propose \"\\\"all\\\" of it\""),
        ("resolve a  b  child", "resolve a  b child"),
        ("show 17", "show 17"),
        ("purge password  files/.env", "purge password files/.env"),
        ("purge --copies a \"b c\"  d --dry-run", "purge a \"b c\" d --copies --dry-run"),
        ("purge \"--copies\" \"\\\"\"", "purge \"--copies\" \"\\\"\""),
    ] {
        let [parsed, expected] = [line, written].map(|line| Verb::parse(line).unwrap());
        assert_eq!(parsed.to_line(), expected.to_line(), "{line}");
    }
    let value = |line: &str, at: usize| {
        let verb = Verb::parse(line).unwrap();
        verb.arguments().values(&verb.spec().arguments[at]).to_vec()
    };
    assert_eq!(value("resolve a  b  child", 0), ["a  b"]);
    assert_eq!(value("checkpoint v1 before  the storm", 1), ["before  the storm"]);
    assert_eq!(value("rollback v1 -- files/a  files/b/**", 1), ["files/a", "files/b/**"]);
    assert_eq!(value("rollback v1 -- \"files/a b\" files/c", 1), ["files/a b", "files/c"]);
    assert_eq!(value("propose \"all\" of it", 0), ["\"all\" of it"]);
}

#[test]
fn what_is_no_verb_is_refused_whole() {
    for line in [
        "",
        "explode",
        "discard",
        "pull now",
        "gc now",
        "gc --older-than",
        "gc --older-than soon",
        "gc --older-than -1h",
        "fork",
        "fork x of v1",
        "fork x from",
        "fork x from v1 from v2",
        "rollback",
        "rollback v1 files/a",
        "rollback v1 --",
        "resolve a",
        "resolve a both",
        "resolve \"a\" b child",
        "rollback \"v1",
        "rollback v1 -- \"files/a",
        "merge --",
        "checkpoint",
        "show",
        "show 17 18",
        "show main",
        "purge",
        "purge --copies",
        "purge a --all",
        "purge \"a",
        "purge \"a\"b",
        "purge \"\"",
    ] {
        assert_eq!(canonical(line), None, "{line}");
    }
}

#[test]
fn a_value_does_not_begin_another_line() {
    let mut arguments = Arguments::default();
    for (argument, value) in checkpoint::CHECKPOINT.arguments.iter().zip(["v1", "one\ngc"]) {
        arguments.set(argument, vec![value.to_owned()]);
    }
    assert_eq!(Verb::new(&checkpoint::CHECKPOINT, arguments).unwrap().to_line(), r#"checkpoint v1 "one\ngc""#);
}

#[test]
fn whatever_an_argument_is_the_line_says_it_again() {
    let odd = [
        "",
        " ",
        "a b",
        " a",
        "a ",
        "a\tb",
        "a\u{a0}b",
        "a\nb\r",
        "\"",
        "\"a\"",
        "\"a\" b",
        "a\"",
        "--",
        "--dry-run",
        "-2h",
        "discarded",
    ];
    let mut tried = 0;
    for spec in in_ctl() {
        let plain = Verb::parse(&example(&line::usage(spec))).unwrap();
        for argument in spec.arguments.iter().filter(|argument| argument.form != ArgumentForm::Flag) {
            for value in odd {
                let mut arguments = plain.arguments().clone();
                arguments.set(argument, vec![value.to_owned()]);
                let Ok(verb) = Verb::new(spec, arguments) else { continue };
                let line = verb.to_line();
                assert!(!line.contains(['\n', '\r']), "{line}");
                let back = Verb::parse(&line).unwrap_or_else(|| panic!("{line}"));
                for argument in spec.arguments {
                    let [given, found] = [&verb, &back].map(|verb| verb.arguments().values(argument));
                    assert_eq!(given, found, "{line}");
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 10 * odd.len(), "{tried}");
}

#[test]
fn a_dry_run_changes_nothing_and_asks_for_less() {
    let [merge, dry] = ["merge", "merge --dry-run"].map(|line| Verb::parse(line).unwrap());
    assert!(merge.changes() && merge.ends_branch() && !dry.changes() && !dry.ends_branch());
    assert_eq!((merge.rights().parent, dry.rights().parent), (ParentRight::WriteOrGate, ParentRight::Read));
    let gc = Verb::parse("gc --dry-run").unwrap();
    assert_eq!((gc.rights().branch, gc.changes()), (BranchRight::Own, false));
}

#[test]
fn a_line_that_is_no_verb_is_answered_with_the_form_of_its_verb_or_of_all() {
    assert_eq!(usage("withdraw all"), "write withdraw");
    for count in ["0", "1001"] {
        let hint = usage(&format!(" undo  {count} "));
        let limit = format!("; \"{count}\" is no number of entries: write a number from 1 to 1000, or nothing for one");
        assert_eq!(hint, "write undo [N] [--dry-run]".to_owned() + &limit);
    }
    let all = usage("fly");
    assert!(all.starts_with("write one of: ") && in_ctl().all(|spec| all.contains(spec.name)), "{all}");
}
