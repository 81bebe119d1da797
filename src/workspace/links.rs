//! Under which names an inode is found.

use imbl::OrdSet;

use super::FileName;

/// The names of an inode: parent and name. One is the rule.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Links {
    /// The root, which needs no name.
    Root,
    /// None yet or none any longer: an inode that is being made, or an orphan.
    None,
    /// The directory's inode, and the name in it.
    One(u64, FileName),
    /// Hard links.
    Many(OrdSet<(u64, FileName)>),
}

impl Links {
    /// Adds a name that is not there.
    pub fn insert(&mut self, parent: u64, name: FileName) {
        *self = match std::mem::replace(self, Links::None) {
            Links::Root => Links::Root,
            Links::None => Links::One(parent, name),
            Links::One(other, old) => Links::Many([(other, old), (parent, name)].into_iter().collect()),
            Links::Many(mut all) => {
                all.insert((parent, name));
                Links::Many(all)
            }
        };
    }

    /// Takes a name away that is there.
    pub fn remove(&mut self, parent: u64, name: &FileName) {
        *self = match std::mem::replace(self, Links::None) {
            Links::Root => Links::Root,
            Links::None | Links::One(..) => Links::None,
            Links::Many(mut all) => {
                all.remove(&(parent, name.clone()));
                match (all.len(), all.get_min()) {
                    (1, Some((parent, name))) => Links::One(*parent, name.clone()),
                    _ => Links::Many(all),
                }
            }
        };
    }

    /// Iterates over all names; the root has none.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &FileName)> {
        let (one, many) = match self {
            Links::None | Links::Root => (None, None),
            Links::One(parent, name) => (Some((*parent, name)), None),
            Links::Many(all) => (None, Some(all)),
        };
        one.into_iter().chain(many.into_iter().flatten().map(|(parent, name)| (*parent, name)))
    }
}
