//! The tables of codes in docs/FORMAT.md, for tests that compare them with the code.

use std::collections::BTreeMap;

const FORMAT: &str = include_str!("../../docs/FORMAT.md");

/// Returns the text of a section, up to the next heading.
fn section(heading: &str) -> &'static str {
    let (_, rest) = FORMAT.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    rest.split("\n#").next().unwrap_or(rest)
}

fn code(text: &str) -> Option<u8> {
    match text.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns code and name of each row of the first table of a section. `8, 9 | a, b` are two rows.
pub fn table(heading: &str) -> BTreeMap<u8, String> {
    let mut found = BTreeMap::new();
    for row in section(heading).lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let codes: Option<Vec<u8>> = cells[1].split(", ").map(code).collect();
        for (code, name) in codes.into_iter().flatten().zip(cells[2].split(", ")) {
            assert_eq!(found.insert(code, name.to_owned()), None, "{heading}: code {code} stands twice");
        }
    }
    found
}

/// Returns code and name of each item of a list `1 name, 2 name, …` that follows a word in a section.
pub fn list(heading: &str, word: &str) -> BTreeMap<u8, String> {
    let (_, rest) = section(heading).split_once(&format!("{word}: ")).unwrap_or_else(|| panic!("no list {word}"));
    let (items, _) = rest.split_once('.').unwrap_or((rest, ""));
    let items = items.split(',').map(|item| item.split_whitespace().collect::<Vec<_>>().join(" "));
    let item = |item: String| {
        let (number, name) = item.split_once(' ').unwrap_or_else(|| panic!("no code in {item}"));
        (code(number).unwrap_or_else(|| panic!("no code in {item}")), name.to_owned())
    };
    items.map(item).collect()
}
