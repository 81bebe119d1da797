//! Names that are no names and vectors that are no vectors are refused, and leave no trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use engramfs::branch::NameError;
use engramfs::disk::ForgetfulDisk;
use engramfs::memory::{
    CommitOptions, Environment, Error, Kind, Memory, MergeVerb, OpenMode, RecordEdit, RecordPatch, Setting, Time, View,
};

use crate::support::{environment, main_of, open, put, verify, who};

/// As imports commit.
fn skip_unchanged() -> CommitOptions {
    CommitOptions { skip_unchanged: true, ..CommitOptions::default() }
}

/// Strings with every byte below 128 and every character up to 255 alone, in front and behind; and
/// what people try.
fn strings() -> Vec<String> {
    let mut all = Vec::new();
    for byte in 0..=255u8 {
        let c = char::from(byte);
        all.extend([format!("{c}"), format!("{c}x{byte}"), format!("x{byte}{c}"), format!("{byte}y{c}z")]);
    }
    all.extend((0..300).map(|length| "n".repeat(length)));
    all.extend((60..70).map(|length| "é".repeat(length / 2)));
    let tried = [
        "..",
        ".",
        "...",
        "../x",
        "../../etc/passwd",
        "/",
        "/etc",
        "a/b",
        "a/../b",
        "a\\b",
        "a\0b",
        "con",
        "-rf",
        "--",
        "~",
        "%2e%2e",
        "\u{202e}gnp",
        "\u{feff}x",
        "x ",
        " x",
        "ｘ",
        "\u{1f600}",
        "README.md",
        "vectors",
        "files",
        "branches",
        "checkpoints",
        "scratch",
        "shared",
        "search",
        "export",
        "query",
        "ingest",
        "ctl",
        "config",
        "status",
        "lineage",
        "diff",
        "conflicts",
        "events.jsonl",
        "errors",
        "Ctl",
        "main",
    ];
    all.extend(tried.map(str::to_owned));
    let mut seen = std::collections::HashSet::new();
    all.retain(|text| seen.insert(text.clone()));
    all
}

/// The contract's words, written down once more.
fn is_name(name: &str) -> bool {
    let taken = [
        "README.md",
        "vectors",
        "files",
        "branches",
        "checkpoints",
        "scratch",
        "shared",
        "search",
        "export",
        "query",
        "ingest",
        "ctl",
        "config",
        "status",
        "lineage",
        "diff",
        "conflicts",
        "events.jsonl",
        "errors",
    ];
    let allowed = |c: char| matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '-' | ':' | '@');
    matches!(name.len(), 1..=64) && name.chars().all(allowed) && !name.starts_with('.') && !taken.contains(&name)
}

/// A label reads as nothing else: as no number, hash or time.
fn is_label(name: &str) -> bool {
    let is_time = matches!(name, "2026-01-01T00:00:00Z" | "-10m");
    let is_hash = name.len() == 64 && name.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let is_number = name.chars().all(|c| c.is_ascii_digit());
    is_name(name) && !name.starts_with('@') && !is_number && !is_hash && !is_time
}

fn is_record_id(id: &str) -> bool {
    matches!(id.len(), 1..=200) && !id.starts_with('.') && !id.chars().any(|c| c == '/' || c.is_control())
}

/// Tries every string; only those that are right may be accepted, and a refusal changes nothing.
fn try_all(memory: &Memory, is_right: fn(&str) -> bool, attempt: &dyn Fn(&str) -> Result<(), Error>) {
    let mut accepted = 0;
    for text in strings() {
        let before = memory.tip();
        match attempt(&text) {
            Ok(()) => {
                assert!(is_right(&text), "{text:?} is accepted");
                accepted += 1;
            }
            Err(error) => {
                assert!(!is_right(&text), "{text:?} is refused: {error}");
                assert_eq!((error.kind(), memory.tip()), (Kind::Invalid, before), "{text:?}: {error}");
            }
        }
    }
    assert!(accepted > 200);
}

fn begun() -> (ForgetfulDisk, Arc<Memory>) {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    memory.commit(&who(), main_of(&memory), vec![put("first", Some(vec![1.0, 0.0]), None)]).unwrap();
    (disk, memory)
}

/// Nothing anyone names becomes a file of that name.
fn check_files(disk: &ForgetfulDisk, memory: &Memory) {
    memory.seal().unwrap();
    memory.close().unwrap();
    let hex = |name: &str, length: usize| name.len() == length && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (path, _) in disk.files() {
        let known = match path.split_once('/') {
            None => ["format", "key", "key.pub", "manifest"].contains(&path.as_str()),
            Some(("journal", name)) => hex(name, 16),
            Some(("segments", name)) => hex(name, 64),
            Some(_) => false,
        };
        assert!(known, "{path}");
    }
    verify(disk).unwrap();
}

#[test]
fn branches_have_exactly_the_allowed_names() {
    let (disk, memory) = begun();
    let main = main_of(&memory);
    try_all(&memory, is_name, &|name| memory.fork(&who(), main, name, None).map(|_| ()));
    check_files(&disk, &memory);
}

#[test]
fn branches_are_renamed_to_exactly_the_allowed_names() {
    let (disk, memory) = begun();
    let branch = memory.fork(&who(), main_of(&memory), "to-be-renamed", None).unwrap();
    try_all(&memory, is_name, &|name| memory.rename_branch(&who(), branch, name));
    check_files(&disk, &memory);
}

#[test]
fn checkpoints_have_exactly_the_allowed_names() {
    let (disk, memory) = begun();
    try_all(&memory, is_label, &|label| memory.checkpoint(&who(), main_of(&memory), label, None));
    check_files(&disk, &memory);
}

#[test]
fn root_branches_have_exactly_the_allowed_names() {
    let (disk, memory) = begun();
    try_all(&memory, |name| is_name(name) && name != "main", &|name| match memory.create_root(&who(), name) {
        Err(_) if name == "main" => Err(NameError::Taken(name.to_owned()).into()),
        other => other.map(|_| ()),
    });
    check_files(&disk, &memory);
}

#[test]
fn records_have_exactly_the_allowed_ids() {
    let (disk, memory) = begun();
    let main = main_of(&memory);
    try_all(&memory, is_record_id, &|id| memory.commit(&who(), main, vec![put(id, None, Some("text"))]).map(|_| ()));
    let tip = memory.tip();
    for id in ["", ".x", "a/b", "a\nb", "../x", "a\0b"] {
        let renamed = memory.commit(&who(), main, vec![RecordEdit::Rename { from: "first".into(), to: id.into() }]);
        assert_eq!(renamed.unwrap_err().kind(), Kind::Invalid, "{id:?}");
        let many = (0..1024).map(|n| put(&format!("m{n}"), None, Some("text"))).chain([put(id, None, Some("text"))]);
        assert_eq!(memory.commit(&who(), main, many.collect()).unwrap_err().kind(), Kind::Invalid, "{id:?}");
    }
    assert_eq!(memory.tip(), tip);
    check_files(&disk, &memory);
}

/// Vectors that a memory of two numbers by cosine refuses.
fn bad_vectors() -> Vec<Vec<f32>> {
    let mut all =
        vec![vec![], vec![1.0], vec![1.0; 3], vec![0.0, 0.0], vec![-0.0, 0.0], vec![1.0; 65_536], vec![1.0; 65_537]];
    for odd in [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::from_bits(0x7f80_0001),
        f32::from_bits(0xffff_ffff),
    ] {
        all.extend([vec![odd, 1.0], vec![1.0, odd], vec![odd, odd]]);
    }
    all
}

#[test]
fn bad_vectors_are_refused_and_leave_no_trace() {
    let (disk, memory) = begun();
    let main = main_of(&memory);
    let (tip, head, files) = (memory.tip(), memory.snapshot(&View::Branch(main)).unwrap().head(), disk.files());
    for vector in bad_vectors() {
        let shown = format!("{} numbers, {:?}", vector.len(), &vector[..vector.len().min(3)]);
        let edit = || put("bad", Some(vector.clone()), Some("text"));
        let good = |n: usize| put(&format!("good{n}"), Some(vec![1.0, n as f32]), None);
        let mixed = || vec![good(0), edit(), good(1)];
        let bulk = || (0..1030).map(good).chain([edit()]).collect();
        assert_eq!(memory.commit(&who(), main, mixed()).unwrap_err().kind(), Kind::Invalid, "{shown}");
        assert_eq!(
            memory.commit_with(&who(), main, mixed(), &skip_unchanged()).unwrap_err().kind(),
            Kind::Invalid,
            "{shown}"
        );
        assert_eq!(memory.commit(&who(), main, bulk()).unwrap_err().kind(), Kind::Invalid, "{shown}");
        assert_eq!(
            memory.check_patch_vector(main, &vector_alone(&vector)).unwrap_err().kind(),
            Kind::Invalid,
            "{shown}"
        );
        assert_eq!(memory.tip(), tip);
        assert_eq!(memory.snapshot(&View::Branch(main)).unwrap().head(), head);
        assert_eq!(disk.files(), files);
    }
    verify(&disk).unwrap();
}

#[test]
fn a_vector_that_does_not_fit_those_before_it_is_refused_with_its_line() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let main = main_of(&memory);
    let refusal = |lines: &[String]| {
        let parse = |(line, number): (&String, usize)| {
            RecordEdit::parse_line(line.as_bytes(), number, &|| "fresh".into()).unwrap().unwrap()
        };
        let edits = lines.iter().zip(1..).map(parse).collect();
        memory.commit_with(&who(), main, edits, &skip_unchanged()).unwrap_err().to_string()
    };
    // The order of the lines counts and not that of the ids, and of the lines of one record the one with the vector.
    let few = [r#"{"id":"b","vector":[1,2,3]}"#, r#"{"id":"a","vector":[1,2]}"#, r#"{"id":"a","metadata":{"k":1}}"#];
    assert_eq!(refusal(&few.map(str::to_owned)), "line 2: the vector has 2 numbers, and vectors here have 3");
    let zero = [r#"{"id":"b","text":"x"}"#, r#"{"id":"a","vector":[0,0]}"#].map(str::to_owned);
    assert!(refusal(&zero).starts_with("line 2: a vector of zeros"), "{}", refusal(&zero));
    let many = (0..1030).map(|n| format!(r#"{{"id":"r{n}","vector":[1,2]}}"#));
    let many: Vec<String> = many.chain([r#"{"id":"a","vector":[1]}"#.to_owned()]).collect();
    assert_eq!(refusal(&many), "line 1031: the vector has 1 numbers, and vectors here have 2");
    assert_eq!(memory.snapshot(&View::Branch(main)).unwrap().count(), 0);
}

#[test]
fn a_memory_s_first_vector_is_checked_as_well() {
    let disk = ForgetfulDisk::new();
    let memory = open(&disk).unwrap();
    for vector in
        bad_vectors().into_iter().filter(|vector| vector.len() != 1 && vector.len() != 3 && vector.len() != 65_536)
    {
        let error = memory.commit(&who(), main_of(&memory), vec![put("bad", Some(vector), None)]).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
    }
    for text in ["[NaN]", "[Infinity]", "[1e39,0]", "[-1e39,0]", "[]", "[null,1]", "[\"1\",1]", "[[1],1]", "[true,1]"] {
        let document = format!("{{\"vector\":{text}}}");
        assert_eq!(RecordPatch::parse("a", document.as_bytes()).unwrap_err().advice().kind, Kind::Invalid, "{text}");
    }
    assert_eq!(memory.snapshot(&View::Branch(main_of(&memory))).unwrap().count(), 0);
    memory.commit(&who(), main_of(&memory), vec![put("longest", Some(vec![1.0; 65_536]), None)]).unwrap();
}

fn vector_alone(vector: &[f32]) -> RecordPatch {
    RecordPatch { vector: Some(Some(vector.into())), ..RecordPatch::default() }
}

#[test]
fn odd_and_good_vectors_are_kept_to_the_bit() {
    let (disk, memory) = begun();
    let main = main_of(&memory);
    let good = [
        [f32::MIN_POSITIVE / 4.0, 1.0],
        [f32::from_bits(1), 1.0],
        [f32::from_bits(1), 0.0],
        [-f32::from_bits(0x007f_ffff), 0.0],
        [f32::MAX, f32::MIN],
        [-0.0, 1.0],
        [f32::EPSILON, -1.0],
        [16_777_217.0, 0.1],
    ];
    let edits = good.iter().enumerate().map(|(n, vector)| put(&format!("odd{n}"), Some(vector.to_vec()), None));
    memory.commit(&who(), main, edits.collect()).unwrap();
    memory.seal().unwrap();
    memory.close().unwrap();
    let memory = open(&disk).unwrap();
    let snapshot = memory.snapshot(&View::Branch(main)).unwrap();
    for (n, vector) in good.iter().enumerate() {
        let record = snapshot.get(&format!("odd{n}")).unwrap().unwrap();
        let bits = |vector: &[f32]| vector.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(record.vector().unwrap()), bits(vector));
        let read = RecordPatch::parse(&format!("odd{n}"), &record.to_document()).unwrap().unwrap();
        assert_eq!(bits(&read.vector.unwrap().unwrap()), bits(vector), "as JSON");
    }
    verify(&disk).unwrap();
}

#[test]
fn refused_merges_become_one_entry_a_second_and_branch() {
    let now = Arc::new(AtomicI64::new(1_700_000_000_000_000_000));
    let clock = now.clone();
    let around = Environment { clock: Box::new(move || Time(clock.load(Ordering::Relaxed))), ..environment() };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
    let parents = ["one", "other"].map(|name| {
        let parent = memory.fork(&who(), main_of(&memory), name, None).unwrap();
        memory.fork(&who(), parent, "below", None).unwrap();
        parent
    });
    let mut expected = [0, 0];
    // How much later, by whom, and whether it is written down.
    for (nanos, at, is_noted) in
        [(0, 0, 1), (0, 0, 0), (0, 1, 1), (999_999_999, 0, 0), (0, 1, 0), (1, 0, 1), (0, 1, 1), (999_999_999, 1, 0)]
    {
        now.fetch_add(nanos, Ordering::Relaxed);
        let refused = memory.merge(&who(), parents[at], MergeVerb::Merge, false).unwrap_err();
        assert_eq!(refused.kind(), Kind::NotEmpty);
        expected[at] += is_noted;
        let noted = parents.map(|parent| {
            let lines = memory.lineage_lines(parent, false).unwrap();
            lines.iter().filter(|line| line.contains("\"op\":\"refuse\"")).count()
        });
        assert_eq!(noted, expected, "{nanos} ns later, {at}");
    }
}

#[test]
fn refused_writes_become_one_entry_a_second() {
    let now = Arc::new(AtomicI64::new(1_700_000_000_000_000_000));
    let clock = now.clone();
    let around = Environment { clock: Box::new(move || Time(clock.load(Ordering::Relaxed))), ..environment() };
    let memory = Memory::open_on(Arc::new(ForgetfulDisk::new()), OpenMode::Create, None, around).unwrap();
    let main = main_of(&memory);
    memory.set(&who(), main, Setting::Rules, "** text write=uid:1001").unwrap();
    for (nanos, expected) in [(0, 1), (0, 1), (999_999_999, 1), (1, 2), (0, 2)] {
        now.fetch_add(nanos, Ordering::Relaxed);
        crate::support::make_file(&memory, "a").unwrap_err();
        let lines = memory.lineage_lines(main, false).unwrap();
        let noted = lines.iter().filter(|line| line.contains("\"op\":\"refuse\"")).count();
        assert_eq!(noted, expected, "{nanos} ns later");
    }
}

#[test]
fn a_root_branch_and_all_below_have_one_dimension_and_metric() {
    let memory = open(&ForgetfulDisk::new()).unwrap();
    let (main, other) = (main_of(&memory), memory.create_root(&who(), "other").unwrap());
    let [x, y] = ["x", "y"].map(|name| memory.fork(&who(), main, name, None).unwrap());
    memory.set(&who(), x, Setting::Metric, "l2").unwrap();
    memory.commit(&who(), y, vec![put("a", Some(vec![1.0, 0.0]), None)]).unwrap();
    let shown = |branch| {
        [Setting::Dim, Setting::Metric].map(|one| memory.setting(&View::Branch(branch), one).unwrap().to_string())
    };
    for branch in [main, x, y] {
        assert_eq!(shown(branch), ["2", "l2"]);
        let longer = memory.commit(&who(), branch, vec![put("b", Some(vec![1.0; 3]), None)]).unwrap_err();
        assert_eq!(longer.code(), "wrong_dimension");
        for (setting, value) in [(Setting::Dim, "3"), (Setting::Metric, "dot")] {
            assert_eq!(memory.set(&who(), branch, setting, value).unwrap_err().kind(), Kind::Busy);
        }
    }
    assert_eq!(shown(other), ["", "cosine"]);
}
