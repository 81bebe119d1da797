//! Files that belong together: which files are a unit, by a rule or by the layout of the databases that are known.
//!
//! A unit is a file with its companions or a directory with all below it. Its root, the main file or the directory, stands
//! for it. The outermost directory that is a unit counts; what has a rule of another kind than `unit` or `text` is no
//! member of any.

use std::collections::HashMap;

use super::Rules;
use crate::object::{Context, Hash, Hasher};
use crate::workspace::{FileKind, FileNode, Packs, ROOT, Tree, TreeError};

static UNIT_CONTEXT: Context = Context::new("engramfs 2026 unit v1");

/// How a SQLite database begins.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// What a DuckDB database has behind a checksum of 8 bytes.
const DUCKDB: &[u8] = b"DUCK";
const DUCKDB_OFFSET: usize = 8;
/// What makes a directory one of PostgreSQL.
const POSTGRES: &[u8] = b"PG_VERSION";
/// The database of a Chroma directory.
const CHROMA: &[u8] = b"chroma.sqlite3";
/// How the directory of a Lance table is called, and what is in it.
const LANCE: &[u8] = b".lance";
const LANCE_VERSIONS: &[u8] = b"_versions";

/// What is behind a main file's name in the names of its companions.
pub(super) const COMPANIONS: [&[u8]; 4] = [b"-wal", b"-shm", b"-journal", b".wal"];
/// The companion that says nothing: SQLite makes it anew from the others.
const SHARED_MEMORY: &[u8] = b"-shm";

/// What belongs to the root of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UnitLayout {
    /// The file's companions.
    Companions,
    /// All that is below the directory.
    Directory,
    /// Of what is in the directory Chroma's database, its companions and the indexes.
    Chroma,
}

/// The root of the unit that a file is in, in one tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnitRoot {
    /// The main file, or the directory, in the tree that was looked at.
    pub inode: u64,
    /// What belongs to it.
    pub layout: UnitLayout,
}

/// Finds the units of one tree, and looks at each directory once.
pub(super) struct UnitFinder<'a> {
    /// The tree of one side, which does not change while units are looked for.
    pub tree: &'a Tree,
    rules: &'a Rules,
    packs: &'a dyn Packs,
    /// Directories that were looked at: the outermost unit that they are in.
    directories: HashMap<u64, Option<UnitRoot>>,
}

impl<'a> UnitFinder<'a> {
    /// Begins with no directory looked at.
    pub(super) fn new(tree: &'a Tree, rules: &'a Rules, packs: &'a dyn Packs) -> UnitFinder<'a> {
        UnitFinder { tree, rules, packs, directories: HashMap::new() }
    }

    /// Returns the unit that a file or directory is in. A file without companions is looked into only where `alone`
    /// says that it matters. Fails if a file has to be looked into and can't be read.
    pub(super) fn root(&mut self, inode: u64, alone: bool) -> Result<Option<UnitRoot>, TreeError> {
        let Ok(node) = self.tree.node(inode) else { return Ok(None) };
        let Some((directory, name)) = node.names().next() else { return Ok(self.directory_root(inode)) };
        let is_directory = node.directory().is_some();
        if let Some(root) = self.directory_root(if is_directory { inode } else { directory }) {
            return Ok(Some(root).filter(|root| root.inode == inode || self.is_member(root, inode)));
        }
        if is_directory { Ok(None) } else { self.file_root(directory, name, inode, alone) }
    }

    /// Returns the outermost unit that a directory is or is in.
    fn directory_root(&mut self, directory: u64) -> Option<UnitRoot> {
        let tree = self.tree;
        // Up to the first that is known, then down again, and not by recursion: nothing limits how deep directories lie.
        let (mut unknown, mut at) = (Vec::new(), directory);
        let mut root = loop {
            if let Some(known) = self.directories.get(&at) {
                break *known;
            }
            let node = tree.node(at).ok()?;
            unknown.push(at);
            match node.names().next() {
                Some((above, _)) => at = above,
                None if at == ROOT => break None,
                None => return None,
            }
        };
        while let Some(directory) = unknown.pop() {
            // What Chroma does not use of its directory may be a unit of its own.
            let outer =
                root.filter(|root| root.layout != UnitLayout::Chroma || self.is_chroma_file(root.inode, directory));
            root =
                outer.or_else(|| self.directory_layout(directory).map(|layout| UnitRoot { inode: directory, layout }));
            self.directories.insert(directory, root);
        }
        root
    }

    fn directory_layout(&self, directory: u64) -> Option<UnitLayout> {
        let path = self.tree.path(directory)?;
        // The root has no path that a rule could name: under `** unit` each thing in it is a unit, not the whole
        // workspace.
        if directory != ROOT {
            let inside = [&path[..], b"/"].concat();
            if self.rules.rule_for(&inside).kind.is_unit() || self.rules.rule_for(&path).kind.is_unit() {
                return Some(UnitLayout::Directory);
            }
        }
        let has = |name: &[u8], is_directory: bool| {
            let node = self.tree.lookup(directory, name).and_then(|inode| self.tree.node(inode));
            node.is_ok_and(|node| (node.kind() == FileKind::Directory) == is_directory)
        };
        let falls_to_text = |name: &[u8]| {
            let below = if path.is_empty() { name.to_vec() } else { [&path[..], b"/", name].concat() };
            self.rules.rule_for(&below).kind.is_text()
        };
        if has(POSTGRES, false) && falls_to_text(POSTGRES) {
            return Some(UnitLayout::Directory);
        }
        if path.ends_with(LANCE) && has(LANCE_VERSIONS, true) && falls_to_text(LANCE_VERSIONS) {
            return Some(UnitLayout::Directory);
        }
        (has(CHROMA, false) && falls_to_text(CHROMA)).then_some(UnitLayout::Chroma)
    }

    /// Returns the unit of a file in no directory that is one.
    fn file_root(&self, directory: u64, name: &[u8], inode: u64, alone: bool) -> Result<Option<UnitRoot>, TreeError> {
        let unit = |inode| Some(UnitRoot { inode, layout: UnitLayout::Companions });
        for companion in COMPANIONS {
            let Some(stem) = name.strip_suffix(companion).filter(|stem| !stem.is_empty()) else { continue };
            if let Ok(main) = self.tree.lookup(directory, stem)
                && self.may_be_member(inode)
                && self.is_main_file(main)?
            {
                return Ok(unit(main));
            }
        }
        let is_main = (alone || self.companions(directory, name).next().is_some()) && self.is_main_file(inode)?;
        Ok(if is_main { unit(inode) } else { None })
    }

    /// Iterates over the companions that a file would have, each with what is behind the file's name.
    pub(super) fn companions(&self, directory: u64, name: &[u8]) -> impl Iterator<Item = (&'static [u8], u64)> {
        // Most files have none, and the name that follows tells: that of a companion begins with the file's.
        let next = self.tree.entries(directory, Some(name)).ok().and_then(|mut after| after.next());
        let may_be_there = next.is_some_and(|(next, _)| next.starts_with(name));
        COMPANIONS.into_iter().filter(move |_| may_be_there).filter_map(move |companion| {
            let inode = self.tree.lookup(directory, &[name, companion].concat()).ok()?;
            self.may_be_member(inode).then_some((companion, inode))
        })
    }

    /// Returns the unit of whose main file a path would be a companion, whether there is a file or not. Fails if that
    /// file has to be looked into and can't be read.
    pub(super) fn find_main(&mut self, path: &[u8]) -> Result<Option<UnitRoot>, TreeError> {
        for companion in COMPANIONS {
            let Some(main) = path.strip_suffix(companion).and_then(|stem| self.tree.resolve(stem).ok()) else {
                continue;
            };
            let directory =
                self.tree.node(main).ok().and_then(|node| node.names().next()).map(|(directory, _)| directory);
            let is_alone = directory.is_some_and(|directory| self.directory_root(directory).is_none());
            if is_alone && allows_units(self.rules, path) && self.is_main_file(main)? {
                return Ok(Some(UnitRoot { inode: main, layout: UnitLayout::Companions }));
            }
        }
        Ok(None)
    }

    /// Returns the files at the paths of the companions that a main file at a path would have.
    pub(super) fn companions_at(&self, path: &[u8]) -> Vec<u64> {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let directory = self.tree.resolve(above).ok();
        directory.into_iter().flat_map(|directory| self.companions(directory, name)).map(|(_, inode)| inode).collect()
    }

    /// Returns whether a file is the main file of a unit, by its rule or by how it begins.
    fn is_main_file(&self, inode: u64) -> Result<bool, TreeError> {
        let Ok(node) = self.tree.node(inode) else { return Ok(false) };
        let (FileKind::File, Some(path)) = (node.kind(), self.tree.path(inode)) else { return Ok(false) };
        let kind = &self.rules.rule_for(&path).kind;
        Ok(kind.is_unit() || (kind.is_text() && self.is_database(node)?))
    }

    fn is_database(&self, node: &FileNode) -> Result<bool, TreeError> {
        let start = node.read(0, SQLITE.len(), self.packs)?;
        Ok(start == SQLITE || start.get(DUCKDB_OFFSET..).is_some_and(|rest| rest.starts_with(DUCKDB)))
    }

    /// Returns whether a member says nothing of its unit: shared memory is made anew by whoever opens the database, and
    /// an empty log holds as much as none.
    ///
    /// In a directory the database beside it has to be there and to begin as one, since any file may be called like
    /// that; where it can't be read, the member counts.
    pub(super) fn is_irrelevant(&self, layout: UnitLayout, inode: u64) -> bool {
        let Ok(node) = self.tree.node(inode) else { return false };
        let mut names = node.names();
        let (Some((directory, name)), None) = (names.next(), names.next()) else { return false };
        let Some(companion) = COMPANIONS.into_iter().find(|companion| name.ends_with(companion)) else { return false };
        if node.kind() != FileKind::File || (companion != SHARED_MEMORY && node.size() > 0) {
            return false;
        }
        let main = self.tree.lookup(directory, &name[..name.len() - companion.len()]);
        let Some(main) = main.ok().and_then(|main| self.tree.node(main).ok()) else { return false };
        layout == UnitLayout::Companions || (main.kind() == FileKind::File && self.is_database(main).unwrap_or(false))
    }

    /// Returns whether something in the directory of a unit belongs to it.
    pub(super) fn is_member(&self, root: &UnitRoot, inode: u64) -> bool {
        if root.layout == UnitLayout::Chroma && !self.is_chroma_file(root.inode, inode) {
            return false;
        }
        self.may_be_member(inode)
    }

    fn may_be_member(&self, inode: u64) -> bool {
        self.tree.path(inode).is_some_and(|path| allows_units(self.rules, &path))
    }

    /// Returns whether something below Chroma's directory is its own: the database and what is in its indexes.
    fn is_chroma_file(&self, root: u64, inode: u64) -> bool {
        let mut at = inode;
        while let Some((directory, name)) = self.tree.node(at).ok().and_then(|node| node.names().next()) {
            if directory == root {
                return is_chroma_name(name, self.tree.node(at).is_ok_and(|node| node.directory().is_some()));
            }
            at = directory;
        }
        false
    }

    /// Iterates over the members directly at a root, each with its name in the unit.
    pub(super) fn members_at_root(&self, root: &UnitRoot) -> Vec<(Vec<u8>, u64)> {
        let mut parts = Vec::new();
        if root.layout == UnitLayout::Chroma {
            let all = self.tree.entries(root.inode, None).into_iter().flatten();
            let own = all.filter(|(_, inode)| self.is_chroma_file(root.inode, *inode));
            return own.map(|(name, inode)| (name.to_vec(), inode)).collect();
        }
        parts.push((Vec::new(), root.inode));
        let place = self.tree.node(root.inode).ok().and_then(|node| node.names().next());
        if let (UnitLayout::Companions, Some((directory, name))) = (root.layout, place) {
            parts.extend(self.companions(directory, name).map(|(companion, inode)| (companion.to_vec(), inode)));
        }
        parts
    }
}

/// Returns whether the rule for a path lets what is there be a member of a unit.
fn allows_units(rules: &Rules, path: &[u8]) -> bool {
    let kind = &rules.rule_for(path).kind;
    kind.is_unit() || kind.is_text()
}

impl UnitFinder<'_> {
    /// Returns the hash of a unit's version: of its only file the file's, of a directory the directory's, else one over all
    /// members that tell a change.
    pub(super) fn hash(&self, root: &UnitRoot) -> Option<Hash> {
        // What tells no change is left out: two versions that differ in it alone are one version.
        let mut parts = self.members_at_root(root);
        parts.retain(|(name, inode)| name.is_empty() || !self.is_irrelevant(root.layout, *inode));
        if let [(name, inode)] = &parts[..]
            && name.is_empty()
        {
            return self.tree.node_hash(*inode);
        }
        // By name, so that the hash does not depend on the order in which companions are looked for.
        parts.sort();
        let mut hasher = Hasher::new(&UNIT_CONTEXT);
        for (name, inode) in parts {
            hasher.field(&name);
            hasher.update(&self.tree.node_hash(inode)?.0);
        }
        Some(hasher.finish())
    }
}

/// Returns whether Chroma gives something in its directory that name: an index has a UUID's.
fn is_chroma_name(name: &[u8], is_directory: bool) -> bool {
    let is_uuid = || {
        let is_hyphen = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let fits = |(at, byte): (usize, &u8)| if is_hyphen(at) { *byte == b'-' } else { byte.is_ascii_hexdigit() };
        name.len() == 36 && name.iter().enumerate().all(fits)
    };
    match is_directory {
        true => is_uuid(),
        false => name.strip_prefix(CHROMA).is_some_and(|rest| rest.is_empty() || COMPANIONS.contains(&rest)),
    }
}
