//! The map from inode numbers to nodes: a clone shares everything with its original until one of
//! them changes.
//!
//! Numbers are given one after the other, so it is a trie: the digits of a number lead to its node,
//! with nothing to compare. Looking at what two maps do not share costs what they do not share.

use std::sync::Arc;

use super::FileNode;

/// Bits of a digit.
const DIGIT_BITS: u32 = 4;
const FANOUT: usize = 1 << DIGIT_BITS;

/// The nodes of a tree by their numbers.
#[derive(Clone, Default)]
pub(super) struct Nodes {
    root: Option<Arc<Block>>,
    /// The digits of a number without the last, as far as they are looked at.
    level: u32,
}

/// What follows one digit. One that holds nothing is not there.
#[derive(Clone)]
enum Block {
    Inner([Option<Arc<Block>>; FANOUT]),
    Leaf([Option<Arc<FileNode>>; FANOUT]),
}

/// A number under which two maps do not have the same node.
pub struct ChangedNode<'a> {
    /// Number of the file in its tree.
    pub inode: u64,
    /// What the older one has under it; `None` where the number is new.
    pub old: Option<&'a Arc<FileNode>>,
    /// What the newer one has under it; `None` where the number is gone.
    pub new: Option<&'a Arc<FileNode>>,
}

/// Returns the digit of a number that counts on a level.
fn digit(inode: u64, level: u32) -> usize {
    (inode >> (DIGIT_BITS * level)) as usize % FANOUT
}

impl Block {
    fn new(level: u32) -> Arc<Block> {
        Arc::new(match level {
            0 => Block::Leaf([const { None }; FANOUT]),
            _ => Block::Inner([const { None }; FANOUT]),
        })
    }
}

impl Nodes {
    /// Returns whether both share everything.
    pub fn ptr_eq(&self, other: &Nodes) -> bool {
        is_same_block(self.root.as_ref(), other.root.as_ref())
    }

    /// Returns whether a number has no more digits than are looked at.
    fn is_in_range(&self, inode: u64) -> bool {
        inode.checked_shr(DIGIT_BITS * (self.level + 1)).unwrap_or(0) == 0
    }

    /// Returns a node; `None` if there is none with that number.
    pub fn get(&self, inode: u64) -> Option<&Arc<FileNode>> {
        let mut at = self.root.as_ref().filter(|_| self.is_in_range(inode))?;
        let mut level = self.level;
        loop {
            match &**at {
                Block::Inner(blocks) => at = blocks[digit(inode, level)].as_ref()?,
                Block::Leaf(nodes) => return nodes[digit(inode, 0)].as_ref(),
            }
            level -= 1;
        }
    }

    /// Returns whether a node has that number, with or without a name.
    pub fn contains(&self, inode: u64) -> bool {
        self.get(inode).is_some()
    }

    /// Returns a node to change or replace it; `None` if there is none with that number.
    pub fn get_mut(&mut self, inode: u64) -> Option<&mut Arc<FileNode>> {
        if !self.is_in_range(inode) {
            return None;
        }
        let mut at = self.root.as_mut()?;
        let mut level = self.level;
        loop {
            match Arc::make_mut(at) {
                Block::Inner(blocks) => at = blocks[digit(inode, level)].as_mut()?,
                Block::Leaf(nodes) => return nodes[digit(inode, 0)].as_mut(),
            }
            level -= 1;
        }
    }

    /// Puts a node under a number, in place of what is there.
    pub fn insert(&mut self, inode: u64, node: Arc<FileNode>) {
        while !self.is_in_range(inode) {
            // It grows at the top: all numbers so far have 0 as their next digit.
            self.level += 1;
            if let Some(root) = self.root.take() {
                let mut blocks = [const { None }; FANOUT];
                blocks[0] = Some(root);
                self.root = Some(Arc::new(Block::Inner(blocks)));
            }
        }
        let mut level = self.level;
        let mut at = self.root.get_or_insert_with(|| Block::new(level));
        loop {
            match Arc::make_mut(at) {
                Block::Inner(blocks) => {
                    at = blocks[digit(inode, level)].get_or_insert_with(|| Block::new(level - 1));
                }
                Block::Leaf(nodes) => {
                    nodes[digit(inode, 0)] = Some(node);
                    return;
                }
            }
            level -= 1;
        }
    }

    /// Takes a node out, and returns it; `None` if there is none with that number.
    pub fn remove(&mut self, inode: u64) -> Option<Arc<FileNode>> {
        // Asked first, since `remove_node` copies all shared blocks on its way.
        self.get(inode)?;
        remove_node(&mut self.root, inode, self.level)
    }

    /// Iterates over all nodes in ascending order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Arc<FileNode>)> {
        let all = DifferenceIter { pairs: Vec::from([BlockPair::new(None, self.root(), self.level)]) };
        all.filter_map(|changed| Some((changed.inode, changed.new?)))
    }

    /// Iterates over all numbers, ascending, under which a newer map does not have the very same node. Costs what
    /// differs: blocks that both share are passed over.
    pub fn diff<'a>(&'a self, newer: &'a Nodes) -> impl Iterator<Item = ChangedNode<'a>> {
        let top = BlockPair::new(self.root(), newer.root(), self.level.max(newer.level));
        DifferenceIter { pairs: if self.ptr_eq(newer) { Vec::new() } else { Vec::from([top]) } }
    }

    fn root(&self) -> Option<LeveledBlock<'_>> {
        self.root.as_ref().map(|block| LeveledBlock { block, level: self.level })
    }
}

fn is_same_block<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

/// Takes a node out of a block, and the block away if that leaves nothing in it.
fn remove_node(place: &mut Option<Arc<Block>>, inode: u64, level: u32) -> Option<Arc<FileNode>> {
    let (taken, is_empty) = match Arc::make_mut(place.as_mut()?) {
        Block::Inner(blocks) => {
            (remove_node(&mut blocks[digit(inode, level)], inode, level - 1), blocks.iter().all(Option::is_none))
        }
        Block::Leaf(nodes) => (nodes[digit(inode, 0)].take(), nodes.iter().all(Option::is_none)),
    };
    if is_empty {
        *place = None;
    }
    taken
}

/// A block with its level: together they say which inodes it holds.
#[derive(Clone, Copy)]
struct LeveledBlock<'a> {
    block: &'a Arc<Block>,
    level: u32,
}

impl<'a> LeveledBlock<'a> {
    /// Returns the block below a digit of `level`; a block of a lower level is below digit 0.
    fn child(self, digit: usize, level: u32) -> Option<LeveledBlock<'a>> {
        match &**self.block {
            _ if self.level < level => Some(self).filter(|_| digit == 0),
            Block::Inner(blocks) => blocks[digit].as_ref().map(|block| LeveledBlock { block, level: level - 1 }),
            Block::Leaf(_) => None,
        }
    }

    fn node(self, digit: usize) -> Option<&'a Arc<FileNode>> {
        if let Block::Leaf(nodes) = &**self.block { nodes[digit].as_ref() } else { None }
    }
}

/// What two maps have behind the same digits, and how far that was looked at.
struct BlockPair<'a> {
    old: Option<LeveledBlock<'a>>,
    new: Option<LeveledBlock<'a>>,
    level: u32,
    /// The number that the digits so far make.
    number: u64,
    digit: usize,
}

impl<'a> BlockPair<'a> {
    fn new(old: Option<LeveledBlock<'a>>, new: Option<LeveledBlock<'a>>, level: u32) -> BlockPair<'a> {
        BlockPair { old, new, level, number: 0, digit: 0 }
    }
}

/// Goes through what differs; the innermost pair is the last.
struct DifferenceIter<'a> {
    pairs: Vec<BlockPair<'a>>,
}

impl<'a> Iterator for DifferenceIter<'a> {
    type Item = ChangedNode<'a>;

    fn next(&mut self) -> Option<ChangedNode<'a>> {
        loop {
            let pair = self.pairs.last_mut()?;
            let (old, new, level, digit) = (pair.old, pair.new, pair.level, pair.digit);
            if digit == FANOUT {
                self.pairs.pop();
                continue;
            }
            // Counted up before a pair is pushed: once that one is done, this one goes on behind it.
            pair.digit += 1;
            let number = pair.number * FANOUT as u64 + digit as u64;
            if level == 0 {
                let node = |side: Option<LeveledBlock<'a>>| side.and_then(|side| side.node(digit));
                let (old, new) = (node(old), node(new));
                if !is_same_block(old, new) {
                    return Some(ChangedNode { inode: number, old, new });
                }
                continue;
            }
            let below = |side: Option<LeveledBlock<'a>>| side.and_then(|side| side.child(digit, level));
            let (old, new) = (below(old), below(new));
            if !is_same_block(old.map(|it| it.block), new.map(|it| it.block)) {
                self.pairs.push(BlockPair { number, ..BlockPair::new(old, new, level - 1) });
            }
        }
    }
}
