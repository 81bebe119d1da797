//! The paths of units of which some file goes back to an earlier state: all of it has to.

use std::collections::BTreeSet;

use super::Rules;
use super::unit::UnitFinder;
use crate::workspace::{Packs, Tree, TreeError};

/// Returns the paths of all that belongs to units in which the trees differ at a path for which `selected` has a rule that
/// merges; of a directory without what is in it. Nothing if the trees differ at more than `limit` paths. Fails if a
/// file has to be looked into to know what it is, and can't be read.
pub fn unit_paths(
    rules: &Rules,
    packs: &dyn Packs,
    selected: &Rules,
    trees: [&Tree; 2],
    limit: usize,
) -> Result<BTreeSet<Vec<u8>>, TreeError> {
    let mut found = BTreeSet::new();
    let mut finders = trees.map(|tree| UnitFinder::new(tree, rules, packs));
    for difference in trees[0].differences_at_most(trees[1], limit).ok_or(TreeError::Exceeded)? {
        if selected.rule_for(&difference.path).kind.never_merges() {
            continue;
        }
        let sides = [&difference.old, &difference.new];
        let mut mains = BTreeSet::new();
        for (finder, there) in finders.iter_mut().zip(sides) {
            let root = match there {
                Some((inode, _)) => finder.root(*inode, true)?,
                None => finder.find_main(&difference.path)?,
            };
            let Some(root) = root else { continue };
            mains.extend(finder.tree.path(root.inode));
            found.extend(finder.members_at_root(&root).into_iter().filter_map(|(_, inode)| finder.tree.path(inode)));
        }
        // A side without the main file may still have companions beside its path; they belong to the unit as well.
        for (finder, path) in finders.iter().flat_map(|finder| mains.iter().map(move |path| (finder, path))) {
            found.extend(finder.companions_at(path).into_iter().filter_map(|inode| finder.tree.path(inode)));
        }
    }
    Ok(found)
}
