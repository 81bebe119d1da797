//! What the catalog reaches: branch versions, segments, graphs and packs.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Branch, Catalog};
use crate::branch::BranchVersion;
use crate::object::Hash;
use crate::workspace::reachable_packs;

/// Calls `each` with every state that the catalog reaches, and with what is none and holds rows and chunks of earlier ones.
pub(in crate::memory) fn for_each_state(catalog: &Catalog, mut each: impl FnMut(&Arc<BranchVersion>)) {
    catalog.branches.values().for_each(|branch| for_each_branch_state(branch, &mut each));
    catalog.retained.for_each_held(&mut each);
}

/// Calls `each` with every state of a branch: the present one, those of checkpoints and of what it proposes, and the
/// base of each.
pub(in crate::memory) fn for_each_branch_state(branch: &Branch, each: &mut impl FnMut(&Arc<BranchVersion>)) {
    each(&branch.state);
    each(&branch.base);
    for checkpoint in branch.frozen_states() {
        each(&checkpoint.state);
        each(&checkpoint.base);
    }
}

/// Returns the names of all segments that the catalog reaches, of their graphs and derived vectors, and of the packs of
/// its files.
pub(in crate::memory) fn reachable_blobs(catalog: &Catalog) -> HashSet<Hash> {
    let (mut names, mut states) = (HashSet::new(), Vec::new());
    for_each_state(catalog, |state| {
        for layer in state.layers() {
            names.insert(layer.segment.name());
            names.extend(layer.segment.graphs().map(|graph| graph.name()));
            names.extend(layer.segment.derived().list().iter().map(|file| file.name()));
        }
        states.push(state.clone());
    });
    names.extend(reachable_packs(states.iter().map(|state| state.files())));
    names.extend(catalog.retained.files.iter().map(|file| file.name()));
    names
}
