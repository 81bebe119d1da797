//! The tables of docs/ARCHITECTURE.md and CONTRIBUTING.md.

use std::collections::{BTreeMap, BTreeSet};

/// What the page allows.
#[derive(Debug, PartialEq, Eq)]
pub struct Map {
    /// For each module those that it may use.
    pub modules: Edges,
    /// For each outside crate the modules that name it.
    pub crates: BTreeMap<String, Vec<String>>,
    /// What only some files and folders may use.
    pub limits: Vec<Limit>,
    /// Folders of modules, each of which imports only from those above it.
    pub folders: Vec<String>,
}

/// Words of the source that only some places may use.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    /// Each is found as a whole word; a path such as `std::fs` also inside of a group.
    pub words: Vec<String>,
    /// Files, and folders with a slash at the end.
    pub places: Vec<String>,
}

/// Who uses whom.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// Reads the tables; an error names the one that is missing.
pub fn read(page: &str) -> Result<Map, String> {
    let list = |cell: &str| cell.split(',').map(|name| name.trim().to_owned()).collect();
    let uses = |cell: &str| match cell {
        "nothing of ours" => BTreeSet::new(),
        names => BTreeSet::from_iter::<Vec<String>>(list(names)),
    };
    Ok(Map {
        modules: table(page, "module")?.into_iter().map(|[module, uses_of, _]| (module, uses(&uses_of))).collect(),
        crates: table(page, "crate")?.into_iter().map(|[name, modules, _]| (name, list(&modules))).collect(),
        limits: table(page, "only some may use")?
            .into_iter()
            .map(|[words, places, _]| Limit { words: list(&words), places: list(&places) })
            .collect(),
        folders: table(page, "folder")?.into_iter().map(|[folder, ..]| folder).collect(),
    })
}

/// The rows of the table whose first heading is `heading`, three cells each.
fn table(page: &str, heading: &str) -> Result<Vec<[String; 3]>, String> {
    let rows: Vec<[String; 3]> = page
        .lines()
        .skip_while(|line| cells(line)[0] != heading)
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(cells)
        .collect();
    if rows.is_empty() {
        Err(format!("the page has no table of which the first heading is '{heading}'"))
    } else {
        Ok(rows)
    }
}

fn cells(line: &str) -> [String; 3] {
    let mut cells = line.trim_matches('|').split('|').map(|cell| cell.replace('`', "").trim().to_owned());
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
text | module
| module | may use | must never know |
|---|---|---|
| `a` | b, `c` | x |
| `b` | nothing of ours | x |

| crate | named in | for |
|---|---|---|
| `k` | `a` | x |

| only some may use | where | why |
|---|---|---|
| `p!`, `std::fs` | `b/x.rs`, `a/` | because |

| folder | what it holds |
|---|---|
| `a/low` | x |
| `a/high` | x |
";

    #[test]
    fn the_tables_are_read() {
        let map = read(PAGE).unwrap();
        assert_eq!(map.modules["a"], BTreeSet::from(["b".to_owned(), "c".to_owned()]));
        assert!(map.modules["b"].is_empty() && map.modules.len() == 2);
        assert_eq!(map.crates["k"], ["a"]);
        assert_eq!(map.folders, ["a/low", "a/high"]);
        let owned = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        assert_eq!(map.limits, [Limit { words: owned(["p!", "std::fs"]), places: owned(["b/x.rs", "a/"]) }]);
    }

    #[test]
    fn a_missing_table_is_an_error() {
        for heading in ["module", "crate", "only some may use", "folder"] {
            assert!(read(&PAGE.replace(&format!("| {heading} |"), "| other |")).is_err(), "{heading}");
        }
    }
}
