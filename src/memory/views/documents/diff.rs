//! The file `diff`: a line of JSON for each record and file that differs from the branch's base.

use std::sync::Arc;

use crate::branch::differences;
use crate::file_index::{Credentials, ListedPaths};
use crate::memory::catalog::{ResolvedView, View};
use crate::memory::views::documents::{Document, DocumentSpec};
use crate::memory::{Error, Memory};
use crate::workspace::ChangeKind;

pub(super) const DIFF: DocumentSpec = DocumentSpec {
    file_name: "diff",
    has_length: false,
    shows_parent: false,
    change_count: |_, _, _| 0,
    render: |_, _, _, resolved| render(resolved, None),
};

impl Memory {
    /// Returns [`Document::Diff`] without the files that a reader could not list. Of a proposal all are there: modes of its
    /// files are no secret to who decides on it. Fails like [`Memory::document`].
    pub fn diff_for(&self, view: &View, reader: &Credentials) -> Result<Arc<[u8]>, Error> {
        let catalog = self.catalog().clone();
        let resolved = ResolvedView::new(&catalog, view)?;
        let has_files = resolved.base.files().hash() != resolved.state.files().hash();
        if reader.uid == 0 || !has_files || matches!(view, View::Proposal(..)) {
            return self.document(view, Document::Diff);
        }
        Ok(render(&resolved, Some(reader))?.into())
    }
}

/// Renders records in order of ids, then the files that a reader could list, or all.
fn render(resolved: &ResolvedView<'_>, reader: Option<&Credentials>) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    for change in differences(&resolved.base, &resolved.state)? {
        let what = match (&change.old, &change.new) {
            (None, _) => "added",
            (Some(_), Some(_)) => "modified",
            (Some(_), None) => "deleted",
        };
        let id = serde_json::to_string(&*change.id).unwrap_or_default();
        out.extend_from_slice(format!("{{\"kind\":\"record\",\"id\":{id},\"change\":\"{what}\"}}\n").as_bytes());
    }
    let (old, new) = (resolved.base.files(), resolved.state.files());
    let trees = [old, new].map(|tree| (tree, resolved.branch.uid));
    let mut listed = reader.map(|reader| ListedPaths::new(trees, reader));
    for change in old.differences(new) {
        if listed.as_mut().is_some_and(|listed| !listed.has(&change)) {
            continue;
        }
        let path = format!("files/{}", String::from_utf8_lossy(&change.path));
        let (path, what) = (serde_json::to_string(&path).unwrap_or_default(), change_name(change.kind()));
        out.extend_from_slice(format!("{{\"kind\":\"file\",\"path\":{path},\"change\":\"{what}\"}}\n").as_bytes());
    }
    Ok(out)
}

fn change_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
    }
}
