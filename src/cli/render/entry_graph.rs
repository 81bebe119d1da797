//! Which entries an entry comes after: the lineage as a graph of branches.

use std::collections::HashMap;

use serde_json::Value;

use super::text;

/// Which entry follows which, over branches: what the columns of a drawing are made of.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EntryGraph {
    /// For each entry the entries it follows, the one on its own branch first.
    pub parents: Vec<Vec<usize>>,
    /// For each living branch, by name path, its newest entry.
    tips: HashMap<String, usize>,
}

impl EntryGraph {
    /// Reads `entries`, oldest first. Branches whose beginning is not among them begin where they are first seen.
    pub fn from_entries(entries: &[Value]) -> EntryGraph {
        let mut graph = EntryGraph::default();
        for (index, entry) in entries.iter().enumerate() {
            let parents = graph.add(index, entry);
            graph.parents.push(parents);
        }
        graph
    }

    /// Returns the index of a living branch's newest entry; `None` for any other name path.
    pub fn tip(&self, name_path: &str) -> Option<usize> {
        self.tips.get(name_path).copied()
    }

    fn add(&mut self, index: usize, entry: &Value) -> Vec<usize> {
        let (branch, parent) = (text(entry, "branch"), text(entry, "parent"));
        if text(entry, "op") == "rename" {
            self.rename(&format!("{parent}/{}", text(entry, "renamed_from")), branch);
        }
        let (own, above) = (self.tip(branch), self.tip(parent));
        let mut parents: Vec<usize> = match text(entry, "op") {
            "fork" => above.into_iter().collect(),
            "merge" | "promote" => above.into_iter().chain(own).collect(),
            "pull" => own.into_iter().chain(above).collect(),
            _ => own.into_iter().collect(),
        };
        parents.dedup();
        self.move_tips(index, entry);
        parents
    }

    fn move_tips(&mut self, index: usize, entry: &Value) {
        let (branch, parent) = (text(entry, "branch"), text(entry, "parent"));
        match text(entry, "op") {
            "merge" => {
                self.tips.insert(parent.to_owned(), index);
                self.tips.remove(branch);
            }
            // Both sides hold the same from here on.
            "promote" => {
                self.tips.insert(parent.to_owned(), index);
                self.tips.insert(branch.to_owned(), index);
            }
            "discard" => drop(self.tips.remove(branch)),
            // What was done to the store as a whole belongs to no branch.
            _ if branch.is_empty() => {}
            _ => drop(self.tips.insert(branch.to_owned(), index)),
        }
    }

    /// A branch's children carry its name in theirs.
    fn rename(&mut self, from: &str, to: &str) {
        let renamed = |name: &str| -> Option<String> {
            let rest = name.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
        };
        self.tips = self.tips.drain().map(|(name, tip)| (renamed(&name).unwrap_or(name), tip)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(op: &str, branch: &str, parent: &str) -> Value {
        json!({"op": op, "branch": branch, "parent": if parent.is_empty() { Value::Null } else { json!(parent) }})
    }

    #[test]
    fn a_merge_follows_both_sides_and_ends_the_child() {
        let entries = [
            entry("root", "main", ""),
            entry("fork", "main/x", "main"),
            entry("commit", "main/x", "main"),
            entry("commit", "main", ""),
            entry("merge", "main/x", "main"),
        ];
        let graph = EntryGraph::from_entries(&entries);
        assert_eq!(graph.parents, [vec![], vec![0], vec![1], vec![0], vec![3, 2]]);
        assert_eq!((graph.tip("main"), graph.tip("main/x")), (Some(4), None));
    }

    #[test]
    fn a_promoted_branch_goes_on_from_the_promote_and_a_pull_from_itself() {
        let entries = [
            entry("root", "main", ""),
            entry("fork", "main/x", "main"),
            entry("promote", "main/x", "main"),
            entry("commit", "main/x", "main"),
            entry("pull", "main/x", "main"),
        ];
        assert_eq!(EntryGraph::from_entries(&entries).parents, [vec![], vec![0], vec![0, 1], vec![2], vec![3, 2]]);
    }

    #[test]
    fn a_renamed_branch_and_its_children_go_on() {
        let mut rename = entry("rename", "main/y", "main");
        rename["renamed_from"] = json!("x");
        let entries = [
            entry("fork", "main/x", "main"),
            entry("fork", "main/x/c", "main/x"),
            entry("fork", "main/xx", "main"),
            rename,
            entry("commit", "main/y/c", "main/y"),
        ];
        let graph = EntryGraph::from_entries(&entries);
        assert_eq!(graph.parents[3..], [vec![0], vec![1]]);
        assert_eq!((graph.tip("main/xx"), graph.tip("main/x")), (Some(2), None));
    }

    #[test]
    fn a_discarded_name_begins_anew() {
        let entries =
            [entry("fork", "main/x", "main"), entry("discard", "main/x", "main"), entry("fork", "main/x", "main")];
        assert_eq!(EntryGraph::from_entries(&entries).parents, [vec![], vec![0], vec![]]);
    }
}
