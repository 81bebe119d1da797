//! The file `diff`: a line of JSON for each record and file that differs from the branch's base.

use crate::branch::differences;
use crate::memory::Error;
use crate::memory::catalog::ResolvedView;
use crate::memory::views::documents::DocumentSpec;
use crate::workspace::ChangeKind;

pub(super) const DIFF: DocumentSpec = DocumentSpec {
    file_name: "diff",
    has_length: false,
    shows_parent: false,
    change_count: |_, _, _| 0,
    render: |_, _, _, resolved| render(resolved),
};

/// Renders records in order of ids, then files.
fn render(resolved: &ResolvedView<'_>) -> Result<Vec<u8>, Error> {
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
    for change in resolved.base.files().changes(resolved.state.files()) {
        let path = format!("files/{}", String::from_utf8_lossy(&change.path));
        let (path, what) = (serde_json::to_string(&path).unwrap_or_default(), change_name(change.kind));
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
