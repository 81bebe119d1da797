//! Named items in an order: the lines of a union, the entries of a manifest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use crate::merge::files::content::other_side;
use crate::merge::files::{Contents, Loser, MergedContent, Side, Strategy};

/// Items in the order in which their names first came.
pub(super) struct KeyedItems<N, V> {
    /// Each item behind its place in that order.
    by_name: HashMap<N, (usize, V)>,
}

impl<N: Hash + Eq, V> KeyedItems<N, V> {
    /// Begins empty: what is inserted first comes first.
    pub(super) fn new() -> KeyedItems<N, V> {
        KeyedItems { by_name: HashMap::new() }
    }

    /// Adds an item, or replaces the one with that name in its place; returns what it replaced.
    pub(super) fn insert(&mut self, name: N, value: V) -> Option<V> {
        let end = self.by_name.len();
        match self.by_name.entry(name) {
            Entry::Occupied(mut item) => Some(std::mem::replace(&mut item.get_mut().1, value)),
            Entry::Vacant(free) => {
                free.insert((end, value));
                None
            }
        }
    }

    fn get(&self, name: &N) -> Option<&V> {
        self.by_name.get(name).map(|(_, value)| value)
    }

    fn iter(&self) -> impl Iterator<Item = (&N, &V)> {
        let mut items: Vec<_> = self.by_name.iter().collect();
        items.sort_unstable_by_key(|(_, (place, _))| *place);
        items.into_iter().map(|(name, (_, value))| (name, value))
    }
}

/// The items of one file on three sides.
pub(super) struct ThreeWayItems<N, V> {
    /// Those of the base; empty if both sides added the file.
    pub base: KeyedItems<N, V>,
    /// Those of the child, whose additions come last.
    pub child: KeyedItems<N, V>,
    /// Those of the parent, whose additions come before the child's.
    pub parent: KeyedItems<N, V>,
}

impl<N: Hash + Eq, V: PartialEq + Clone> ThreeWayItems<N, V> {
    /// Merges item by item, in base order, then the parent's additions, then the child's.
    ///
    /// What one side changed, added or removed is taken; where both did it differently, `decide` gets the child's and
    /// the parent's item, `None` for a removed one, and gives what to keep.
    pub(super) fn merge(&self, mut decide: impl FnMut(Option<&V>, Option<&V>) -> Option<V>) -> Vec<V> {
        let mut merged = Vec::new();
        let mut take = |base: Option<&V>, child: Option<&V>, parent: Option<&V>| {
            merged.extend(if child == parent || child == base {
                parent.cloned()
            } else if parent == base {
                child.cloned()
            } else {
                decide(child, parent)
            });
        };
        let in_base = |name: &N| self.base.get(name).is_some();
        for (name, base) in self.base.iter() {
            take(Some(base), self.child.get(name), self.parent.get(name));
        }
        for (name, parent) in self.parent.iter().filter(|(name, _)| !in_base(name)) {
            take(None, self.child.get(name), Some(parent));
        }
        // What both added was taken with the parent's additions, where the child's was compared with it.
        let is_new = |name: &N| !in_base(name) && self.parent.get(name).is_none();
        for (_, child) in self.child.iter().filter(|(name, _)| is_new(name)) {
            take(None, Some(child), None);
        }
        merged
    }
}

/// Decides items and remembers what lost; one that waits has all of the file wait.
pub(super) struct ItemResolver<'a> {
    contents: &'a Contents<'a>,
    strategy: Strategy,
    losers: Vec<Loser>,
    is_undecided: bool,
    decision: Side,
}

impl<'a> ItemResolver<'a> {
    /// Begins with nothing lost and nothing undecided.
    pub(super) fn new(contents: &'a Contents<'a>, strategy: Strategy) -> ItemResolver<'a> {
        ItemResolver { contents, strategy, losers: Vec::new(), is_undecided: false, decision: Side::Both }
    }

    /// Notes an item of one side, or what it had of it, that the result is without.
    pub(super) fn record_loser(&mut self, side: Side, bytes: &[u8]) {
        self.losers.push(Loser::Part { side, bytes: bytes.to_vec() });
    }

    /// Returns what the strategy keeps of two different items: a conflict.
    pub(super) fn choose<V: Clone + AsRef<[u8]>>(&mut self, child: Option<&V>, parent: Option<&V>) -> Option<V> {
        let Some(winner) = self.contents.winner(self.strategy) else {
            self.is_undecided = true;
            return parent.cloned();
        };
        self.decision = winner;
        self.take_winner(winner, child, parent)
    }

    /// Returns the later of two different items: no conflict, but the other one is noted.
    pub(super) fn later_item<V: Clone + AsRef<[u8]>>(&mut self, child: Option<&V>, parent: Option<&V>) -> Option<V> {
        self.take_winner(self.contents.later_side(), child, parent)
    }

    fn take_winner<V: Clone + AsRef<[u8]>>(
        &mut self,
        winner: Side,
        child: Option<&V>,
        parent: Option<&V>,
    ) -> Option<V> {
        let (kept, lost) = if winner == Side::Parent { (parent, child) } else { (child, parent) };
        if let Some(lost) = lost {
            self.record_loser(other_side(winner), lost.as_ref());
        }
        kept.cloned()
    }

    /// Returns the merge of a file whose items are decided; one that waits where some item does.
    pub(super) fn finish(self, bytes: Vec<u8>) -> MergedContent {
        if self.is_undecided {
            return MergedContent::waiting();
        }
        let choice = self.contents.choice_for(bytes);
        MergedContent { choice, decision: Some(self.decision), losers: self.losers, fallback: None }
    }
}
