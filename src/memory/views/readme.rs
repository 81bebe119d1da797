//! The generated `README.md` of a branch's directory.

use std::fmt::Write;

use crate::memory::catalog::ResolvedView;
use crate::memory::catalog::settings::Setting;
use crate::memory::catalog::{Catalog, View};
use crate::memory::maintenance::embedding::EmbeddingStanding;
use crate::memory::{Error, Memory};

/// Renders the page: where you are, what is here, how to use it, with this branch's own figures.
pub(in crate::memory) fn render(
    memory: &Memory,
    catalog: &Catalog,
    view: &View,
    seen: &ResolvedView<'_>,
) -> Result<String, Error> {
    let branch = seen.branch;
    let path = &branch.path;
    let (records, settings) = (seen.state.totals().records, catalog.shared_settings(branch)?);
    let dim = settings.dim();
    let mut out = format!("# {path}: a branch of an agent's memory\n\n");
    let where_am_i = match (view, branch.parent) {
        (View::Checkpoint(_, label), _) => format!(
            "This is the checkpoint `{label}` of it: read-only, as it was at {}.",
            seen.until.unwrap_or_default()
        ),
        (View::At(_, entry), _) => format!("This is what it was behind entry {entry}: read-only."),
        (_, None) => "This is a root branch.".to_owned(),
        (_, Some(_)) => "It began as a fork of its parent and does not see the parent's later changes.".to_owned(),
    };
    let vectors = match dim {
        Some(dim) => format!("vectors of {dim} numbers compared by {}", settings.metric()),
        None => "no vectors yet: the first one fixes their dimension".to_owned(),
    };
    let _ = writeln!(
        out,
        "{where_am_i}\nIt holds {records} records ({vectors}), {} files, {} child branches and {} checkpoints.\nHead: `{}`\n",
        seen.state.files().totals().files,
        branch.children.len(),
        branch.checkpoints.len(),
        seen.state.head()
    );
    let _ = writeln!(out, "{}\n", meaning(&memory.embedding_of(catalog, branch)?));
    out.push_str(CONTENTS);
    let example_vector = match dim {
        Some(dim) if dim > 3 => format!("[0.1, 0.2, …]` ({dim} numbers)"),
        _ => "[0.1, 0.2, 0.3]`".to_owned(),
    };
    let first = seen.state.rows(None)?.next().transpose()?;
    let id = match &first {
        Some(row) => row.id()?.into_owned(),
        None => "note-1".to_owned(),
    };
    let strategy = catalog.setting(branch, Setting::Strategy)?;
    let _ = write!(
        out,
        r#"
## Use it

    cat 'vectors/{id}.json'                                   read a record
    echo 'tea at four' > vectors/note-1.json                  write one, or correct its text
    echo 'what do we know about tea?' > query; cat query      ask in words
    exec 3<>query; echo '{{"id":"{id}","k":3}}' >&3; cat <&3     ask for the nearest to a record
    cp -a ~/notes files/                                      keep files: text in them is found, too
    mkdir branches/try-1                                      fork: constant time, whatever is here
    mv branches/try-1 .                                       merge it back (conflicts: {strategy})
    rmdir branches/try-1                                      or throw it away
    echo undo > ctl; cat ctl                                  take back your last change (undo 3, redo, revert ENTRY)
    mkdir checkpoints/before; echo 'rollback before' > ctl    remember a state, go back to it

A record takes `"vector": {example_vector}, `"text"`, or both, and `"metadata": {{…}}`: `{{"text":"…"}}` is a document, too.
A key that is left out keeps its value, and null removes it.
When a write fails, the last line of `errors` says why and what to do.
"#
    );
    Ok(out)
}

/// Says in one line whether questions in words find what means the same.
fn meaning(standing: &EmbeddingStanding) -> String {
    match (&standing.obstacle, &standing.record) {
        (None, Some(record)) => {
            format!(
                "Questions in words match meaning and words: texts are embedded by {} behind each write.",
                record.name
            )
        }
        (Some(obstacle), _) => format!("Questions in words match words: {}.", obstacle.reason()),
        (None, None) => "Questions in words match words.".to_owned(),
    }
}

const CONTENTS: &str = "\
## What is here

| path | what |
|---|---|
| `vectors/<id>.json` | one file per record |
| `files/` | ordinary files and folders, which fork and merge with the records by `config/rules`; queries find text files by their words |
| `scratch/` | the same in RAM: gone at unmount and with a new `config/session` |
| `branches/<name>/` | child branches: mkdir forks, rmdir discards, rename into this directory merges |
| `branches.jsonl` | all branches below this one: whose, how far ahead of their base and behind their parent |
| `at/<entry or time>/` | what the branch was behind an entry or at a time, such as `at/-2h`: all of this read-only |
| `checkpoints/<label>/` | mkdir takes one, rmdir deletes it; inside, all of this read-only |
| `search/<text>` | reading it answers the question in its name |
| `query` | write questions, read answers |
| `ingest` | write records in bulk as JSON Lines, all or nothing |
| `ctl` | write a verb (fork, pull, promote, merge --dry-run, checkpoint, rollback, undo, revert, resolve), read its outcome |
| `export/` | vectors.npy, ids.txt, records.jsonl |
| `config/<setting>` | one value a file |
| `status` `lineage` `diff` `conflicts` | figures, signed history, own edits, what both sides changed |
| `events.jsonl` `errors` | what happens here, and the last refusals with their reasons |
";
