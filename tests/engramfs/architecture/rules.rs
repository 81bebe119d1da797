//! The rules of the architecture. Each returns what breaks it, one sentence a finding.

use std::collections::{BTreeMap, BTreeSet};

use super::map::{Edges, Limit, Map};
use super::source::{Source, declarations, declared_as, functions, has_word, named_below, named_paths};

#[cfg(test)]
mod tests;

/// Most lines of a file.
const FILE_LINES_MAX: usize = 500;
/// Most lines of a function.
const FUNCTION_LINES_MAX: usize = 70;
/// Names that each module, and each verb of the command line, may give a type of its own.
const TYPES_PER_MODULE: [&str; 3] = ["Error", "Result", "Args"];
/// The files that hold a table of the codes of errors, some of which look like names of tests.
const WITH_CODES: [&str; 2] =
    [include_str!("../../../src/memory/error/tests.rs"), include_str!("../../../src/fs/refusal.rs")];

/// Who really uses whom.
pub fn edges(sources: &[Source]) -> Edges {
    let mut edges = Edges::new();
    for file in sources {
        let Some(module) = file.top_module() else { continue };
        let others = named_below(&file.code, "crate").into_iter().filter(|other| *other != module);
        edges.entry(module.to_owned()).or_default().extend(others.map(str::to_owned));
    }
    edges
}

/// Every path from module to module must be in the table.
pub fn forbidden_edges(sources: &[Source], map: &Map) -> Vec<String> {
    let allowed = |module: &str, other: &str| map.modules.get(module).is_some_and(|uses| uses.contains(other));
    let mut found = Vec::new();
    for (module, others) in edges(sources) {
        found.extend(
            others
                .iter()
                .filter(|other| !allowed(&module, other))
                .map(|other| format!("{module} uses {other}, which the table does not allow")),
        );
    }
    found
}

/// `super` must not leave the module, or the table could be walked around.
pub fn climbs(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources.iter().filter(|file| file.top_module().is_some()) {
        let inline = usize::from(file.production().len() < file.code.len());
        let up = "super::".repeat(file.module().len() + inline);
        if file.code.contains(&up) {
            found.push(format!("{} leaves its module by super; write crate:: and the module's name", file.path));
        }
    }
    found
}

/// Rows and modules must be the same, and every name in a row must be a module.
pub fn strange_rows(sources: &[Source], map: &Map) -> Vec<String> {
    let modules: BTreeSet<&str> = sources.iter().filter_map(Source::top_module).collect();
    let rows: BTreeSet<&str> = map.modules.keys().map(String::as_str).collect();
    let used =
        map.modules.values().flatten().map(String::as_str).chain(map.crates.values().flatten().map(String::as_str));
    let mut found: Vec<String> =
        modules.difference(&rows).map(|module| format!("{module} has no row in the table")).collect();
    found.extend(rows.difference(&modules).map(|row| format!("the table's row {row} is no module")));
    found.extend(
        used.filter(|name| !modules.contains(name)).map(|name| format!("a table names {name}, which is no module")),
    );
    found
}

/// Modules must stand above one another. When those that use no other one are taken away again and again, only
/// cycles and what leads to them remain; one cycle is named.
pub fn cycles(edges: &Edges) -> Vec<String> {
    let mut left: BTreeMap<&str, Vec<&str>> =
        edges.iter().map(|(name, uses)| (name.as_str(), uses.iter().map(String::as_str).collect())).collect();
    loop {
        let names: BTreeSet<&str> = left.keys().copied().collect();
        left.values_mut().for_each(|uses| uses.retain(|other| names.contains(other)));
        left.retain(|_, uses| !uses.is_empty());
        if left.len() == names.len() {
            break;
        }
    }
    let Some(mut name) = left.keys().next().copied() else { return Vec::new() };
    let mut walked = Vec::new();
    while !walked.contains(&name) {
        walked.push(name);
        name = left[name][0];
    }
    let cycle = walked.into_iter().skip_while(|walked| *walked != name).chain([name]);
    vec![format!("a cycle: {}", cycle.collect::<Vec<_>>().join(" -> "))]
}

/// Which folder uses which other folder that lies in the same one. A file beside the folders may use them and be
/// used by them: it belongs to none.
pub fn folder_edges(sources: &[Source]) -> Edges {
    let folders: BTreeSet<&str> =
        sources.iter().flat_map(|file| file.path.match_indices('/').map(|(at, _)| &file.path[..at])).collect();
    let mut edges = Edges::new();
    for file in sources {
        let module = file.module();
        for path in named_paths(file.production(), &module) {
            let shared = module.iter().zip(&path).take_while(|(own, other)| own == other).count();
            if let (Some(own), Some(other)) = (module.get(..=shared), path.get(..=shared)) {
                let (own, other) = (own.join("/"), other.join("/"));
                if shared > 0 && folders.contains(own.as_str()) && folders.contains(other.as_str()) {
                    edges.entry(own).or_default().insert(other);
                }
            }
        }
    }
    edges
}

/// A folder imports only from those above it in the table. Where one folder of a module has a row there, all have one that
/// use others or are used by them.
pub fn upward_folders(sources: &[Source], map: &Map) -> Vec<String> {
    let place = |folder: &String| map.folders.iter().position(|other| other == folder);
    let edges = folder_edges(sources);
    let pairs = edges.iter().flat_map(|(folder, others)| others.iter().map(move |other| (folder, other)));
    let upward = pairs
        .filter(|(folder, other)| place(folder).zip(place(other)).is_some_and(|(own, used)| own < used))
        .map(|(folder, other)| format!("{folder} imports from {other}, which stands below it"));
    let module = |folder: &String| folder.rsplit_once('/').map(|(module, _)| module.to_owned());
    let with_rows: BTreeSet<Option<String>> = map.folders.iter().map(module).collect();
    let named: BTreeSet<&String> = edges.keys().chain(edges.values().flatten()).collect();
    let missing = named
        .into_iter()
        .filter(|folder| place(folder).is_none() && with_rows.contains(&module(folder)))
        .map(|folder| format!("{folder} has no row in the table of folders"));
    upward.chain(missing).collect()
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

/// What only some places may use is used there and nowhere else. Tests may, but for unsafe code.
pub fn used_elsewhere(sources: &[Source], limit: &Limit) -> Vec<String> {
    let names = limit.words.join(", ");
    let uses = |file: &Source, word: &String| match word.split_once("::") {
        Some((root, name)) => named_below(file.production(), root).contains(name),
        None => has_word(if word == "unsafe" { &file.code } else { file.production() }, word),
    };
    let is_at = |file: &Source, place: &String| {
        if place.ends_with('/') { file.path.starts_with(place.as_str()) } else { file.path == *place }
    };
    let users: Vec<&Source> = sources.iter().filter(|file| limit.words.iter().any(|word| uses(file, word))).collect();
    let mut found: Vec<String> = users
        .iter()
        .filter(|file| !limit.places.iter().any(|place| is_at(file, place)))
        .map(|file| format!("{} uses {names}, which the page allows in {} only", file.path, limit.places.join(", ")))
        .collect();
    let needless = limit.places.iter().filter(|place| !users.iter().any(|file| is_at(file, place)));
    found.extend(needless.map(|place| format!("{place} may use {names} and does not need to")));
    found
}

/// A crate that some modules were made for is named there alone.
pub fn crates_elsewhere(sources: &[Source], map: &Map) -> Vec<String> {
    let mut found = Vec::new();
    for (name, homes) in &map.crates {
        let is_home = |module: &str| homes.iter().any(|home| home == module);
        let unreferenced = sources.iter().filter(|file| !file.top_module().is_some_and(is_home));
        found.extend(
            unreferenced
                .filter(|file| !named_below(&file.code, name).is_empty())
                .map(|file| format!("{} names the crate {name}, and only {} does", file.path, homes.join(", "))),
        );
    }
    found
}

/// A test that a page names must be there.
pub fn missing_tests(page: &str, sources: &[&Source]) -> Vec<String> {
    let there: BTreeSet<&str> =
        sources.iter().flat_map(|file| functions(&file.code)).map(|function| function.name).collect();
    quoted_tests(page)
        .filter(|name| !there.contains(name))
        .map(|name| format!("a page names the test {name}, which is not there"))
        .collect()
}

/// The tests that a text names. Their names are sentences: three underscores or more. A code of an error is none.
pub fn quoted_tests(text: &str) -> impl Iterator<Item = &str> {
    let is_name =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(move |text| is_name(text) && text.matches('_').count() >= 3 && !error_codes().any(|code| code == *text))
}

/// The codes of errors, from the tables that tests hold against the errors themselves.
fn error_codes() -> impl Iterator<Item = &'static str> {
    let tables = WITH_CODES.into_iter().filter_map(|file| file.split_once("const CODES: &str = \"\\\n"));
    let lines = tables.flat_map(|(_, behind)| behind.split('"').next().unwrap_or_default().lines());
    lines.filter_map(|line| line.split(' ').next())
}

/// The section "Crash cases".
fn crash_section(page: &str) -> &str {
    page.split("\n## ").find(|section| section.starts_with("Crash cases\n")).unwrap_or_default()
}

/// The rows of its table.
fn crash_rows(page: &str) -> Vec<&str> {
    crash_section(page).lines().filter(|line| line.starts_with('|')).skip(2).collect()
}

/// Each row of the table "Crash cases" names a test.
pub fn untested_crashes(page: &str) -> Vec<String> {
    let rows = crash_rows(page);
    if rows.is_empty() {
        return vec!["the page has no table of crash cases".to_owned()];
    }
    let untested = rows.into_iter().filter(|row| quoted_tests(row).next().is_none());
    untested.map(|row| format!("the crash case names no test: {row}")).collect()
}

/// A test stands in one row of the table "Crash cases": several that rest on the same one do not say which asserts what.
pub fn repeated_crash_tests(page: &str) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in crash_rows(page) {
        let named: BTreeSet<&str> = quoted_tests(row).collect();
        named.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
    }
    let repeated = counts.into_iter().filter(|(_, count)| *count > 1);
    repeated.map(|(name, count)| format!("the test {name} stands in {count} crash cases")).collect()
}

/// In each file that has a test of the section "Crash cases", every test that cuts the power or has a call fail is named there, or
/// is one of the exceptions.
pub fn unlisted_crash_tests(page: &str, sources: &[&Source], exceptions: &[&str]) -> Vec<String> {
    let named: BTreeSet<&str> = quoted_tests(crash_section(page)).collect();
    let has_case = |file: &&&Source| tests_with_bodies(&file.code).any(|(name, _)| named.contains(name));
    let crashes = |body: &str| body.contains(".power_cut") || has_word(body, "Fault");
    let tests = sources.iter().filter(has_case).flat_map(|file| tests_with_bodies(&file.code));
    let unlisted: Vec<&str> =
        tests.filter(|(name, body)| crashes(body) && !named.contains(name)).map(|(name, _)| name).collect();
    let found = unlisted.iter().filter(|name| !exceptions.contains(*name));
    let found = found.map(|name| format!("the test {name} is in no crash case"));
    let needless = exceptions.iter().filter(|name| !unlisted.contains(*name));
    found.chain(needless.map(|name| format!("needs no exception or is not there: {name}"))).collect()
}

/// The tests of a file: name and body of each, which ends at a brace that is indented as its `fn`.
fn tests_with_bodies(code: &str) -> impl Iterator<Item = (&str, &str)> {
    code.split("#[test]").skip(1).filter_map(|part| {
        let (before, function) = part.split_once("fn ")?;
        let (name, rest) = function.split_once('(')?;
        let indent = before.rsplit('\n').next().unwrap_or_default();
        let end = format!("\n{indent}}}");
        let body = rest.split_once(&end).map_or(rest, |(body, _)| body);
        Some((name, body))
    })
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
