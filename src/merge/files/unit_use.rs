//! Which units somebody writes to while they are replaced.

use super::Rules;
use super::unit::{UnitFinder, UnitRoot};
use super::unit_diff::diff_members;
use crate::workspace::{Packs, Tree, TreeError};

/// Returns the path of a unit that differs between two trees while one of its files, by inode, is in `open`; `None` if
/// no unit does. Fails like [`unit_paths`](fn@super::unit_paths).
pub fn replaced_unit(
    rules: &Rules,
    packs: &dyn Packs,
    before: &Tree,
    after: &Tree,
    open: &[u64],
) -> Result<Option<Vec<u8>>, TreeError> {
    if open.is_empty() || before.is_clone_of(after) {
        return Ok(None);
    }
    let (mut own, next) = (UnitFinder::new(before, rules, packs), UnitFinder::new(after, rules, packs));
    for inode in open {
        let Some(root) = own.root(*inode, true)? else { continue };
        let stays = after.node(root.inode).is_ok_and(|node| node.nlink() > 0);
        let then = stays.then_some(UnitRoot { ..root });
        if !diff_members((&own, Some(root)), (&next, then)).is_empty() {
            return Ok(Some(before.path(root.inode).unwrap_or_default()));
        }
    }
    Ok(None)
}
