//! The rules of the house. Each returns what breaks it, one sentence a finding.

use std::collections::{BTreeMap, BTreeSet};

use super::map::{Edges, Map};
use super::source::{Source, declarations, declared_as, functions, has_word, named_below};

#[cfg(test)]
mod tests;

/// Most lines of a file.
const FILE_LINES_MAX: usize = 500;
/// Most lines of a function.
const FUNCTION_LINES_MAX: usize = 70;
/// The rooms that may hold unsafe code.
const UNSAFE: [&str; 3] = ["vector", "disk", "fuse"];
/// The one room below the windows that measures how long something takes; it does not know what time it is.
const MEASURES: &str = "sync";
/// The one file below `fs` that asks the system for time and chance.
const ENVIRONMENT: &str = "memory/environment.rs";
/// Names that each module, and each verb of the command line, may give a type of its own.
const TYPES_PER_MODULE: [&str; 4] = ["Error", "Kind", "Result", "Args"];

/// Who really uses whom.
pub fn edges(sources: &[Source]) -> Edges {
    let mut edges = Edges::new();
    for file in sources {
        let Some(room) = file.room() else { continue };
        let others = named_below(&file.code, "crate").into_iter().filter(|other| *other != room);
        edges.entry(room.to_owned()).or_default().extend(others.map(str::to_owned));
    }
    edges
}

/// Every path from room to room must be in the table.
pub fn forbidden_edges(sources: &[Source], map: &Map) -> Vec<String> {
    let allowed = |room: &str, other: &str| map.rooms.get(room).is_some_and(|uses| uses.contains(other));
    let mut found = Vec::new();
    for (room, others) in edges(sources) {
        found.extend(
            others
                .iter()
                .filter(|other| !allowed(&room, other))
                .map(|other| format!("{room} uses {other}, which the table does not allow")),
        );
    }
    found
}

/// `super` must not leave the room, or the table could be walked around.
pub fn climbs(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources.iter().filter(|file| file.room().is_some()) {
        let inline = usize::from(file.production().len() < file.code.len());
        let up = "super::".repeat(file.module().len() + inline);
        if file.code.contains(&up) {
            found.push(format!("{} leaves its room by super; write crate:: and the room's name", file.path));
        }
    }
    found
}

/// Rows and rooms must be the same, and every name in a row must be a room.
pub fn strange_rows(sources: &[Source], map: &Map) -> Vec<String> {
    let rooms: BTreeSet<&str> = sources.iter().filter_map(Source::room).collect();
    let rows: BTreeSet<&str> = map.rooms.keys().map(String::as_str).collect();
    let used = map.rooms.values().flatten().map(String::as_str).chain(map.crates.values().map(String::as_str));
    let mut found: Vec<String> =
        rooms.difference(&rows).map(|room| format!("{room} has no row in the table")).collect();
    found.extend(rows.difference(&rooms).map(|row| format!("the table's row {row} is no room")));
    found.extend(
        used.filter(|name| !rooms.contains(name)).map(|name| format!("a table names {name}, which is no room")),
    );
    found
}

/// Rooms must stand above one another. What remains when those without a way on are taken away
/// again and again is, or leads to, a cycle.
pub fn cycles(edges: &Edges) -> Vec<String> {
    let mut left: BTreeMap<&str, &BTreeSet<String>> = edges.iter().map(|(room, uses)| (room.as_str(), uses)).collect();
    loop {
        let before = left.len();
        let rooms: BTreeSet<&str> = left.keys().copied().collect();
        left.retain(|_, uses| uses.iter().any(|other| rooms.contains(other.as_str())));
        if left.len() == before {
            break;
        }
    }
    left.keys().map(|room| format!("{room} is in a cycle, or uses one that is")).collect()
}

/// Files and functions stay small.
pub fn giants(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{} has {lines} lines", file.path));
        }
        let long = functions(&file.code).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
        found.extend(long.map(|function| format!("{} in {} has {} lines", function.name, file.path, function.lines)));
    }
    found
}

/// Nothing is left for later, and no aid of a search for errors stays.
pub fn unfinished(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources {
        // In two parts, so that this file does not find itself.
        for mark in [concat!("TO", "DO"), concat!("FIX", "ME")] {
            if has_word(&file.text, mark) {
                found.push(format!("{} says {mark}", file.path));
            }
        }
        if has_word(&file.code, concat!("db", "g!")) {
            found.push(format!("{} prints for debugging", file.path));
        }
    }
    found
}

/// Every file is a module of another one, or it is never compiled.
pub fn forgotten(sources: &[Source], roots: &[&str]) -> Vec<String> {
    let declared = declarations(sources);
    let is_named =
        |file: &Source| roots.contains(&file.path.as_str()) || declared_as(&file.module(), &declared, roots).is_some();
    sources.iter().filter(|file| !is_named(file)).map(|file| format!("no mod names {}", file.path)).collect()
}

/// Only the command line prints.
pub fn printing(sources: &[Source]) -> Vec<String> {
    let prints = |file: &&Source| {
        ["println!", "eprintln!", "print!", "eprint!"].into_iter().any(|name| has_word(file.production(), name))
    };
    let unreferenced = sources.iter().filter(|file| file.room() != Some("cli"));
    unreferenced.filter(prints).map(|file| format!("{} prints, and only cli does", file.path)).collect()
}

/// Only `disk` opens files, but for the exceptions that the page gives a reason for.
pub fn files_elsewhere(sources: &[Source], map: &Map) -> Vec<String> {
    let opens = |file: &&Source| file.room() != Some("disk") && named_below(file.production(), "std").contains("fs");
    let excused = |file: &Source, exception: &String| {
        if exception.ends_with('/') { file.path.starts_with(exception.as_str()) } else { file.path == *exception }
    };
    let openers: Vec<&Source> = sources.iter().filter(opens).collect();
    let mut found: Vec<String> = openers
        .iter()
        .filter(|file| !map.files.iter().any(|exception| excused(file, exception)))
        .map(|file| format!("{} uses std::fs, and only disk does", file.path))
        .collect();
    let needless = map.files.iter().filter(|exception| !openers.iter().any(|file| excused(file, exception)));
    found.extend(needless.map(|exception| format!("{exception} may use std::fs and does not need to")));
    found
}

/// Unsafe code stays where it can't be avoided.
pub fn unsafe_elsewhere(sources: &[Source]) -> Vec<String> {
    let unreferenced = sources.iter().filter(|file| !file.room().is_some_and(|room| UNSAFE.contains(&room)));
    unreferenced
        .filter(|file| has_word(&file.code, "unsafe"))
        .map(|file| format!("{} is unsafe; that is for {}", file.path, UNSAFE.join(", ")))
        .collect()
}

/// A crate that one room was made for is named there alone.
pub fn crates_elsewhere(sources: &[Source], map: &Map) -> Vec<String> {
    let mut found = Vec::new();
    for (name, home) in &map.crates {
        let unreferenced = sources.iter().filter(|file| file.room() != Some(home.as_str()));
        found.extend(
            unreferenced
                .filter(|file| !named_below(&file.code, name).is_empty())
                .map(|file| format!("{} names the crate {name}, and only {home} does", file.path)),
        );
    }
    found
}

/// Time is passed in; only the street and one file ask for it.
pub fn clocks(sources: &[Source]) -> Vec<String> {
    let asks = |file: &&Source| {
        let measures = has_word(file.production(), "Instant") && file.room() != Some(MEASURES);
        measures || has_word(file.production(), "SystemTime")
    };
    let inside =
        sources.iter().filter(|file| file.path != ENVIRONMENT && !matches!(file.room(), None | Some("cli" | "fuse")));
    inside
        .filter(asks)
        .map(|file| format!("{} asks the system for the time; take it from the environment", file.path))
        .collect()
}

/// A test that a page names must be there. Names of tests are sentences: three underscores or more.
pub fn missing_tests(page: &str, sources: &[&Source]) -> Vec<String> {
    let there: BTreeSet<&str> =
        sources.iter().flat_map(|file| functions(&file.code)).map(|function| function.name).collect();
    let is_name =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let quoted = page.split('`').skip(1).step_by(2);
    let named = quoted.filter(|text| is_name(text) && text.matches('_').count() >= 3);
    named
        .filter(|name| !there.contains(name))
        .map(|name| format!("a page names the test {name}, which is not there"))
        .collect()
}

/// One name of a type that others can see means one thing.
pub fn repeated_types(sources: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in sources {
        for name in file.production().lines().filter_map(visible_type) {
            places.entry(name).or_default().push(&file.path);
        }
    }
    places.retain(|name, files| files.len() > 1 && !TYPES_PER_MODULE.contains(name));
    places.into_iter().map(|(name, files)| format!("{name} names several types: {}", files.join(", "))).collect()
}

/// Returns the name of the type that a line declares for more than its own file.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1 } else { rest };
    let (word, rest) = rest.trim_start().split_once(' ')?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    ["struct", "enum", "trait", "type"].contains(&word).then(|| &rest[..end])
}
