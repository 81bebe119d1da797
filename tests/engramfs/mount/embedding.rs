//! `--embed` on real mounts: records and files are found by what they mean, and what is missing is said.

mod server;

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::queries::ask;
use super::users::{act, shared};
use super::{Mounted, Site, lines, read, run};

/// How long what happens behind the writes may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The test's own embedder, beside a mount.
struct Script {
    path: PathBuf,
    /// What it was asked, a line each.
    log: PathBuf,
}

impl Script {
    fn beside(site: &Site) -> Script {
        let script = Script { path: site.beside("embedder.py"), log: site.beside("asked") };
        fs::write(&script.path, include_str!("embedding/embedder.py")).unwrap();
        script
    }

    /// The value of `--embed` for it as a command.
    fn command(&self, turn: u32) -> String {
        format!("cmd:python3 {} command {} {turn}", self.path.display(), self.log.display())
    }

    /// What it was asked so far.
    fn asked(&self) -> Vec<Value> {
        lines(&fs::read_to_string(&self.log).unwrap_or_default())
    }

    /// All texts of a kind that it was asked for.
    fn texts(&self, kind: &str) -> Vec<String> {
        let asked = self.asked();
        let of_kind = asked.iter().filter(|line| line["kind"] == kind);
        let texts = of_kind.flat_map(|line| line["texts"].as_array().unwrap());
        texts.map(|text| text.as_str().unwrap().to_owned()).collect()
    }
}

/// A new store whose embedder is the script as a command.
fn commanded() -> (Mounted, Script) {
    let site = Site::new();
    let script = Script::beside(&site);
    (Mounted { server: site.serve(&["--embed", &script.command(0)]), site }, script)
}

/// Ends the mount as `engramfs umount` does.
fn unmounted(mut mount: Mounted) -> Mounted {
    mount.server.signal(libc::SIGTERM);
    assert!(mount.server.wait().success());
    mount
}

/// A query by meaning alone.
fn near(text: &str, k: usize) -> Value {
    json!({"text": text, "mode": "vector", "k": k})
}

/// The same by words, too.
fn words(text: &str) -> Value {
    json!({"text": text})
}

/// The ids of records and paths of files that were found.
fn found(answer: &[Value]) -> Vec<&str> {
    answer[1..].iter().map(|hit| hit["path"].as_str().or(hit["id"].as_str()).unwrap()).collect()
}

/// Waits for something that happens behind the writes.
#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a query finds this.
#[track_caller]
fn find(mount: &Mounted, branch: &str, query: &Value, wanted: &[&str]) {
    let what = format!("{query} in {branch} finds {wanted:?}");
    wait_until(&what, || found(&ask(mount, branch, query)) == wanted);
}

/// Fills a branch with a record and a file, each of which is found by a paraphrase alone.
fn fill(mount: &Mounted, branch: &str) {
    mount.put(&format!("{branch}/vectors/ops.json"), "the server is slow");
    fs::write(mount.at(&format!("{branch}/files/brew.md")), "# Notes\n\ngreen tea at four\n").unwrap();
    find(mount, branch, &near("a beverage", 1), &["files/brew.md"]);
    find(mount, branch, &near("which host", 1), &["ops"]);
}

/// What `doctor` says of the embedder of a mount.
fn doctor(mount: &Mounted) -> Value {
    let (_, said, _) = run(&["doctor", "--json", mount.at("").to_str().unwrap()]);
    lines(&said).into_iter().find(|finding| finding["name"] == "embedder").unwrap()
}

/// Checks that all who may be asked say that words are matched, why, and what to do.
#[track_caller]
fn assert_words_are_matched(mount: &Mounted, branch: &str, why: &str, what_to_do: &str) {
    let answer = ask(mount, branch, &near("green tea", 1));
    let reason = answer[0]["reason"].as_str().unwrap();
    assert_eq!(answer[0]["mode"], "text", "{reason}");
    assert_eq!(found(&answer), ["files/brew.md"], "by its words");
    let readme = read(mount.at(&format!("{branch}/README.md")));
    let line = readme.lines().find(|line| line.starts_with("Queries in words")).unwrap();
    assert!(line.starts_with("Queries in words match words: "), "{line}");
    for said in [reason, line] {
        assert!(said.contains(why) && said.contains(what_to_do), "{said}");
    }
}

#[test]
fn a_command_has_records_and_files_found_by_what_they_mean() {
    let (mount, script) = commanded();
    fill(&mount, "main");
    let answer = ask(&mount, "main", &words("a slow host"));
    assert_eq!((found(&answer)[0], &answer[0]["mode"], answer[0].get("reason")), ("ops", &"hybrid".into(), None));
    let status = mount.status("main");
    assert_eq!(status["index"]["unembedded"], 0);
    let embedder = &status["embedder"];
    let shown = ["name", "dim", "state", "reembedding", "detail"].map(|key| embedder[key].clone());
    assert_eq!(json!(shown), json!(["cmd:python3", 4, "ready", false, null]));
    let config = read(mount.at("main/config/embedder"));
    assert_eq!(config.trim_end(), format!("cmd:python3 4 {}", embedder["identity"].as_str().unwrap()));
    assert!(read(mount.at("main/README.md")).contains("match meaning and words: texts are embedded by cmd:python3"));
    let told = doctor(&mount);
    assert_eq!((&told["ok"], &told["detail"]), (&true.into(), &"cmd:python3 (ready)".into()));

    // A fork has its own texts, and a merge brings them home.
    fs::create_dir(mount.at("main/branches/x")).unwrap();
    mount.put("main/branches/x/vectors/ops.json", "pay the invoice");
    fs::write(mount.at("main/branches/x/files/rack.txt"), "one machine more\n").unwrap();
    find(&mount, "main/branches/x", &near("a bill", 1), &["ops"]);
    find(&mount, "main/branches/x", &near("a host", 1), &["files/rack.txt"]);
    find(&mount, "main", &near("a host", 1), &["ops"]);
    fs::rename(mount.at("main/branches/x"), mount.at("main/x")).unwrap();
    find(&mount, "main", &near("a bill", 1), &["ops"]);
    find(&mount, "main", &near("a host", 1), &["files/rack.txt"]);
    let documents = script.texts("document");
    assert_eq!(documents.iter().collect::<HashSet<_>>().len(), documents.len(), "nothing twice: {documents:?}");
    assert!(script.texts("query").iter().all(|text| !documents.contains(text)));

    // Another mount embeds queries, and the texts that tell the embedder from others.
    let child = script.asked()[0]["pid"].to_string();
    let asked = script.asked().len();
    let mount = unmounted(mount).again(&["--embed", &script.command(0)]);
    wait_until("the command ends with its mount", || !PathBuf::from("/proc").join(&child).exists());
    find(&mount, "main", &near("a beverage", 1), &["files/brew.md"]);
    find(&mount, "main", &near("a bill", 1), &["ops"]);
    let embedded =
        script.asked()[asked..].iter().filter(|line| line["kind"] == "document").cloned().collect::<Vec<_>>();
    assert_eq!(embedded.len(), 1, "{embedded:?}");
    assert!(
        embedded[0]["texts"].as_array().unwrap().iter().all(|text| documents[..3].iter().any(|probe| text == probe))
    );
}

#[test]
fn an_embedder_of_one_root_branch_leaves_the_others_to_words() {
    let site = Site::new();
    let script = Script::beside(&site);
    let mount = Mounted { server: site.serve(&["--embed", &format!("team={}", script.command(0))]), site };
    fs::create_dir(mount.at("team")).unwrap();
    fill(&mount, "team");
    mount.put("main/vectors/ops.json", "a slow server at five");
    fs::write(mount.at("main/files/brew.md"), "green tea at five\n").unwrap();
    let answer = ask(&mount, "main", &words("a beverage"));
    assert_eq!((answer.len(), &answer[0]["mode"], answer[0].get("reason")), (1, &"text".into(), None));
    assert_words_are_matched(&mount, "main", "no embedder is set", "--embed");
    assert_eq!(mount.status("main")["embedder"], Value::Null);
    assert_eq!(mount.status("team")["embedder"]["state"], "ready");
    let told = doctor(&mount);
    assert!(told["ok"] == true && told["advice"].as_str().unwrap().contains("--embed"), "{told}");
    assert!(!script.texts("document").iter().any(|text| text.contains("at five")), "nothing of main is embedded");
}

#[test]
fn another_command_is_told_and_reembed_has_its_vectors_count() {
    let (mount, script) = commanded();
    fill(&mount, "main");
    let mount = unmounted(mount).again(&["--embed", &script.command(1)]);
    wait_until("it is compared", || mount.status("main")["embedder"]["state"] == "changed");
    assert_words_are_matched(&mount, "main", "embedder_changed", "engramfs reembed");
    let told = doctor(&mount);
    assert!(told["ok"] == false && told["advice"].as_str().unwrap().contains("engramfs reembed"), "{told}");
    let begun = mount.ctl("main", "reembed").unwrap();
    assert_eq!((&begun["reembed"], &begun["root"], &begun["records"]), (&"started".into(), &"main".into(), &1.into()));
    assert!(begun["embedder"].is_string() && begun["dim"] == 4 && begun.as_object().unwrap().len() == 5, "{begun}");
    find(&mount, "main", &near("a beverage", 1), &["files/brew.md"]);
    wait_until("the new vectors count", || mount.status("main")["embedder"]["state"] == "ready");
    // Topic 0 stands at place 1 now.
    find(&mount, "main", &json!({"vector": [0, 1, 0, 0], "k": 1}), &["files/brew.md"]);
    find(&mount, "main", &near("which host", 1), &["ops"]);
    assert_eq!(read(mount.at("main/lineage")).matches(r#""op":"embedder""#).count(), 2);
}

#[test]
fn a_closed_file_is_near_to_nobody_else() {
    let Some(mount) = shared() else { return };
    let script = Script::beside(&mount.site);
    let mount = mount.again(&["--allow-other", "--embed", &script.command(0)]);
    mount.sh("cd main/files; echo 'tea drink beverage' > closed.md; chmod 600 closed.md; echo 'the server is slow' > open.md");
    let query = json!({"text": "a beverage", "mode": "vector", "k": 9, "scope": ["files"]});
    find(&mount, "main", &query, &["files/closed.md", "files/open.md"]);
    let asked = act(&mount, 1001, &format!("echo '{query}' > main/query; cat main/query")).unwrap();
    assert_eq!(found(&lines(&asked)), ["files/open.md"]);
    mount.sh("chmod 644 main/files/closed.md");
    let asked = act(&mount, 1001, &format!("echo '{query}' > main/query; cat main/query")).unwrap();
    assert_eq!(found(&lines(&asked)), ["files/closed.md", "files/open.md"], "once it is open");
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn a_model_that_runs_in_the_mount_finds_a_paraphrase() {
    const MODEL: &str = "all-MiniLM-L6-v2";
    let set = std::env::var_os("ENGRAMFS_MODELS").map(PathBuf::from);
    if !set.is_some_and(|models| models.join(MODEL).is_dir()) {
        eprintln!("skipped: $ENGRAMFS_MODELS has no {MODEL}; scripts/models.sh puts it there");
        return;
    }
    let mount = Mounted::with(&["--embed", MODEL]);
    mount.put("main/vectors/car.json", "He bought a new automobile last spring.");
    fs::write(mount.at("main/files/weather.md"), "The temperature outside fell below zero at night.\n").unwrap();
    find(&mount, "main", &near("a car was purchased", 1), &["car"]);
    find(&mount, "main", &near("it was freezing cold", 1), &["files/weather.md"]);
    let answer = ask(&mount, "main", &words("how warm is it outdoors?"));
    assert_eq!((&answer[0]["mode"], answer[0].get("reason")), (&"hybrid".into(), None));
}
