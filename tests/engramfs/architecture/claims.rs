//! What the reference page claims stands beside the tests that would fail if it were false.

use super::rules::quoted_tests;

/// A table, a paragraph or a point of a list, with what follows it in its section.
struct Claim<'a> {
    text: String,
    behind: Vec<&'a str>,
    /// What stands behind it in its section may name its test.
    leads_on: bool,
}

/// What the reference part of a page claims, in order. Code is part of the paragraph before it.
fn claims(page: &str) -> Vec<Claim<'_>> {
    let (_, reference) = page.split_once("\n# Reference\n").unwrap_or_default();
    let sections = reference.split_inclusive('\n').collect::<Vec<_>>();
    let sections = sections.split(|line| line.starts_with('#'));
    sections.flat_map(|lines| (0..lines.len()).filter_map(|at| claim(lines, at))).collect()
}

/// Returns what begins at a line of a section.
fn claim<'a>(lines: &[&'a str], at: usize) -> Option<Claim<'a>> {
    let is_blank = |line: &str| line.trim().is_empty();
    let is_point = |line: &str| line.starts_with("- ");
    let before = at.checked_sub(1).map(|before| lines[before]);
    let begins = is_point(lines[at]) || before.is_none_or(is_blank);
    if !begins || is_blank(lines[at]) || lines[at].starts_with("    ") {
        return None;
    }
    let length = lines[at + 1..].iter().take_while(|line| !is_blank(line) && !is_point(line)).count() + 1;
    let (own, behind) = lines[at..].split_at(length);
    let text = own.concat();
    let is_introduction = !is_point(lines[at]) && text.trim_end().ends_with(':');
    let leads_on = is_introduction || lines[at].starts_with('|');
    Some(Claim { text, behind: behind.to_vec(), leads_on })
}

/// Each paragraph and each point of a list names a test. For a table, and for a paragraph that ends with a colon, what stands
/// behind it before the next heading may do so. An exception is a claim's beginning.
pub fn untested(page: &str, exceptions: &[&str]) -> Vec<String> {
    let names_test = |text: &str| quoted_tests(text).next().is_some();
    let all = claims(page);
    let untested: Vec<&Claim<'_>> = all
        .iter()
        .filter(|claim| !(names_test(&claim.text) || claim.leads_on && names_test(&claim.behind.concat())))
        .collect();
    let is_exception = |claim: &Claim<'_>| exceptions.iter().any(|begins| claim.text.starts_with(begins));
    let first_line = |claim: &Claim<'_>| claim.text.lines().next().unwrap_or_default().to_owned();
    let found = untested.iter().filter(|claim| !is_exception(claim));
    let mut found: Vec<String> = found.map(|claim| format!("names no test: {}", first_line(claim))).collect();
    let needless = exceptions.iter().filter(|begins| !untested.iter().any(|claim| claim.text.starts_with(**begins)));
    found.extend(needless.map(|begins| format!("needs no exception or is not there: {begins}")));
    if all.is_empty() {
        found.push("the page has no part # Reference".to_owned());
    }
    found
}

#[test]
fn a_claim_without_a_test_is_found() {
    let page = |body: &str| {
        format!(
            "x\n\n# Guarantees\n\nwhat is said here\n\n# Reference\n\n## One\n\n{body}\n## Two\n\n`it_is_as_said`.\n"
        )
    };
    let count = |body: &str, exceptions: &[&str]| untested(&page(body), exceptions).len();
    for proven in [
        "A `it_is_as_said` b.\n",
        "A\nb:\n\n| c |\n|---|\n| d |\n\nTests: `it_is_as_said`.\n",
        "- A\n  b `it_is_as_said`.\n- C `it_is_as_said`.\n",
        "A:\n\n    code\n\n`it_is_as_said`\n",
    ] {
        assert_eq!(count(proven, &[]), 0, "{proven}");
    }
    for (unproven, findings) in [
        ("A `b`.\n", 1),
        ("A.\n\nB: `it_is_as_said`.\n", 1),
        ("- A:\n\n`it_is_as_said`\n", 1),
        ("`it_is_as_said`\n\n| c |\n|---|\n| d |\n", 1),
        ("- A.\n- C `it_is_as_said`.\n- D.\n\n`it_is_as_said`\n", 2),
    ] {
        assert_eq!(count(unproven, &[]), findings, "{unproven}");
    }
    assert_eq!(count("- A.\n", &["- A"]), 0);
    assert_eq!(count("A `it_is_as_said` b.\n", &["A"]), 1, "an exception that nothing needs");
    assert_eq!(untested("no such part\n", &[]).len(), 1);
}
