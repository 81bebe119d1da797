//! Makes the corpus: what a store that was used in all ways, and the writers of single formats, give.
//!
//! `cargo run --example seeds -- FOLDER` writes `FOLDER/TARGET/NAME`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use engramfs::branch::{BranchVersion, RetainedState, write_state_file};
use engramfs::disk::{Disk, ForgetfulDisk};
use engramfs::file_index::{IndexableContent, index_contents};
use engramfs::graph::{GraphBuilder, Params, VectorRows, build};
use engramfs::journal::{FrameKind, Journal, JournalError, JournalFiles};
use engramfs::lineage::{
    Decision, Entry, EntryChunkWriter, EntryOp, LostPart, MergeDetail, SIGNATURE_BYTES, Side, SignedEntry,
};
use engramfs::memory::{
    Actor, Environment, FILES_ROOT, FileName, FileOp, Memory, MergeVerb, NewInode, OpenMode, RecordEdit, Setting, Time,
};
use engramfs::object::{BlobStore, Hash, Reader};
use engramfs::record::DerivedVector;
use engramfs::segment::{Blocks, Container, DerivableTexts, FOLDER, Segment};
use engramfs::text::PostingsWriter;
use engramfs::vector::Metric;
use engramfs::workspace::{Attrs, NoPacks, RangeOp, RenameMode, Tree, XattrMode};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Writes the inputs of targets.
struct Corpus(PathBuf);

impl Corpus {
    fn put(&self, target: &str, name: &str, bytes: &[u8]) -> Outcome {
        let folder = self.0.join(target);
        std::fs::create_dir_all(&folder)?;
        Ok(std::fs::write(folder.join(name), bytes)?)
    }

    /// Checks that every target has an input: a format that changed may have left one without.
    fn is_complete(&self) -> Outcome {
        for target in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz_targets"))? {
            let target = target?.path();
            let name = target.file_stem().ok_or("a target has a name")?;
            if !self.0.join(name).is_dir() {
                return Err(format!("{} has no input", target.display()).into());
            }
        }
        Ok(())
    }
}

/// Puts the length of the first part in front, as the targets' `split` takes it.
fn joined(first: &[u8], second: &[u8]) -> Vec<u8> {
    let length = u16::try_from(first.len()).expect("a seed is short");
    [&length.to_le_bytes(), first, second].concat()
}

fn main() -> Outcome {
    let corpus = Corpus(std::env::args_os().nth(1).ok_or("name the folder of the corpus")?.into());
    store(&corpus)?;
    graphs(&corpus)?;
    indexes(&corpus)?;
    derived(&corpus)?;
    passages(&corpus)?;
    trees(&corpus)?;
    states(&corpus)?;
    entries(&corpus)?;
    texts(&corpus)?;
    corpus.is_complete()
}

static TICKS: AtomicI64 = AtomicI64::new(1_700_000_000_000_000_000);

fn open(disk: &ForgetfulDisk) -> Result<Arc<Memory>, Box<dyn std::error::Error>> {
    let environment = Environment {
        clock: Box::new(|| Time(TICKS.fetch_add(1_000, Ordering::Relaxed))),
        uptime: Box::new(|| std::time::Duration::ZERO),
        entropy: Box::new(|bytes| bytes.fill(7)),
        graph_rows: u32::MAX,
        index_delay: std::time::Duration::from_secs(60),
        idle_interval: std::time::Duration::from_secs(60),
        file_index_delay: std::time::Duration::from_secs(3_600),
        reserve_bytes: 0,
        owner: who(),
    };
    Ok(Memory::open_on(Arc::new(disk.clone()), OpenMode::Create, None, environment)?)
}

fn who() -> Actor {
    Actor { uid: 1000, gid: 1000, name: "ann".into() }
}

const LINES: [&str; 4] = [
    r#"{"id": "a", "vector": [1, 0, 0.5, -1], "text": "the quick brown fox", "metadata": {"kind": "note", "size": 3}}"#,
    r#"{"id": "b", "vector": [0, 1, 0.25, 2], "metadata": {"tags": ["x", "y", null], "a": {"b": 1.5}, "size": -2}}"#,
    r#"{"id": "c", "text": "a lazy dog sleeps, the fox does not"}"#,
    r#"{"id": "d", "vector": [1e-3, 7, -8, 0], "text": "note", "metadata": {"kind": true, "size": 12345678901234}}"#,
];

fn edit(line: &str) -> Result<RecordEdit, Box<dyn std::error::Error>> {
    Ok(RecordEdit::parse_line(line.as_bytes(), 1, &|| "fresh".into())?.ok_or("a line is a record")?)
}

fn edits() -> Result<Vec<RecordEdit>, Box<dyn std::error::Error>> {
    LINES.iter().map(|line| edit(line)).collect()
}

/// A store in which everything happens that has a command.
fn store(corpus: &Corpus) -> Outcome {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk)?;
    let (ann, main) = (who(), memory.root("main").ok_or("a new store has a root branch")?);
    memory.commit(&ann, main, edits()?)?;
    let name = FileName::new(b"notes.md")?;
    let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 1000, gid: 1000 };
    let inode = memory.edit(&ann, main, make)?.inode;
    memory.edit(&ann, main, FileOp::Write { inode, offset: 0, bytes: b"some notes\n".as_slice().into() })?;
    memory.checkpoint(&ann, main, "first", Some("why"))?;
    memory.set(&ann, main, Setting::Strategy, "manual")?;
    memory.chmod(&ann, main, 0o750)?;
    memory.seal()?;
    for (branch, text) in [("child", "one"), ("other", "two")] {
        let child = memory.fork(&ann, main, branch, None)?;
        let line = format!(r#"{{"id": "a", "text": "{text}"}}"#);
        memory.commit(&ann, child, vec![edit(&line)?])?;
        memory.commit(&ann, child, vec![RecordEdit::Delete { id: "c".into() }])?;
        let _ = memory.merge(&ann, child, MergeVerb::Promote, false)?;
    }
    let other = memory.fork(&ann, main, "third", Some("first"))?;
    memory.rename_branch(&ann, other, "renamed")?;
    memory.rollback(&ann, main, "first")?;
    memory.rollback_files(&ann, main, "first", &["files/**".into()])?;
    memory.delete_checkpoint(&ann, main, "first")?;
    memory.discard(&ann, other)?;
    memory.edit(&ann, main, FileOp::Write { inode, offset: 5, bytes: b"more".as_slice().into() })?;
    frames(corpus, &disk)?;
    memory.seal()?;
    files(corpus, &disk)
}

/// What stands in the journal.
fn frames(corpus: &Corpus, disk: &ForgetfulDisk) -> Outcome {
    let (path, length) = disk.files().into_iter().find(|(path, _)| path.starts_with("journal/")).ok_or("a journal")?;
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let number = Journal::parse_file_name(path.trim_start_matches("journal/")).ok_or("a journal")?;
    let (mut records, mut ops) = (Vec::new(), Vec::new());
    JournalFiles::list(&shared, number)?.replay::<JournalError>(false, |frame| {
        match frame.kind {
            FrameKind::Command => records.push(frame.payload[SIGNATURE_BYTES..].to_vec()),
            FrameKind::FileOp => ops.push(frame.payload.to_vec()),
            _ => {}
        }
        Ok(true)
    })?;
    for (number, record) in records.iter().enumerate() {
        corpus.put("log_record", &format!("store-{number:02}"), record)?;
    }
    for (number, op) in ops.iter().enumerate() {
        let mut input = Reader::new(op);
        let _ = (input.number()?, input.signed()?, input.number()?);
        corpus.put("file_op", &format!("store-{number}"), &joined(input.remaining(), &[]))?;
    }
    // The target reads files 1 and 2.
    let mut bytes = disk.bytes(&path)?;
    bytes[8..16].copy_from_slice(&1u64.to_le_bytes());
    assert!(length < 65_536);
    corpus.put("journal", "store", &joined(&bytes, &[]))?;
    let disk = ForgetfulDisk::new();
    disk.create_dir("journal")?;
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let first = Arc::new(Journal::create(&shared, &[1; 16])?);
    first.append(FrameKind::Command, &[b"one"])?;
    first.sync(first.length())?;
    first.append(FrameKind::FileOp, &[b"two"])?;
    let second = Journal::create_after(&shared, &first, &[2; 16])?;
    second.begin()?;
    second.append(FrameKind::Command, &[b"three"])?;
    second.sync(second.length())?;
    second.append(FrameKind::Content, &[&4u32.to_le_bytes(), b"head", b"content"])?;
    corpus.put("journal", "two", &joined(&disk.bytes(&Journal::file_path(1))?, &disk.bytes(&Journal::file_path(2))?))
}

/// What a seal left.
fn files(corpus: &Corpus, disk: &ForgetfulDisk) -> Outcome {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let blobs = BlobStore::open_existing(shared, FOLDER);
    let (mut parts, mut number) = (Vec::new(), 0);
    let mut names: Vec<Hash> = blobs.names()?.into_iter().collect();
    names.sort_unstable();
    for name in names {
        let bytes = disk.bytes(&blobs.path(&name))?;
        let Some(kind) = (0..=u8::MAX).find(|kind| Container::open(&blobs, name, *kind).is_ok()) else { continue };
        number += 1;
        corpus.put("container", &format!("kind-{kind:02x}-{number}"), &[&[kind][..], &bytes].concat())?;
        let file = Container::open(&blobs, name, kind)?;
        match kind {
            _ if Segment::open(&blobs, name).is_ok() => {
                corpus.put("segment", &format!("store-{number}"), &bytes)?;
                Segment::open(&blobs, name)?.version(0, &mut Blocks::default())?;
                corpus.put("postings", &format!("store-{number}"), &joined(b"the fox", file.section(12)?))?;
                for (place, query) in ["kind\n\"note\"", "size\n3", "tags\n[\"x\"]"].into_iter().enumerate() {
                    let name = format!("store-{number}-{place}");
                    corpus.put("facets", &name, &joined(query.as_bytes(), file.section(13)?))?;
                }
            }
            6 => parts.push(file.section(0)?.to_vec()),
            10 => corpus.put("archive", &format!("store-{number}"), &bytes)?,
            0x70 => {
                let tree = delta_over(&name, file.slice(2, 0, 32)?);
                corpus.put("pack", &format!("store-{number}"), &joined(&tree, &bytes))?;
            }
            _ => {}
        }
    }
    let manifest = disk.bytes("manifest")?;
    let root = &manifest[8..manifest.len() - SIGNATURE_BYTES];
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    for (number, part) in parts.iter().enumerate() {
        corpus.put("manifest", &format!("store-{number}"), &joined(root, &joined(part, &[])))?;
    }
    Ok(())
}

/// The stored form of a tree with one file, whose one chunk is the first of a pack.
fn delta_over(pack: &Hash, hash: &[u8]) -> Vec<u8> {
    let mut out = engramfs::object::Writer::new();
    out.byte(2).number(3).number(1).hash(pack).number(0).number(2);
    for (inode, kind) in [(1, 2), (2, 1)] {
        out.number(inode).byte(kind).number(0o644).number(0).number(0);
        (0..4).for_each(|_| {
            out.signed(1);
        });
        out.number(0);
        match inode {
            1 => out.number(0).number(1).bytes(b"f").number(2),
            _ => out.number(15).number(1).number(0).byte(3).number(15).number(15).number(0).number(0).raw(hash),
        };
    }
    out.finish()
}

fn graphs(corpus: &Corpus) -> Outcome {
    // The rows of the target.
    let codes: Vec<i8> = (0..24 * 4).map(|i| (i * 37 % 255) as u8 as i8).collect();
    let rows = VectorRows { dim: 4, codes: &codes, scales: &[0.01; 24], norms: &[1.0; 24] };
    for metric in Metric::ALL {
        let params = Params { links: 4, ef: 8, passes: 1 };
        corpus.put(
            "graph",
            &format!("built-{metric}"),
            &build(rows, metric, params, &mut |_, _| true).ok_or("a graph")?,
        )?;
    }
    let mut builder = GraphBuilder::new(rows, Metric::L2, Params::default());
    corpus.put("graph", "begun", &builder.save())?;
    builder.step(16);
    corpus.put("graph", "interrupted", &builder.save())
}

/// An index of more rows than a store of a few lines has, with skip tables.
fn indexes(corpus: &Corpus) -> Outcome {
    let mut postings = PostingsWriter::new();
    let mut facets = engramfs::facet::FacetsWriter::new();
    for row in 0..300u32 {
        let text = format!("fox {} {}", if row % 2 == 0 { "even" } else { "odd" }, row % 5);
        postings.add(row, Some(&text), &serde_json::Value::Null);
        facets.add(row, &serde_json::json!({ "n": row, "kind": if row % 3 == 0 { "note" } else { "log" }, "s": text }));
    }
    corpus.put("postings", "many", &joined(b"fox even 3", &postings.finish()))?;
    let facets = facets.finish();
    corpus.put("facets", "many-number", &joined(b"n\n17", &facets))?;
    corpus.put("facets", "many-string", &joined(b"s\n\"fox odd 2\"", &facets))
}

/// Vectors of all texts of a segment, and of some of them.
fn derived(corpus: &Corpus) -> Outcome {
    let disk = ForgetfulDisk::new();
    let blobs = BlobStore::new(Arc::new(disk.clone()), FOLDER)?;
    let [_, full, _] = engramfs_fuzz::states();
    let segment = &full.layers().first().ok_or("a segment")?.segment;
    let (mut hashes, embedder) = (Vec::new(), Hash([9; 32]));
    let texts = DerivableTexts::read(segment, |_, hash, _| hashes.push(hash))?;
    for (name, count) in [("all", hashes.len()), ("some", 1)] {
        let vector = |place: usize| Arc::new(DerivedVector::new(vec![place as f32, 0.5, -1.0, 2.0]));
        let find = |wanted: &Hash| hashes[..count].iter().position(|hash| hash == wanted).map(vector);
        let file = texts.write(&blobs, &segment.name(), (&embedder, 4), &find)?;
        corpus.put("derived_file", name, &disk.bytes(&blobs.path(&file))?)?;
    }
    Ok(())
}

/// A segment of the index of files: of a text with headings, a plain one, and one that is no text.
fn passages(corpus: &Corpus) -> Outcome {
    let mut tree = Tree::default();
    let texts = [("a.md", "# Fox\n\nquick\n\n## Dog\n\nlazy\n"), ("b.txt", "the fox sleeps\n"), ("c.bin", "\0")];
    for (inode, (name, text)) in (2..).zip(texts) {
        let name = FileName::new(name.as_bytes())?;
        let make = FileOp::Create { parent: FILES_ROOT, name, make: NewInode::File, mode: 0o644, uid: 1, gid: 2 };
        tree.apply(&make, Time(1), &NoPacks)?;
        tree.apply(&FileOp::Write { inode, offset: 0, bytes: text.as_bytes().into() }, Time(2), &NoPacks)?;
    }
    let nodes = (2..5).filter_map(|inode| tree.node(inode).ok());
    let contents = nodes.filter_map(|node| IndexableContent::from_node(node)).collect();
    let segment = index_contents(contents, &NoPacks).segment.ok_or("contents")?;
    let disk = ForgetfulDisk::new();
    let blobs = BlobStore::new(Arc::new(disk.clone()), FOLDER)?;
    let name = segment.persist(&blobs)?.name().ok_or("a file")?;
    corpus.put("index_segment", "three-files", &disk.bytes(&blobs.path(&name))?)
}

fn states(corpus: &Corpus) -> Outcome {
    let [empty, full, fewer] = engramfs_fuzz::states();
    let retained = |entry: u64, is_pinned, state: &Arc<BranchVersion>, base: &Arc<BranchVersion>| RetainedState {
        time: Time(entry.cast_signed() * 1_000),
        owner: 1000,
        is_pinned,
        state: state.clone(),
        base: base.clone(),
    };
    let states = [
        ((1, 1), retained(1, false, &empty, &empty)),
        ((1, 2), retained(2, true, &full, &empty)),
        ((2, 3), retained(3, false, &fewer, &full)),
        ((1, 4), retained(4, false, &fewer, &full)),
    ];
    let disk = ForgetfulDisk::new();
    let blobs = BlobStore::new(Arc::new(disk.clone()), FOLDER)?;
    let written = write_state_file(&blobs, &states.into_iter().collect(), |branch| (branch == 2).then_some(1))?;
    corpus.put("state_file", "two-branches", &disk.bytes(&blobs.path(&written.name))?)
}

fn trees(corpus: &Corpus) -> Outcome {
    let name = |text: &str| FileName::new(text.as_bytes()).expect("it is a name");
    let create =
        |parent, text: &str, make| FileOp::Create { parent, name: name(text), make, mode: 0o644, uid: 1, gid: 2 };
    let ops = [
        create(1, "d", NewInode::Directory),
        create(2, "f", NewInode::File),
        FileOp::Write { inode: 3, offset: 4_090, bytes: b"over the end of a block".as_slice().into() },
        create(1, "l", NewInode::Symlink(b"d/f".to_vec())),
        create(1, "p", NewInode::Fifo),
        create(1, "c", NewInode::CharDevice(259)),
        FileOp::Link { inode: 3, parent: 1, name: name("g") },
        FileOp::SetXattr { inode: 3, name: b"user.a".to_vec(), value: b"v".to_vec(), mode: XattrMode::Any },
        FileOp::Range { inode: 3, what: RangeOp::Allocate, offset: 0, length: 1 << 20, keep_size: false },
        FileOp::Range { inode: 3, what: RangeOp::Punch, offset: 70_000, length: 200_000, keep_size: true },
        create(1, "h", NewInode::File),
        FileOp::Copy { from: 3, from_offset: 0, to: 7, to_offset: 4096, length: 300_000 },
        FileOp::SetAttr { inode: 7, attrs: Attrs { size: Some(100_000), mode: Some(0o600), ..Attrs::default() } },
        FileOp::Rename {
            parent: 1,
            name: name("g"),
            new_parent: 2,
            new_name: name("z"),
            mode: RenameMode::NoReplace,
            keep: false,
        },
        FileOp::Rename {
            parent: 1,
            name: name("h"),
            new_parent: 1,
            new_name: name("l"),
            mode: RenameMode::Exchange,
            keep: false,
        },
        FileOp::Unlink { parent: 1, name: name("p"), keep: true },
        FileOp::RemoveXattr { inode: 3, name: b"user.a".to_vec() },
        create(1, "e", NewInode::Directory),
        FileOp::Rmdir { parent: 1, name: name("e"), keep: false },
        FileOp::Drop { inode: 5 },
    ];
    let (mut tree, mut all, mut states) = (Tree::default(), Vec::new(), vec![Tree::default()]);
    for (number, op) in ops.iter().enumerate() {
        tree.apply(op, engramfs::object::Time(number as i64), &NoPacks)?;
        all.extend(joined(&op.to_bytes(), &[]));
        states.push(tree.clone());
    }
    corpus.put("file_op", "all", &all)?;
    for middle in [3, 9, 12, 16] {
        let (first, second) = (states[middle].delta_from(&states[0])?, tree.delta_from(&states[middle])?);
        corpus.put("tree_delta", &format!("after-{middle:02}"), &joined(&first, &second))?;
    }
    Ok(())
}

fn entries(corpus: &Corpus) -> Outcome {
    let hash = Hash([5; 32]);
    let lost = vec![LostPart::new(Side::Child, "a line".into())];
    let conflicts = vec![
        Decision {
            id: "a".into(),
            base: Some(hash),
            child: Some(hash),
            decision: Some(Side::Both),
            ..Decision::default()
        },
        Decision { id: "files/x".into(), lost, lost_more: 2, note: Some("whole".into()), ..Decision::default() },
    ];
    for (number, op) in [EntryOp::Root, EntryOp::Commit, EntryOp::Checkpoint, EntryOp::Merge].into_iter().enumerate() {
        let is_merge = op == EntryOp::Merge;
        let detail = engramfs::lineage::Detail {
            label: Some("label".into()),
            text: (number > 1).then(|| "text".into()),
            strategy: is_merge.then_some(engramfs::lineage::Strategy::Manual),
            conflicts: if is_merge { conflicts.clone() } else { Vec::new() },
            merge: is_merge.then(|| MergeDetail {
                child_head: hash,
                parent_head: hash,
                plan: hash,
                not_merged: vec!["files/cache".into()],
            }),
            ..Default::default()
        };
        let entry = Entry {
            seq: 7 + number as u64,
            op,
            branch: "main/child".into(),
            branch_id: 3,
            parent: (number > 0).then(|| "main".into()),
            parent_id: 1,
            time: engramfs::object::Time(1_700_000_000_000_000_000),
            agent: "ann".into(),
            session: "s".into(),
            task: "".into(),
            uid: 1000,
            base: hash,
            head: hash,
            counts: engramfs::lineage::Counts { put: 1, deleted: 2, files: 300 },
            detail,
            log_record: hash,
            prev: hash,
            key: hash,
        };
        let mut chunk = EntryChunkWriter::default();
        chunk.push(&SignedEntry { hash: entry.hash(), entry, signature: [1; SIGNATURE_BYTES] });
        corpus.put("lineage_entry", op.name(), chunk.as_slice())?;
    }
    Ok(())
}

fn texts(corpus: &Corpus) -> Outcome {
    let records = LINES.join("\n");
    for (number, query) in [
        r#"{"vector": [1, 0, 0.5, -1], "k": 3, "exact": true}"#,
        r#"{"vector": [1, 0, 0.5, -1], "text": "fox", "explain": true, "tag": {"n": 1}, "timeout_ms": 60000}"#,
        r#"{"id": "a", "mode": "vector", "include": ["vector"], "scope": ["branch", "log"], "ef": 10}"#,
        r#"{"text": "the fox", "filter": {"kind": "note", "size": {"$gte": 2}}}"#,
        "quick brown fox",
        r#"does "the fox" jump over a "Lazy dog" or "fox the"?"#,
    ]
    .into_iter()
    .enumerate()
    {
        corpus.put("query", &format!("query-{number}"), format!("{query}\n{records}").as_bytes())?;
    }
    let metadata = "{\"kind\": \"note\", \"size\": 3}\n{\"tags\": [\"x\", 2, null, {\"a\": 1}], \"a\": {\"b\": 1.5}}\n{}\n{\"a.b\": \"long\", \"size\": 1e300}";
    for (number, filter) in [
        r#"{"kind": "note", "size": {"$gte": 2, "$lt": 4.5}}"#,
        r#"{"$or": [{"tags": {"$in": ["x", null]}}, {"a.b": {"$not": {"$lte": 1.5}}}]}"#,
        r#"{"$and": [{"tags": {"$nin": [2, "y"]}}, {"$not": {"a": {"$exists": true}}}]}"#,
        r#"{"tags": ["x", 2, null, {"a": 1}], "a": {"$ne": {"b": 1.5}}, "size": {"$gt": "a"}}"#,
    ]
    .into_iter()
    .enumerate()
    {
        corpus.put("filter", &format!("filter-{number}"), format!("{filter}\n{metadata}").as_bytes())?;
    }
    corpus.put("rules", "default", &joined(b"core/a.md", engramfs::merge::files::DEFAULT_RULES.as_bytes()))?;
    let rules =
        "# all options\n/a/[a-c]?{x,y}\\* union id append ttl=90s write=uid:1,gid:2 manual # end\n*.md newest\n";
    corpus.put("rules", "options", &joined(b"a/bzx*", rules.as_bytes()))?;
    imports(corpus)
}

fn imports(corpus: &Corpus) -> Outcome {
    for (width, zeros) in [(2, 16), (4, 32), (8, 64)] {
        let header = format!("{{'descr': '<f{width}', 'fortran_order': False, 'shape': (2, 4), }}\n");
        let length = u16::try_from(header.len())?.to_le_bytes();
        let file = [&b"\0\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), &vec![0; zeros]].concat();
        corpus.put("import", &format!("npy-f{width}"), &file)?;
    }
    let row = [&2u32.to_le_bytes()[..], &1f32.to_le_bytes(), &(-2f32).to_le_bytes()].concat();
    corpus.put("import", "fvecs", &[&[1][..], &row, &row].concat())?;
    corpus.put("import", "jsonl", format!("\x02{}\n", LINES.join("\n")).as_bytes())
}
