//! Branches beside their base, and deep branches beside flat ones.

use std::path::Path;

use engramfs::memory::{BranchId, RecordEdit, View};

use super::corpus::Corpus;
use super::curve::{Curve, Truth, measure};
use super::engine::{Engine, Ours};
use super::holder::Holder;
use super::{RECALL, plot, save_plot};
use crate::row;
use crate::store::who;

/// Breadths of search in branches.
const EFS: [usize; 8] = [32, 64, 96, 128, 160, 192, 256, 384];
/// Edits of a branch, and what is asked of time.
const EDITS: [(usize, &str); 3] = [(100, "≤ 1.05 ×"), (1_000, "≤ 1.2 ×"), (10_000, "≤ 1.45 ×")];
/// How deep the chain is.
const DEPTH: usize = 64;
/// Edits of each level.
const LEVEL_EDITS: usize = 100;
/// Edits of one commit.
const COMMIT_EDITS: usize = 10;

fn commit(holder: &Holder, branch: BranchId, edits: Vec<RecordEdit>, at_once: usize) {
    let mut edits = edits.into_iter();
    loop {
        let some: Vec<RecordEdit> = edits.by_ref().take(at_once).collect();
        if some.is_empty() {
            return;
        }
        holder.memory.commit(&who(), branch, some).unwrap();
    }
}

fn fork(holder: &Holder, parent: BranchId, name: &str) -> BranchId {
    holder.memory.fork(&who(), parent, name, None).unwrap()
}

/// Measures views side by side, each against its own exact answers.
fn curves(corpus: &Corpus, holder: &Holder, views: &[(String, BranchId)]) -> Vec<Curve> {
    let new =
        |(name, branch): &(String, BranchId)| Ours::new(name, &holder.memory, View::Branch(*branch), corpus, None);
    let truths: Vec<Truth> = views.iter().map(|view| new(view).truth()).collect();
    let mut engines: Vec<Box<dyn Engine + '_>> =
        views.iter().map(|view| Box::new(new(view)) as Box<dyn Engine + '_>).collect();
    measure(&mut engines, &truths.iter().collect::<Vec<_>>(), &EFS)
}

/// Branches with more and more edits against their base.
pub fn branches(corpus: &Corpus, holder: &Holder, bench: &Path) {
    let mut views = vec![("base".to_owned(), holder.main)];
    // A small corpus takes fewer.
    let edits = EDITS.map(|(count, figure)| (count.min(corpus.rows() / 4), figure));
    for (count, _) in edits {
        let branch = fork(holder, holder.main, &format!("edited-{count}"));
        commit(holder, branch, corpus.edits(count, count), COMMIT_EDITS);
        views.push((format!("{count} edits"), branch));
    }
    // What goes on in the background by itself is done then.
    holder.memory.wait_until_indexed();
    let fresh = curves(corpus, holder, &views);
    holder.settle();
    let sealed = curves(corpus, holder, &views);
    let title = format!("{}: branches and their base, edits as committed", corpus.title());
    save_plot(corpus, bench, "branches-", &plot::svg(&title, &fresh));
    for (number, (count, figure)) in edits.iter().enumerate() {
        let [fresh, sealed] = [&fresh, &sealed].map(|curves| (curves[number + 1].at(RECALL), curves[0].at(RECALL)));
        let how = format!(
            "{}; {:.0} µs against {:.0} µs at recall {:.4}; sealed: {:.2} ×",
            corpus.title(),
            fresh.0.us,
            fresh.1.us,
            fresh.0.recall,
            sealed.0.us / sealed.1.us
        );
        let what = format!("a branch with {count} edits against its base, recall {RECALL}");
        row(&what, figure, &format!("{:.2} ×", fresh.0.us / fresh.1.us), &how);
    }
}

/// A chain of branches against one branch with the same content.
pub fn depth(corpus: &Corpus, holder: &Holder) {
    let edits = |level: usize| corpus.edits(20_000 + level * LEVEL_EDITS, LEVEL_EDITS);
    let flat = fork(holder, holder.main, "flat");
    let mut deep = holder.main;
    for level in 0..DEPTH {
        commit(holder, flat, edits(level), LEVEL_EDITS);
        deep = fork(holder, deep, &format!("level-{level}"));
        commit(holder, deep, edits(level), COMMIT_EDITS);
    }
    let head = |branch: BranchId| holder.memory.snapshot(&View::Branch(branch)).unwrap().head();
    assert_eq!(head(flat), head(deep), "deep and flat have the same content");
    let views = [("flat".to_owned(), flat), ("deep".to_owned(), deep)];
    holder.memory.wait_until_indexed();
    for (state, figure) in [("before", "≤ 1.3 ×"), ("after", "≤ 1.05 ×")] {
        if state == "after" {
            holder.settle();
        }
        let curves = curves(corpus, holder, &views);
        let (flat, deep) = (curves[0].at(RECALL), curves[1].at(RECALL));
        let how = format!(
            "{}, {LEVEL_EDITS} edits a level; {:.0} µs against {:.0} µs at recall {:.4}",
            corpus.title(),
            deep.us,
            flat.us,
            deep.recall
        );
        let what = format!("depth {DEPTH} against depth 1 with the same content, {state} compaction");
        row(&what, figure, &format!("{:.2} ×", deep.us / flat.us), &how);
    }
}
