//! Random histories: every answer against a search that reads all files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engramfs::disk::ForgetfulDisk;
use engramfs::file_index::{Syntax, split_passages};
use engramfs::memory::{
    Actor, Attrs, BranchId, Credentials, FILES_ROOT, FileKind, FileName, FileOp, Memory, MergeVerb, Query, RenameMode,
    Setting, Tree, View,
};
use engramfs::text::{CollectionTotals, Language, QueryTerms, STEM_WEIGHT, Scorer, TermFrequencies, TermGroup};

use crate::files::write;
use crate::shrink::run_steps;
use crate::support::{Chance, main_of, open, put, rounds, verify, who};

const FOLDERS: [&str; 4] = ["", "a", "b", "a/c"];
const NAMES: [&str; 5] = ["n.md", "m.md", "s.rs", "t.txt", "raw.txt"];
const WORDS: [&str; 10] = ["apple", "apples", "river", "running", "run", "stone", "e0308", "std::io", "the", "harbour"];
const READERS: [(u32, &[u32]); 4] = [(0, &[0]), (1000, &[1000]), (1001, &[1001]), (1002, &[7, 1000])];

#[derive(Clone, Debug)]
enum Step {
    Write { branch: usize, path: (usize, usize), seed: u64 },
    Record { branch: usize, seed: u64 },
    Remove { branch: usize, path: (usize, usize) },
    Move { branch: usize, from: (usize, usize), to: (usize, usize) },
    MoveFolder { branch: usize },
    Link { branch: usize, from: (usize, usize), to: (usize, usize) },
    Mode { branch: usize, path: (usize, usize), mode: u32 },
    FolderMode { branch: usize, folder: usize, mode: u32 },
    Rules { branch: usize, hide: bool },
    Fork { branch: usize },
    Merge { branch: usize },
    Checkpoint { branch: usize },
    Rollback { branch: usize },
    Seal,
    Collect,
    Reopen,
    Ask { branch: usize, seed: u64 },
}

fn steps(seed: u64) -> Vec<Step> {
    let mut chance = Chance(seed);
    let count = 60 + chance.below(60);
    (0..count)
        .map(|_| {
            let branch = chance.below(4);
            let path = |chance: &mut Chance| (chance.below(FOLDERS.len()), chance.below(NAMES.len()));
            match chance.below(40) {
                0..=9 => Step::Write { branch, path: path(&mut chance), seed: chance.next() },
                10 => Step::Record { branch, seed: chance.next() },
                11..=12 => Step::Remove { branch, path: path(&mut chance) },
                13..=14 => Step::Move { branch, from: path(&mut chance), to: path(&mut chance) },
                15 => Step::MoveFolder { branch },
                16 => Step::Link { branch, from: path(&mut chance), to: path(&mut chance) },
                17 => {
                    Step::Mode { branch, path: path(&mut chance), mode: [0o644, 0o600, 0o640, 0o604][chance.below(4)] }
                }
                18 => {
                    let folder = chance.below(FOLDERS.len());
                    Step::FolderMode { branch, folder, mode: [0o755, 0o700, 0o710, 0o751][chance.below(4)] }
                }
                19 => Step::Rules { branch, hide: chance.one_in(2) },
                20 => Step::Fork { branch },
                21 => Step::Merge { branch },
                22 => Step::Checkpoint { branch },
                23 => Step::Rollback { branch },
                24 => Step::Seal,
                25 => Step::Collect,
                26 => Step::Reopen,
                _ => Step::Ask { branch, seed: chance.next() },
            }
        })
        .collect()
}

fn text_of(seed: u64) -> String {
    let mut chance = Chance(seed);
    let mut text = String::new();
    for _ in 0..1 + chance.below(6) {
        if chance.one_in(3) {
            text += &format!("{} {}\n", "#".repeat(1 + chance.below(3)), WORDS[chance.below(WORDS.len())]);
        }
        let most = if chance.one_in(8) { 400 } else { 12 };
        let words = 1 + chance.below(most);
        (0..words).for_each(|_| text += &format!("{} ", WORDS[chance.below(WORDS.len())]));
        text += if chance.one_in(2) { "\n\n" } else { "\n" };
    }
    match chance.below(12) {
        0 => format!("\0{text}"),
        1 => String::new(),
        _ => text,
    }
}

struct World {
    disk: ForgetfulDisk,
    memory: Arc<Memory>,
    branches: Vec<BranchId>,
    forks: usize,
    labels: Vec<(BranchId, String)>,
    asked: usize,
}

impl World {
    fn new() -> World {
        let disk = ForgetfulDisk::new();
        let memory = open(&disk).unwrap();
        let branches = vec![main_of(&memory)];
        World { disk, memory, branches, forks: 0, labels: Vec::new(), asked: 0 }
    }

    fn branch(&self, n: usize) -> BranchId {
        self.branches[n % self.branches.len()]
    }

    fn tree(&self, branch: BranchId) -> Tree {
        self.memory.files(&View::Branch(branch)).unwrap()
    }

    fn folder(&self, branch: BranchId, folder: usize) -> Option<u64> {
        self.tree(branch).resolve(FOLDERS[folder].as_bytes()).ok()
    }

    fn edit(&self, branch: BranchId, op: FileOp<'_>) {
        // What can't be done is as good as another step.
        let _ = self.memory.edit(&who(), branch, op);
    }

    fn step(&mut self, step: &Step) {
        let name = |n: usize| FileName::new(NAMES[n].as_bytes()).unwrap();
        match step {
            Step::Write { branch, path, seed } => {
                let path = [FOLDERS[path.0], NAMES[path.1]].join("/");
                write(&self.memory, self.branch(*branch), path.trim_start_matches('/'), &text_of(*seed));
            }
            Step::Record { branch, seed } => {
                let edit =
                    put(&format!("r{}", seed % 3), None, Some(&format!("record {}", text_of(*seed).replace('\0', ""))));
                self.memory.commit(&who(), self.branch(*branch), vec![edit]).unwrap();
            }
            Step::Remove { branch, path } => {
                let branch = self.branch(*branch);
                let Some(parent) = self.folder(branch, path.0) else { return };
                self.edit(branch, FileOp::Unlink { parent, name: name(path.1), keep: false });
            }
            Step::Move { branch, from, to } => {
                let branch = self.branch(*branch);
                let (Some(parent), Some(new_parent)) = (self.folder(branch, from.0), self.folder(branch, to.0)) else {
                    return;
                };
                let (name, new_name) = (name(from.1), name(to.1));
                let mode = RenameMode::Plain;
                self.edit(branch, FileOp::Rename { parent, name, new_parent, new_name, mode, keep: false });
            }
            Step::MoveFolder { branch } => {
                let name = |name: &str| FileName::new(name.as_bytes()).unwrap();
                let (name, new_name, mode) = (name("a"), name("b"), RenameMode::Exchange);
                let (parent, new_parent) = (FILES_ROOT, FILES_ROOT);
                let op = FileOp::Rename { parent, name, new_parent, new_name, mode, keep: false };
                self.edit(self.branch(*branch), op);
            }
            Step::Link { branch, from, to } => {
                let branch = self.branch(*branch);
                let path = [FOLDERS[from.0], NAMES[from.1]].join("/");
                let Ok(inode) = self.tree(branch).resolve(path.as_bytes()) else { return };
                let Some(parent) = self.folder(branch, to.0) else { return };
                self.edit(branch, FileOp::Link { inode, parent, name: name(to.1) });
            }
            Step::Mode { branch, path, mode } => {
                let branch = self.branch(*branch);
                let path = [FOLDERS[path.0], NAMES[path.1]].join("/");
                let Ok(inode) = self.tree(branch).resolve(path.as_bytes()) else { return };
                self.edit(branch, FileOp::SetAttr { inode, attrs: Attrs { mode: Some(*mode), ..Attrs::default() } });
            }
            Step::FolderMode { branch, folder, mode } => {
                let branch = self.branch(*branch);
                let Some(inode) = self.folder(branch, *folder) else { return };
                self.edit(branch, FileOp::SetAttr { inode, attrs: Attrs { mode: Some(*mode), ..Attrs::default() } });
            }
            other => self.step_of_branch(other),
        }
    }

    fn step_of_branch(&mut self, step: &Step) {
        match step {
            Step::Rules { branch, hide } => {
                let rules = if *hide { "raw.txt noindex\n/b/** noindex\n** text" } else { "** text" };
                self.memory.set(&who(), self.branch(*branch), Setting::Rules, rules).unwrap();
            }
            Step::Fork { branch } => {
                self.forks += 1;
                let name = format!("f{}", self.forks);
                let fork = self.memory.fork(&Actor { uid: 1001, ..who() }, self.branch(*branch), &name, None).unwrap();
                self.branches.push(fork);
            }
            Step::Merge { branch } => {
                let branch = self.branch(*branch);
                // A conflict of lines, or a branch below, refuses it.
                if self
                    .memory
                    .merge(&who(), branch, MergeVerb::Merge, false)
                    .is_ok_and(|result| result.status == "merged")
                {
                    self.branches.retain(|other| *other != branch);
                }
            }
            Step::Checkpoint { branch } => {
                let (branch, label) = (self.branch(*branch), format!("c{}", self.labels.len()));
                self.memory.checkpoint(&who(), branch, &label, None).unwrap();
                self.labels.push((branch, label));
            }
            Step::Rollback { branch } => {
                let branch = self.branch(*branch);
                if let Some((_, label)) = self.labels.iter().find(|(of, _)| *of == branch) {
                    self.memory.rollback(&who(), branch, label).unwrap();
                }
            }
            Step::Seal => self.memory.seal().unwrap(),
            Step::Collect => drop(self.memory.gc(&who(), None, false).unwrap()),
            Step::Reopen => {
                self.memory.close().unwrap();
                self.memory = open(&self.disk).unwrap();
            }
            Step::Ask { branch, seed } => self.check(*branch, *seed),
            _ => unreachable!("the other steps write"),
        }
    }

    fn check(&mut self, branch: usize, seed: u64) {
        let mut chance = Chance(seed);
        let branch = self.branch(branch);
        let label = self.labels.iter().find(|(of, _)| *of == branch && chance.one_in(2));
        let view = label.map_or(View::Branch(branch), |(_, label)| View::Checkpoint(branch, label.as_str().into()));
        let words: Vec<&str> = (0..1 + chance.below(3)).map(|_| WORDS[chance.below(WORDS.len())]).collect();
        let words = words.join(" ");
        let phrase = chance.one_in(3).then_some(words.as_str());
        let text =
            phrase.map_or_else(|| words.clone(), |phrase| format!("\"{phrase}\" {}", WORDS[chance.below(WORDS.len())]));
        let (uid, groups) = READERS[chance.below(READERS.len())];
        let reader = Credentials { uid, groups: groups.to_vec(), knows_all_groups: uid != 1001 };
        let k = 1 + chance.below(12);
        let query =
            Query::parse(&serde_json::json!({ "text": text, "k": k, "timeout_ms": 60_000 }).to_string()).unwrap();
        let answer = self.memory.query_for(&reader, &view, &query).unwrap();
        assert_eq!(answer.reason, None);
        let found: Vec<(String, f64)> = answer
            .hits
            .iter()
            .map(|hit| {
                let place = hit.file.as_ref().map_or_else(
                    || hit.id.to_string(),
                    |file| format!("{}:{}", file.path.replacen("files/", "", 1), file.line),
                );
                (format!("{place} {}", hit.text.as_deref().unwrap_or_default()), hit.score.value())
            })
            .collect();
        let expected = brute_force((&self.memory, &view), &reader, (&text, phrase), k);
        assert_eq!(found, expected, "{text:?} by {uid} in {view:?}");
        self.asked += found.len();
    }
}

/// A document of the brute-force search: its place in the order of equal scores, what is shown, and its words.
type Document = ((bool, String, u32, usize), String, TermFrequencies);

/// The best `k` of all documents for a text, of which a phrase may be quoted.
fn brute_force(
    (memory, view): (&Memory, &View),
    reader: &Credentials,
    (text, phrase): (&str, Option<&str>),
    k: usize,
) -> Vec<(String, f64)> {
    let mut documents: Vec<Document> = Vec::new();
    let snapshot = memory.snapshot(view).unwrap();
    for id in snapshot.ids_after(None, usize::MAX).unwrap() {
        let record = snapshot.get(&id).unwrap().unwrap();
        let text = record.text().unwrap_or_default().to_owned();
        let words = TermFrequencies::from_document(Some(&text), &serde_json::Value::Null);
        documents.push(((false, id.to_string(), 0, 0), format!("{id} {text}"), words));
    }
    let rules =
        engramfs::merge::files::Rules::parse(&memory.setting(&View::Branch(view.branch()), Setting::Rules).unwrap())
            .unwrap();
    for (path, text, syntax) in readable_files(memory, view, reader, &|path| rules.rule_for(path).noindex) {
        for passage in split_passages(&text, syntax) {
            let words = TermFrequencies::from_document(Some(&passage.indexed_text(&text)), &serde_json::Value::Null);
            let shown = format!("{path}:{} {}", passage.line, &text[passage.range.clone()]);
            documents.push(((true, path.clone(), passage.line, passage.range.start), shown, words));
        }
    }
    ranked(documents, (text, phrase), k)
}

/// Tells whether a text of words, blanks and marks of headings has some words in a row.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c == '#').filter(|word| !word.is_empty()).collect();
    format!(" {} ", words.join(" ")).contains(&format!(" {phrase} "))
}

fn ranked(documents: Vec<Document>, (text, phrase): (&str, Option<&str>), k: usize) -> Vec<(String, f64)> {
    let language = Language::from_code("en").unwrap();
    let QueryTerms { exact, stems, phrases, mut bound } = QueryTerms::parse(text, Some(language));
    let all: BTreeSet<Box<str>> =
        documents.iter().flat_map(|(.., words)| words.terms()).map(|(term, _)| term.clone()).collect();
    let mut groups: Vec<(f64, Vec<Box<str>>)> = exact.into_iter().map(|(term, weight)| (weight, vec![term])).collect();
    for stem in stems {
        let terms: Vec<Box<str>> =
            all.iter().filter(|term| language.stem(term).as_ref() == Some(&stem)).cloned().collect();
        bound.retain(|term, _| !terms.contains(term));
        groups.push((STEM_WEIGHT, terms));
    }
    let terms: Vec<Box<str>> = all.into_iter().collect();
    let members =
        |words: &[Box<str>]| words.iter().filter_map(|word| terms.binary_search(word).ok()).collect::<Vec<_>>();
    let groups = groups.iter().map(|(weight, words)| TermGroup { weight: *weight, members: members(words) });
    let groups: Vec<TermGroup> = groups.filter(|group| !group.members.is_empty()).collect();
    let mut collection = CollectionTotals::default();
    documents.iter().for_each(|(.., words)| collection.add(words.length()));
    // An exact phrase is an identifier, which has a term, or the one phrase that is quoted.
    let count = |(_, shown, words): &Document, term: &str| {
        let has = |place: &usize| match &phrases[*place].term {
            Some(whole) => words.count(whole) > 0,
            None => phrase.is_some_and(|phrase| has_phrase(shown, phrase)),
        };
        if bound.get(term).is_none_or(|places| places.iter().any(has)) { words.count(term) } else { 0 }
    };
    let holding: Vec<u64> =
        terms.iter().map(|term| documents.iter().filter(|found| count(found, term) > 0).count() as u64).collect();
    let scorer = Scorer::new(collection, groups, &holding);
    let score = |document: &Document| {
        scorer.score(document.2.length(), &terms.iter().map(|term| count(document, term)).collect::<Vec<_>>())
    };
    let mut scored: Vec<_> = documents.into_iter().map(|document| (score(&document), document.0, document.1)).collect();
    scored.retain(|(score, ..)| *score > 0.0);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.into_iter().take(k).map(|(score, _, shown)| (shown, score)).collect()
}

/// Every text file that may be found, once, under the least of its paths that lead to it.
fn readable_files(
    memory: &Memory,
    view: &View,
    reader: &Credentials,
    hides: &dyn Fn(&[u8]) -> bool,
) -> Vec<(String, String, Syntax)> {
    let tree = memory.files(view).unwrap();
    let root_owner = memory.info(view.branch()).unwrap().uid;
    let may = |inode: u64, right: u32| {
        let node = tree.node(inode).unwrap();
        let is_root = inode == FILES_ROOT;
        let owner = if is_root { root_owner } else { tree.owner(node) };
        let class = match () {
            () if owner == reader.uid => 6,
            () if !is_root && reader.groups.contains(&node.gid) => 3,
            () => 0,
        };
        // The group may have the less: a reader of whom not all groups are known may be in it, and which
        // one the root has is not known.
        let others =
            if reader.knows_all_groups && !is_root || class > 0 { node.mode } else { node.mode & node.mode >> 3 };
        reader.uid == 0 || others >> class & right == right
    };
    let (mut paths, mut names, mut waiting) = (
        BTreeMap::<u64, Vec<String>>::new(),
        BTreeMap::<u64, Vec<String>>::new(),
        vec![(FILES_ROOT, String::new(), true)],
    );
    while let Some((folder, path, reached)) = waiting.pop() {
        let reached = reached && may(folder, 1);
        for (name, inode) in tree.entries(folder, None).unwrap() {
            let name = String::from_utf8(name.to_vec()).unwrap();
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            match tree.node(inode).unwrap().kind() {
                FileKind::Directory => waiting.push((inode, path, reached)),
                _ => {
                    names.entry(inode).or_default().push(name);
                    if reached && may(inode, 4) && !hides(path.as_bytes()) {
                        paths.entry(inode).or_default().push(path);
                    }
                }
            }
        }
    }
    let mut found = Vec::new();
    for (inode, paths) in paths {
        let bytes = tree.read(inode, 0, 4 << 20, memory.packs()).unwrap();
        let is_text = !bytes.iter().take(64 << 10).any(|byte| *byte == 0);
        let Some(text) = String::from_utf8(bytes).ok().filter(|_| is_text) else { continue };
        let is_markdown = names[&inode].iter().any(|name| name.ends_with(".md"));
        let syntax = if is_markdown { Syntax::Markdown } else { Syntax::Plain };
        found.push((paths.into_iter().min().unwrap(), text, syntax));
    }
    found
}

#[test]
fn every_answer_is_that_of_a_search_through_all_files() {
    let mut asked = 0;
    for seed in 0..rounds(30) as u64 {
        let steps = steps(seed);
        asked += run_steps(seed, &steps, |steps| {
            let mut world = World::new();
            steps.iter().for_each(|step| world.step(step));
            (0..world.branches.len()).for_each(|branch| world.check(branch, seed + branch as u64));
            world.memory.close().unwrap();
            verify(&world.disk).unwrap();
            world.asked
        });
    }
    assert!(asked > rounds(30) * 10, "{asked} hits");
}
