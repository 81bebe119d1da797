//! Embedders against what they stand for: a model against plain loops, a server and a command of the tests' own.

mod agreement;
mod children;
mod onnx_files;
mod servers;
mod tiny_model;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn what_is_written_for_an_embedder_is_understood_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("mini")).unwrap();
    let parse = |text: &str| EmbedderSpec::parse(text, &[folder.path().to_owned()]);
    assert_eq!(parse("cmd: python3 e.py").unwrap(), EmbedderSpec::Command("python3 e.py".to_owned()));
    assert_eq!(parse("mini").unwrap(), EmbedderSpec::Folder(folder.path().join("mini")));
    assert_eq!(parse("/models/x").unwrap(), EmbedderSpec::Folder("/models/x".into()));
    let server = parse("http://localhost:8080/v1/#m").unwrap();
    assert_eq!(server, EmbedderSpec::Server { url: "http://localhost:8080/v1".into(), model: "m".into() });
    for wrong in ["", "cmd:", "http://h/v1", "http://h/v1#", "http://#m", "https://me:secret@h/v1#m", "no-such-model"] {
        assert!(matches!(parse(wrong), Err(EmbedError::Spec(_))), "{wrong:?}");
    }
    assert_eq!(parse("http://h/v1?key=secret#m").unwrap().to_string(), "http://h/v1#m");
    assert_eq!(parse("cmd:serve --key secret").unwrap().to_string(), "cmd:serve");
}

#[test]
fn answers_that_are_not_one_vector_a_text_are_refused() {
    let is_refused =
        |vectors: Vec<Vec<f32>>, texts| matches!(check_vectors(vectors, texts), Err(EmbedError::Answer(_)));
    assert!(is_refused(vec![vec![1.0]], 2) && is_refused(vec![vec![1.0], vec![1.0, 2.0]], 2));
    assert!(is_refused(vec![vec![]], 1) && is_refused(vec![vec![f32::NAN]], 1) && is_refused(vec![vec![0.0; 3]], 1));
    assert_eq!(check_vectors(vec![vec![1.0, 0.0]], 1).unwrap(), [[1.0, 0.0]]);
}

#[test]
fn probes_are_compared_by_their_direction() {
    let before = vec![vec![1.0, 0.0], vec![0.0, 2.0], vec![1.0, 1.0]];
    let mut now = before.clone();
    assert!(vectors_match(&before, &now));
    now[1] = vec![0.02, 1.0];
    assert!(vectors_match(&before, &now), "rounding");
    now[1] = vec![0.1, 1.0];
    assert!(!vectors_match(&before, &now) && !vectors_match(&before, &now[..2]));
    assert!(!vectors_match(&before, &[vec![1.0], vec![1.0], vec![1.0]]), "another dimension");
}
