//! The file `conflicts`: what the branch and its parent both changed since the base.

use serde_json::json;

use crate::branch::BranchVersion;
use crate::lineage::Decision;
use crate::memory::catalog::{Catalog, ResolvedView};
use crate::memory::command::merge_verb::MergeVerb;
use crate::memory::views::documents::DocumentSpec;
use crate::memory::{Error, Memory};

pub(super) const CONFLICTS: DocumentSpec = DocumentSpec {
    file_name: "conflicts",
    has_length: false,
    shows_parent: true,
    change_count: |_, _, _| 0,
    render: |memory, catalog, _, resolved| render(memory, catalog, resolved),
};

/// Renders what both sides changed, records with the texts of all three versions. Nothing for root branches and for views of
/// the past.
fn render(memory: &Memory, catalog: &Catalog, resolved: &ResolvedView<'_>) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    if resolved.branch.parent.is_none() || resolved.last_seq.is_some() {
        return Ok(out);
    }
    let parent = catalog.parent(resolved.branch)?;
    let planned = memory.plan_whole(catalog, (resolved.branch.id, MergeVerb::Merge), resolved.branch.uid)?;
    for item in planned.both_changed {
        let mut line = item.to_json();
        if !item.is_file() {
            add_texts(&mut line, &item, resolved, &parent.state)?;
        }
        out.extend_from_slice(format!("{line}\n").as_bytes());
    }
    Ok(out)
}

fn add_texts(
    line: &mut serde_json::Value,
    item: &Decision,
    resolved: &ResolvedView<'_>,
    parent: &BranchVersion,
) -> Result<(), Error> {
    for (side, state) in [("base", &*resolved.base), ("child", &*resolved.state), ("parent", parent)] {
        let text = state.find(&item.id)?.map(|row| row.version()).transpose()?;
        line[format!("{side}_text")] = json!(text.and_then(|version| version.content.text.clone()).as_deref());
    }
    Ok(())
}
