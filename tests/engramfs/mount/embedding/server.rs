//! A server that makes vectors: how it is asked, what becomes of its failures, and who gets to know its key.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;
use std::thread::JoinHandle;

use super::*;
use crate::mount::{Server, command, save};

const KEY: &str = "sk-nobody-else-may-know-this";

/// The script as a server; it ends with this.
struct TestServer {
    script: Script,
    port: u16,
    child: Option<Child>,
}

impl TestServer {
    /// Chooses a port; nothing answers there yet.
    fn beside(site: &Site) -> TestServer {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        TestServer { script: Script::beside(site), port, child: None }
    }

    fn start(&mut self) {
        let arguments = [&self.script.path, Path::new("server"), &self.script.log].map(|path| path.to_str().unwrap());
        let mut python = command("python3", &arguments);
        self.child = Some(python.arg(self.port.to_string()).spawn().unwrap());
        wait_until("the server listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// The value of `--embed` for it.
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1#mini", self.port)
    }

    /// What it does with the next requests, a line each.
    fn plan(&self, steps: &str) {
        fs::write(self.script.log.with_extension("plan"), steps).unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A new store whose embedder is a server that runs.
fn served() -> (Mounted, TestServer) {
    let site = Site::new();
    let mut server = TestServer::beside(&site);
    server.start();
    (Mounted { server: site.serve(&["--embed", &server.url()]), site }, server)
}

/// Collects what a mount logs while it runs, so that its pipe is never full.
fn logged(server: &mut Server) -> JoinHandle<String> {
    let mut stderr = server.child.stderr.take().unwrap();
    std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    })
}

/// Tells whether bytes have a part of the key that is nobody's word; a dump of bytes has it in rows.
fn tells_key(bytes: &[u8]) -> bool {
    KEY.as_bytes().windows(8).any(|part| bytes.windows(part.len()).any(|found| found == part))
}

/// Checks that no file below a folder has the key.
fn assert_no_key_in(folder: &Path) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files += assert_no_key_in(&path);
        } else {
            let bytes = fs::read(&path).unwrap();
            assert!(!tells_key(&bytes), "{}", path.display());
            files += 1;
        }
    }
    files
}

#[test]
fn a_server_is_asked_in_batches_and_again_after_failures_and_its_key_stays_secret() {
    let site = Site::new();
    let mut server = TestServer::beside(&site);
    server.plan("busy\nbusy\n");
    server.start();
    let variables = [("ENGRAMFS_EMBED_KEY", KEY), ("ENGRAMFS_LOG", "trace")];
    let mut mount = Mounted { server: site.serve_with(&["--embed", &server.url()], &variables), site };
    let log = logged(&mut mount.server);
    let records: String = (0..150).map(|n| format!("{{\"id\":\"r{n}\",\"text\":\"bill number {n}\"}}\n")).collect();
    save(mount.at("main/ingest"), &records).unwrap();
    wait_until("all is embedded", || mount.status("main")["index"]["unembedded"] == 0);
    fill(&mount, "main");

    let asked = server.script.asked();
    let texts = |line: &Value| line["texts"].as_array().unwrap().clone();
    let at = |number: usize| asked[number]["at"].as_f64().unwrap();
    assert!(texts(&asked[0]) == texts(&asked[1]) && texts(&asked[1]) == texts(&asked[2]), "twice more");
    assert!(at(1) - at(0) > 0.2 && at(2) - at(1) > 0.4, "after a pause, and a longer one");
    let batches: Vec<Vec<Value>> =
        asked.iter().map(texts).filter(|texts| texts[0].as_str().unwrap().starts_with("bill number")).collect();
    assert!(batches.len() <= 4 && batches.iter().all(|batch| batch.len() <= 64), "{batches:?}");
    assert_eq!(batches.concat().len(), 150, "each once");
    let is_as_set = |line: &&Value| {
        line["key"] == format!("Bearer {KEY}") && line["path"] == "/v1/embeddings" && line["model"] == "mini"
    };
    assert_eq!(asked.iter().filter(is_as_set).count(), asked.len());

    // Who repeats the key gets it out of nobody.
    server.plan("always wrong-key");
    let answer = ask(&mount, "main", &words("green tea"));
    let reason = answer[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("embedder_missing") && reason.contains("is no key of ours"), "{reason}");
    mount.put("main/vectors/late.json", "a late bill");
    wait_until("the refusal is told", || mount.status("main")["embedder"]["state"] == "missing");
    let shown = ["status", "README.md", "errors", "lineage", "config/embedder", "events.jsonl"];
    let shown =
        shown.map(|name| read(mount.at(&format!("main/{name}")))).concat() + &doctor(&mount).to_string() + reason;
    assert!(shown.contains("is no key of ours") && !tells_key(shown.as_bytes()), "{shown}");
    let mount = unmounted(mount);
    let log = log.join().unwrap();
    assert!(log.contains("is no key of ours") && log.contains("TRACE"));
    assert_eq!(log.lines().find(|line| tells_key(line.as_bytes())), None);
    assert!(assert_no_key_in(&mount.site.store) > 3, "the store has files");
}

#[test]
fn what_a_server_answers_wrongly_is_said_and_words_answer() {
    let (mount, server) = served();
    fill(&mount, "main");
    let query = json!({"text": "green tea", "mode": "vector", "k": 1, "timeout_ms": 1_000});
    for (plan, why) in [
        ("short", "0 vectors came for 1 texts"),
        ("garbage", "it is not understood"),
        ("busy\nbusy\nbusy", "busy"),
        ("hang", "did not answer within"),
    ] {
        server.plan(plan);
        let answer = ask(&mount, "main", &query);
        let reason = answer[0]["reason"].as_str().unwrap();
        assert!(reason.contains("embedder_missing") && reason.contains(why), "{plan}: {reason}");
        assert_eq!((found(&answer), &answer[0]["mode"]), (vec!["files/brew.md"], &"text".into()), "{plan}");
    }
    find(&mount, "main", &near("a beverage", 1), &["files/brew.md"]);

    // A text for which the answer can't be used is asked for again.
    server.plan("garbage\n");
    mount.put("main/vectors/odd.json", "an odd machine");
    wait_until("the plan is carried out", || {
        fs::read_to_string(server.script.log.with_extension("plan")).unwrap().trim().is_empty()
    });
    mount.put("main/vectors/bill.json", "pay the bill");
    find(&mount, "main", &near("an invoice", 1), &["bill"]);
    wait_until("both are embedded", || mount.status("main")["index"]["unembedded"] == 0);

    // A server that hangs holds up no unmount.
    server.plan("always hang");
    let before = server.script.asked().len();
    mount.put("main/vectors/late.json", "a late bill");
    wait_until("it hangs", || server.script.asked().len() > before);
    let start = Instant::now();
    drop(unmounted(mount));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn a_server_that_is_down_at_the_mount_is_used_once_it_is_up() {
    let site = Site::new();
    let mut server = TestServer::beside(&site);
    let mount = Mounted { server: site.serve(&["--embed", &server.url()]), site };
    mount.put("main/vectors/ops.json", "the server is slow");
    fs::write(mount.at("main/files/brew.md"), "green tea at four\n").unwrap();
    wait_until("it was asked", || doctor(&mount)["advice"].as_str().unwrap().contains("see that the embedder runs"));
    assert_words_are_matched(&mount, "main", "embedder_missing", "see that the embedder runs");
    let status = mount.status("main");
    assert_eq!((&status["embedder"]["state"], &status["index"]["unembedded"]), (&"missing".into(), &1.into()));
    assert_eq!(doctor(&mount)["ok"], false);
    server.start();
    find(&mount, "main", &near("a beverage", 1), &["files/brew.md"]);
    find(&mount, "main", &near("which host", 1), &["ops"]);
    assert_eq!(mount.status("main")["embedder"]["state"], "ready");
    assert_eq!(doctor(&mount)["ok"], true);
}
