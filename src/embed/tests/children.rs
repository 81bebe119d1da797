//! Commands of the tests' own.

use super::super::process::ProcessEmbedder;
use super::*;

/// Answers each line with one vector for each text: its number of letters and the number of lines so far. It trusts that
/// texts hold no quotes or commas. One awk a line, since some wait for more lines than one.
const GOOD: &str = r#"count=0; while IFS= read -r line; do count=$((count + 1)); printf '%s\n' "$line" | awk -v count=$count '{
    sub(/.*"texts":\[/, ""); sub(/\]}.*/, ""); n = split($0, texts, ","); line = "";
    for (i = 1; i <= n; i++) line = line (i > 1 ? "," : "") "[" length(texts[i]) - 2 "," count "]";
    print "{\"vectors\":[" line "]}"
}'; done"#;

#[test]
fn a_command_stays_and_answers_line_by_line() {
    let embedder = ProcessEmbedder::new(GOOD);
    assert_eq!(embedder.embed(TextKind::Document, &["ab", "abc"], TIMEOUT).unwrap(), [[2.0, 1.0], [3.0, 1.0]]);
    assert_eq!(embedder.embed(TextKind::Query, &["abcd"], TIMEOUT).unwrap(), [[4.0, 2.0]]);
    assert_eq!(embedder.name(), "cmd:count=0;");
}

#[test]
fn a_command_that_dies_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let once = format!(r#"echo x >> {}; read line; echo '{{"vectors":[[1,2]]}}'"#, count.display());
    let embedder = ProcessEmbedder::new(&once);
    for _ in 0..3 {
        assert_eq!(embedder.embed(TextKind::Document, &["a"], TIMEOUT).unwrap(), [[1.0, 2.0]]);
    }
    assert_eq!(std::fs::read_to_string(count).unwrap().lines().count(), 3);
    let error = ProcessEmbedder::new("exit 3").embed(TextKind::Document, &["a"], TIMEOUT).unwrap_err();
    assert!(matches!(&error, EmbedError::Unreachable(why) if why.contains("ended")), "{error}");
}

#[test]
fn nonsense_and_refusals_are_told_apart() {
    let embed = |line: &str| {
        let command = format!("while read request; do echo '{line}'; done");
        ProcessEmbedder::new(&command).embed(TextKind::Document, &["a"], TIMEOUT).unwrap_err()
    };
    assert!(matches!(embed("what?"), EmbedError::Answer(_)));
    assert!(matches!(embed(r#"{"vectors":[[1],[2]]}"#), EmbedError::Answer(_)), "two for one text");
    assert_eq!(embed(r#"{"error":"too long"}"#), EmbedError::Refused("too long".to_owned()));
}

#[test]
fn a_command_that_hangs_is_given_up_in_time_and_killed_with_all_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let embedder = ProcessEmbedder::new(&format!("sleep 600 & echo $! > {}; wait", pid.display()));
    let start = std::time::Instant::now();
    let error = embedder.embed(TextKind::Document, &["a"], Duration::from_millis(700)).unwrap_err();
    assert!(matches!(error, EmbedError::TimedOut(_)) && start.elapsed() < Duration::from_secs(5), "{error}");
    drop(embedder);
    assert_started_are_gone(&pid);
}

#[test]
fn what_a_command_that_ended_left_in_the_background_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    // Only the shell has the pipes, and so its end alone is what the server sees.
    let command = format!("sleep 600 < /dev/null > /dev/null 2>&1 & echo $! >> {}; read line; exit 3", pids.display());
    let error = ProcessEmbedder::new(&command).embed(TextKind::Document, &["a"], TIMEOUT).unwrap_err();
    assert!(matches!(&error, EmbedError::Unreachable(why) if why.contains("ended")), "{error}");
    assert_started_are_gone(&pids);
}

/// Fails where a process whose number a file has still lives after some seconds.
fn assert_started_are_gone(pids: &std::path::Path) {
    let pids = std::fs::read_to_string(pids).unwrap();
    let is_gone = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    let are_gone = || {
        std::thread::sleep(Duration::from_millis(50));
        pids.lines().all(is_gone)
    };
    assert!((0..100).any(|_| are_gone()), "what it started lives: {pids}");
}

/// Once a script that read what `mount --embed` said in the background waited for as long as the mount lasted.
#[test]
fn a_command_does_not_hold_the_standard_error_of_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    let embedder =
        ProcessEmbedder::new(&format!("readlink /proc/$$/fd/2 > {}; echo complaint >&2; {GOOD}", link.display()));
    assert_eq!(embedder.embed(TextKind::Document, &["abc"], TIMEOUT).unwrap(), [[3.0, 1.0]]);
    let own = std::fs::read_link("/proc/self/fd/2").unwrap();
    let of_command = std::fs::read_to_string(link).unwrap();
    assert!(of_command.starts_with("pipe:") && of_command.trim() != own.to_string_lossy(), "{of_command}");
}

/// Once the thread that speaks with the child tried a job again that had been given up, and the second child hung on it for
/// good: no text was embedded any more.
#[test]
fn after_a_text_on_which_the_command_hangs_the_next_ones_are_embedded() {
    let hangs_on_zz = GOOD.replace("do count=", r#"do case "$line" in *zz*) sleep 600;; esac; count="#);
    for kind in [TextKind::Document, TextKind::Query] {
        let embedder = ProcessEmbedder::new(&hangs_on_zz);
        let error = embedder.embed(kind, &["zz"], Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, EmbedError::TimedOut(_)), "{error}");
        if kind == TextKind::Query {
            // The child lives on, as it may be reading its model; a document that waited in vain ends it.
            embedder.embed(TextKind::Document, &["a"], Duration::from_millis(300)).unwrap_err();
        }
        assert_eq!(embedder.embed(TextKind::Document, &["abc"], TIMEOUT).unwrap(), [[3.0, 1.0]]);
    }
}

#[test]
fn a_query_goes_before_the_documents_that_wait() {
    let embedder = std::sync::Arc::new(ProcessEmbedder::new(&format!("sleep 0.5; {GOOD}")));
    let documents: Vec<_> = (0..3)
        .map(|_| {
            let embedder = embedder.clone();
            std::thread::spawn(move || embedder.embed(TextKind::Document, &["ab"], TIMEOUT).unwrap()[0][1])
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let query = embedder.embed(TextKind::Query, &["abc"], TIMEOUT).unwrap();
    assert_eq!(query, [[3.0, 2.0]], "the second line, behind the one document that was at work");
    let mut lines: Vec<f32> = documents.into_iter().map(|document| document.join().unwrap()).collect();
    lines.sort_by(f32::total_cmp);
    assert_eq!(lines, [1.0, 3.0, 4.0]);
}
