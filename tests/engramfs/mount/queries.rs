//! Conversations with `query` out of many languages, and `search/`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{Mounted, errno, lines, read, run, save};

/// Forty records on a circle, each with a word of its own; `group` is the number's remainder by 4.
fn circle() -> Mounted {
    let mount = Mounted::new();
    let line = |n: u32| {
        let angle = f64::from(n) * std::f64::consts::TAU / 40.0;
        let (vector, text) = ([angle.cos(), angle.sin()], format!("tea word{n}"));
        json!({"id": format!("r{n:02}"), "vector": vector, "text": text, "metadata": {"group": n % 4}}).to_string()
            + "\n"
    };
    save(mount.at("main/ingest"), &(0..40).map(line).collect::<String>()).unwrap();
    mount
}

pub(super) fn ask(mount: &Mounted, branch: &str, query: &Value) -> Vec<Value> {
    let mut file = File::options().read(true).write(true).open(mount.at(&format!("{branch}/query"))).unwrap();
    file.write_all(format!("{query}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    file.read_to_string(&mut answer).unwrap();
    lines(&answer)
}

fn ids(answer: &[Value]) -> Vec<&str> {
    answer[1..].iter().map(|hit| hit["id"].as_str().unwrap()).collect()
}

/// Checks that `text` is the answers to `word7` and `word9`, one after the other.
#[track_caller]
fn assert_two_answers(text: &str) {
    let answers = lines(text);
    let found: Vec<&Value> = answers.iter().map(|line| line.get("id").unwrap_or(&line["hits"])).collect();
    assert_eq!(found, [&json!(1), &json!("r07"), &json!(1), &json!("r09")]);
}

#[test]
fn reading_verbs_work_beside_the_server_of_a_store() {
    let mount = Mounted::new();
    mount.put("main/vectors/tea.json", "tea is at four");
    fs::create_dir(mount.at("main/branches/a")).unwrap();
    let beside = |name: &str| mount.beside(name).display().to_string();
    let (store, records, questions) = (beside("store"), beside("records.jsonl"), beside("questions.jsonl"));
    fs::write(&questions, "{\"question\":\"when is tea\",\"evidence\":[\"tea\"]}\n").unwrap();
    let (main, a) = (format!("{store}:main"), format!("{store}:main/a"));
    let [store, main, a] = [&store, &main, &a].map(String::as_str);
    for arguments in [
        &["status", main][..],
        &["query", main, "tea"],
        &["export", main, &records],
        &["show", main, "2"],
        &["diff", a],
        &["log", main],
        &["branches", main],
        &["eval", main, &questions],
        &["verify", store],
    ] {
        let (code, _, said) = run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
    }
}

#[test]
fn shells_ask_and_read_in_turn() {
    let mount = circle();
    for shell in ["bash", "dash"] {
        let talk = |script: &str| mount.shell(shell, script);
        assert_two_answers(&talk("exec 3<>main/query; echo word7 >&3; cat <&3; echo word9 >&3; cat <&3"));
        assert_two_answers(&talk("exec 3<>main/query; printf 'word7\\nword9\\n' >&3; cat <&3"));
        assert_two_answers(&talk("exec 3<>main/query; printf 'word7\\nword9' >&3; cat <&3"));
        assert_two_answers(&talk("echo word7 > main/query; cat main/query; echo word9 > main/query; cat main/query"));
        let two = talk("exec 3<>main/query; echo tea >&3; read -r a <&3; read -r b <&3; echo \"$a\"; echo \"$b\"");
        assert_eq!(lines(&two)[1]["rank"], 1, "{shell} reads lines byte by byte");
    }
}

#[test]
fn python_asks_raw_buffered_in_text_and_by_position() {
    let mount = circle();
    for code in [
        "f = open('main/query', 'r+b', buffering=0)\nfor q in (b'word7\\n', b'word9\\n'): f.write(q); print(f.read().decode(), end='')",
        "f = open('main/query', 'r+b')\nfor q in (b'word7\\n', b'word9\\n'): f.write(q); f.flush(); print(f.read().decode(), end='')",
        "f = open('main/query', 'r+b')\nf.write(b'word7\\nword9\\n'); f.seek(0); print(f.read().decode(), end='')",
        "f = open('main/query', 'r+')\nfor q in ('word7\\n', 'word9\\n'): f.write(q); f.flush(); f.seek(0); print(f.read(), end='')",
        "f = open('main/query', 'w+')\nf.write('word7\\nword9\\n'); f.flush(); print(f.read(), end='')",
        "import os\nf = os.open('main/query', os.O_RDWR)\nfor q in (b'word7\\n', b'word9\\n'): os.write(f, q); print(os.pread(f, 65536, 0).decode(), end='')",
    ] {
        assert_two_answers(&mount.python(code));
    }
}

#[test]
fn perl_asks_with_and_without_buffers() {
    let mount = circle();
    let perl =
        |code: &str| super::succeed(super::command("perl", &["-MIO::Handle", "-e", code]).current_dir(mount.at("")));
    assert_two_answers(&perl(
        "open F,'+<','main/query'; for('word7','word9'){syswrite F,\"$_\\n\"; sysread F,$b,65536; print $b}",
    ));
    assert_two_answers(&perl(
        "open F,'+<','main/query'; F->autoflush(1); print F \"word7\\nword9\\n\"; seek F,0,0; print while <F>",
    ));
}

#[test]
fn an_answer_has_one_header_and_its_hits_by_rank() {
    let mount = circle();
    let answer = ask(&mount, "main", &json!({"vector": [1, 0], "k": 3, "tag": "mine", "exact": true}));
    let header = &answer[0];
    assert_eq!(
        (&header["ok"], &header["hits"], &header["tag"], &header["exact"]),
        (&true.into(), &3.into(), &"mine".into(), &true.into())
    );
    assert_eq!(
        (&header["mode"], &header["branch"], &header["head"]),
        (&"vector".into(), &"main".into(), &mount.status("main")["head"])
    );
    assert_eq!(ids(&answer), ["r00", "r01", "r39"], "equal scores go by id");
    assert_eq!(
        (&answer[1]["rank"], &answer[1]["source"], &answer[1]["branch"]),
        (&1.into(), &"branch".into(), &"main".into())
    );
    assert!(
        (answer[1]["score"].as_f64().unwrap() - 1.0).abs() < 1e-6
            && answer[1]["distance"].as_f64().unwrap().abs() < 1e-6
    );

    assert_eq!(ids(&ask(&mount, "main", &json!({"id": "r05", "k": 1}))), ["r05"]);
    let some = ask(&mount, "main", &json!({"vector": [1, 0], "k": 5, "filter": {"group": {"$in": [2]}}}));
    assert_eq!(some[0]["hits"], 5);
    assert!(some[1..].iter().all(|hit| hit["metadata"]["group"] == 2));
    assert_eq!(ask(&mount, "main", &json!({"text": "word3", "vector": [1, 0]}))[0]["mode"], "hybrid");
    assert_eq!(ask(&mount, "main", &json!({"text": "word3"}))[1]["distance"], Value::Null);
}

#[test]
fn a_bad_query_fails_in_the_write() {
    let mount = circle();
    for query in [
        r#"{"k":3}"#,
        r#"{"text":"tea","k":0}"#,
        r#"{"text":"tea","k":10001}"#,
        r#"{"text":"tea","colour":"red"}"#,
        r#"{"vector":[1,2,3]}"#,
        r#"{"text":"tea","mode":"psychic"}"#,
        r#"{"text":"tea","filter":{"group":{"$near":1}}}"#,
        r#"{"text":"tea""#,
    ] {
        assert_eq!(errno(save(mount.at("main/query"), &format!("{query}\n"))), libc::EINVAL, "{query}");
        assert_eq!(
            (&mount.refusal("main")["path"], &mount.refusal("main")["errno"]),
            (&"query".into(), &"EINVAL".into())
        );
    }
    let said = mount.sh("echo '{\"k\":3}' > main/query 2>/dev/null && echo taken || echo refused");
    assert_eq!(said.trim(), "refused");
}

#[test]
fn search_answers_the_query_in_its_name() {
    let mount = circle();
    let path = mount.at("main/search/word7 word9");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "it is asked when it is opened");
    let found = lines(&read(&path));
    assert_eq!((&found[0]["hits"], &found[0]["question"]), (&2.into(), &"word7 word9".into()));
    mount.sh("cp 'main/search/word7 word9' ../copy");
    assert_eq!(ids(&lines(&read(mount.beside("copy")))), ids(&found));
    mount.put("main/vectors/new.json", "word7 again");
    assert_eq!(lines(&read(&path))[0]["hits"], 3, "the next look sees the new record");
}

#[test]
fn a_branch_answers_with_its_own_edits() {
    let mount = circle();
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    fs::remove_file(mount.at("main/branches/x/vectors/r00.json")).unwrap();
    save(mount.at("main/branches/x/vectors/r01.json"), r#"{"vector":[-1,0],"text":"moved"}"#).unwrap();
    save(mount.at("main/branches/x/vectors/new.json"), r#"{"vector":[1,0],"text":"new"}"#).unwrap();
    let near = json!({"vector": [1, 0], "k": 3});
    assert_eq!(ids(&ask(&mount, "main", &near)), ["r00", "r01", "r39"]);
    let answer = ask(&mount, "main/branches/x", &near);
    assert_eq!(ids(&answer), ["new", "r39", "r02"]);
    assert_eq!((&answer[1]["branch"], &answer[2]["branch"]), (&"main/x".into(), &"main".into()));
    fs::rename(mount.at("main/branches/x"), mount.at("main/x")).unwrap();
    assert_eq!(ids(&ask(&mount, "main", &near)), ["new", "r39", "r02"]);
}

#[test]
fn conversations_at_once_do_not_mix() {
    let mount = circle();
    thread::scope(|scope| {
        for talker in 0..4 {
            let mount = &mount;
            scope.spawn(move || {
                let mut file = File::options().read(true).write(true).open(mount.at("main/query")).unwrap();
                for turn in 0..50 {
                    let n = (talker * 11 + turn) % 40;
                    let query = json!({"id": format!("r{n:02}"), "k": 1, "tag": format!("{talker}-{turn}")});
                    file.write_all(format!("{query}\n").as_bytes()).unwrap();
                    let mut answer = String::new();
                    file.read_to_string(&mut answer).unwrap();
                    let answer = lines(&answer);
                    assert_eq!((&answer[0]["tag"], ids(&answer)), (&query["tag"], vec![format!("r{n:02}").as_str()]));
                }
            });
        }
    });
}

#[test]
fn a_long_conversation_holds_up_no_other_on_the_same_file() {
    let mount = circle();
    let open = || File::options().read(true).write(true).open(mount.at("main/query")).unwrap();
    let (mut long, mut short, count) = (open(), open(), 45_000);
    let queries = "{\"text\":\"tea\",\"k\":1}\n".repeat(count);
    let done = AtomicBool::new(false);
    let meanwhile = thread::scope(|scope| {
        scope.spawn(|| {
            long.write_all(queries.as_bytes()).unwrap();
            done.store(true, Ordering::Release);
        });
        let mut meanwhile = 0;
        while !done.load(Ordering::Acquire) {
            short.write_all(b"word7\n").unwrap();
            let mut answer = String::new();
            short.read_to_string(&mut answer).unwrap();
            assert_eq!(ids(&lines(&answer)), ["r07"]);
            meanwhile += 1;
        }
        meanwhile
    });
    // Where they wait for each other, two or three come before the long one is under way.
    assert!(meanwhile >= 6, "{meanwhile} queries were answered beside {count} in one write");
    let mut answers = String::new();
    long.read_to_string(&mut answers).unwrap();
    let numbers: Vec<Value> = lines(&answers).iter().step_by(2).map(|header| header["q"].clone()).collect();
    assert_eq!(numbers, (0..count).map(Value::from).collect::<Vec<_>>(), "in the order of the queries");
}

/// The kernel makes several requests of a long write(2), and the last one alone sees that the line is bad.
#[test]
fn a_bad_line_longer_than_one_request_of_the_kernel_is_never_answered() {
    let mount = Mounted::new();
    mount.put("main/vectors/a.json", "word");
    let said = mount.python(
        r#"
import os
line = b'{"text":"' + b'word ' * 500_000 + b'", oops}\n'
for path in 'main/query', 'main/ctl', 'main/ingest':
    handle = os.open(path, os.O_RDWR)
    first = os.write(handle, line)
    assert 0 < first < len(line), first
    for _ in range(2):
        try:
            print('taken', path, os.write(handle, line[first:]))
        except OSError as error:
            assert error.errno == 22, error
    try:
        os.close(handle)
    except OSError as error:
        assert path == 'main/ingest', path
    answer = open(path).read()
    if path == 'main/ctl':
        assert '"status":"refused"' in answer and len(answer) < 2000, answer[:2000]
    else:
        print(answer, end='')
"#,
    );
    assert_eq!(said, "");
    assert_eq!(mount.status("main")["records"], 1);
}

/// The kernel answers before the server is asked, since a look-up has found a file of that name.
#[test]
fn every_name_in_search_is_there_for_those_who_would_make_it() {
    let mount = Mounted::new();
    fs::create_dir(mount.at("main/files/folder")).unwrap();
    assert_eq!(errno(fs::create_dir(mount.at("main/search/x"))), libc::EEXIST);
    assert_eq!(errno(fs::rename(mount.at("main/files/folder"), mount.at("main/search/y"))), libc::ENOTDIR);
    assert!(mount.has("main/files/folder") && mount.has("main/search/any words at all"));
}
