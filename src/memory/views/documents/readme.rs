//! The generated `README.md` of a branch's directory.

use std::fmt::Write;

use crate::memory::catalog::ResolvedView;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::shared_log::SharedLogTotals;
use crate::memory::catalog::{Branch, Catalog, View};
use crate::memory::maintenance::embedding::EmbeddingStatus;
use crate::memory::views::documents::DocumentSpec;
use crate::memory::{Error, Memory};

pub(super) const README: DocumentSpec = DocumentSpec {
    file_name: "README.md",
    has_length: true,
    shows_parent: false,
    // Side by side: in a sum a log that was archived and one step of the embedder would cancel out.
    change_count: |memory, catalog, resolved| {
        memory.maintenance.embedding.change_count() << 1 | u64::from(has_long_log(catalog, resolved.branch))
    },
    render: |memory, catalog, view, resolved| render(memory, catalog, view, resolved).map(String::into_bytes),
};

/// Bytes of the page at the most, except for long ids and paths: an agent reads it into its context.
#[cfg(test)]
const BYTES_MAX: usize = 2_400;

/// Renders the page: where you are, what is here, how to use it, with this branch's own figures and examples. Kind `Io`
/// or `Damaged` if the first record can't be read.
fn render(memory: &Memory, catalog: &Catalog, view: &View, resolved: &ResolvedView<'_>) -> Result<String, Error> {
    let branch = resolved.branch;
    let (totals, settings) = (resolved.state.totals(), catalog.shared_settings(branch)?);
    let mut out = format!("# {}: a branch of an agent's memory\n\n", branch.path);
    let where_am_i = match (view, branch.parent) {
        (View::Checkpoint(_, label), _) => {
            format!("The checkpoint `{label}` of it, read-only, as it was at {}", resolved.last_seq.unwrap_or_default())
        }
        (View::Proposal(..), _) => {
            "What it proposes to its parent, read-only; `plan` says what a merge would do".to_owned()
        }
        (View::At(_, entry), _) => format!("What it was behind entry {entry}, read-only"),
        (_, None) => "A root branch".to_owned(),
        (_, Some(_)) => "A fork of its parent, whose later changes it does not see".to_owned(),
    };
    let vectors = match settings.dim() {
        Some(dim) => format!(", with vectors of {dim} numbers ({})", settings.metric()),
        None => String::new(),
    };
    let _ = writeln!(
        out,
        "{where_am_i}: {} records{vectors}, {} files, {} branches below it, {} checkpoints.",
        totals.records,
        resolved.state.files().totals().files,
        branch.children.len(),
        branch.checkpoints.len(),
    );
    let _ = writeln!(out, "{}\n", describe_embedding(&memory.embedding_status(catalog, branch)?));
    // An id that is there: the first example works when it is typed.
    let first = resolved.state.rows(None)?.next().transpose()?;
    let first = first.as_ref().map(|row| row.id()).transpose()?;
    if let Some(id) = first {
        let _ = writeln!(out, "    cat 'vectors/{id}.json'");
    }
    if has_long_log(catalog, branch) {
        out.push_str(LONG_LOG);
    }
    let usage = USE.replace("STRATEGY", &catalog.setting(branch, Setting::Strategy)?);
    for line in usage.lines().filter(|line| branch.parent.is_some() || !line.contains(PULL)) {
        let _ = writeln!(out, "{line}");
    }
    Ok(out)
}

/// Returns whether the shared log has more than a mebibyte that nobody archived.
fn has_long_log(catalog: &Catalog, branch: &Branch) -> bool {
    let bytes = |(log, _): (SharedLogTotals, u64)| log.bytes - log.archived_bytes;
    catalog.log_progress(branch).is_ok_and(|log| bytes(log) >= LONG_LOG_BYTES)
}

/// Bytes of a log from which on the page asks for old entries to be archived.
const LONG_LOG_BYTES: u64 = 1 << 20;
const LONG_LOG: &str = "The shared log has more than 1 MiB: its owner takes old entries out of queries with echo 'archive-log ID' > ctl.\n\n";

/// Says in one line whether queries in words find what means the same.
fn describe_embedding(status: &EmbeddingStatus) -> String {
    match (&status.obstacle, &status.record) {
        (None, Some(record)) => {
            format!(
                "Queries in words match meaning and words: texts are embedded by {} behind each write.",
                record.name
            )
        }
        (Some(obstacle), _) => format!("Queries in words match words: {}.", obstacle.reason()),
        (None, None) => "Queries in words match words.".to_owned(),
    }
}

const USE: &str = r#"    ls vectors                                         all records, a file each
    echo 'Ann drinks tea at four' > vectors/tea.json   remember: a line of text
    echo 'what does Ann drink?' > query; cat query     find, in records, files and the log
    echo 'Ann drinks tea at five' > vectors/tea.json   correct
    rm vectors/tea.json                                forget
    echo 'call Ann' > files/todo.md                    keep a file; its text is found, too
    mkdir branches/try                                 try: a private copy of all this, at once
    cat branches/try/diff                              compare: what was changed there
    mv branches/try .; cat ctl                         merge it into here (conflicts: STRATEGY)
    rmdir branches/try                                 or throw it away
    echo undo > ctl; cat ctl                           take back your last change; redo does it again
    mkdir checkpoints/before                           a state to go back to: echo 'rollback before' > ctl
    echo pull > ctl                                    take over what the parent has now
    echo 'the tea is ordered' > shared/log/append      tell all branches
    cat shared/log/unread; cat shared/log/last/5       what others told; write the last id read to shared/log/cursor
    echo done > shared/signals/tea                     show all a value; rm it, or set config/signal_ttl
    until cat shared/signals/tea 2>&-; do sleep 1; done  wait for it
    tail -n 5 events.jsonl                             what happened here
    cat branches.jsonl                                 who else is here

`vectors/ID.json` also takes {"text":"…","metadata":{…},"vector":[…]}; a key that is left out stays. `ingest` takes such lines with
an "id", all or none. `query` takes {"text":"…","k":20,"filter":{…}}. `at/-2h/` is all this two hours ago. `scratch/` is RAM.
`config/` has settings. When a write fails, `tail -n 1 errors` says why and what to do.
"#;

/// What only a branch with a parent can do.
const PULL: &str = "echo pull > ctl";

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use super::{BYTES_MAX, LONG_LOG, PULL, USE};
    use crate::disk::ForgetfulDisk;
    use crate::memory::{Actor, Document, Environment, Memory, OpenMode, View};

    #[test]
    fn a_page_recommends_a_pull_only_where_there_is_a_parent() {
        let who = Actor { uid: 0, gid: 0, name: "root".into() };
        let disk = Arc::new(ForgetfulDisk::new());
        let memory = Memory::open_on(disk, OpenMode::Create, None, Environment::real(who.clone())).unwrap();
        let main = memory.root("main").unwrap();
        let fork = memory.fork(&who, main, "x", None).unwrap();
        for (branch, pulls) in [(main, false), (fork, true)] {
            let page =
                String::from_utf8(memory.document(&View::Branch(branch), Document::Readme).unwrap().to_vec()).unwrap();
            assert_eq!(page.contains(PULL), pulls, "{page}");
            assert!(page.ends_with("says why and what to do.\n"), "{page}");
        }
    }

    #[test]
    fn the_page_leaves_room_for_what_is_said_of_the_branch() {
        assert!(USE.len() + LONG_LOG.len() + 300 <= BYTES_MAX, "{}", USE.len());
    }
}
