//! A server of the tests' own, that answers as it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::super::http::HttpEmbedder;
use super::*;

/// A server on a port of its own; each request is answered by `answer`, which is told its number and body.
struct TestServer {
    url: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl TestServer {
    fn start(answer: impl Fn(usize, &Value) -> (u16, String) + Send + Sync + 'static) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (seen.clone(), answer.clone());
                std::thread::spawn(move || while serve(&mut stream.as_ref().unwrap(), &seen, &*answer).is_some() {});
            }
        });
        TestServer { url, requests }
    }

    fn embedder(&self, key: Option<&str>) -> HttpEmbedder {
        HttpEmbedder::new(&self.url, "mini", key)
    }
}

fn serve(
    mut stream: &mut &TcpStream,
    seen: &Mutex<Vec<(String, Value)>>,
    answer: &dyn Fn(usize, &Value) -> (u16, String),
) -> Option<()> {
    let mut reader = BufReader::new(&mut stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).unwrap();
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push((head, body.clone()));
        seen.len() - 1
    };
    let (status, text) = answer(number, &body);
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{text}", text.len()).ok()
}

/// The answer of a good server: the length of each text and its number, out of order.
fn good(body: &Value) -> (u16, String) {
    let texts = body["input"].as_array().unwrap();
    let item =
        |(index, text): (usize, &Value)| json!({ "index": index, "embedding": [text.as_str().unwrap().len(), 1] });
    let items: Vec<Value> = texts.iter().enumerate().map(item).rev().collect();
    (200, json!({ "data": items }).to_string())
}

#[test]
fn texts_go_in_batches_and_vectors_come_in_their_order() {
    let server = TestServer::start(|_, body| good(body));
    let texts: Vec<String> = (0..150).map(|n| "x".repeat(n + 1)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let vectors = server.embedder(Some("k-123")).embed(TextKind::Document, &texts, TIMEOUT).unwrap();
    assert!(vectors.iter().enumerate().all(|(n, vector)| *vector == [n as f32 + 1.0, 1.0]));
    let requests = server.requests.lock().unwrap();
    let sizes: Vec<usize> = requests.iter().map(|(_, body)| body["input"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [64, 64, 22]);
    let (head, body) = &requests[0];
    assert!(head.starts_with("POST /v1/embeddings ") && head.contains("Bearer k-123"), "{head}");
    assert_eq!(body["model"], "mini");
}

#[test]
fn a_request_that_fails_in_passing_is_made_twice_more() {
    let server = TestServer::start(|number, body| if number < 2 { (503, "busy".into()) } else { good(body) });
    let vectors = server.embedder(None).embed(TextKind::Document, &["ab"], TIMEOUT).unwrap();
    assert_eq!((vectors, server.requests.lock().unwrap().len()), (vec![vec![2.0, 1.0]], 3));
    let server = TestServer::start(|_, _| (500, "broken".into()));
    let error = server.embedder(None).embed(TextKind::Document, &["ab"], TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("broken") && server.requests.lock().unwrap().len() == 3, "{error}");
}

#[test]
fn a_refusal_is_not_asked_again_and_never_tells_the_key() {
    let server = TestServer::start(|_, _| (401, "the key sk-secret is wrong".into()));
    let error = server.embedder(Some("sk-secret")).embed(TextKind::Query, &["ab"], TIMEOUT).unwrap_err();
    assert!(error.to_string().contains("the key … is wrong") && server.requests.lock().unwrap().len() == 1, "{error}");
    let server = TestServer::start(|_, _| (400, "too long".into()));
    let error = server.embedder(None).embed(TextKind::Query, &["ab"], TIMEOUT).unwrap_err();
    assert!(matches!(error, EmbedError::Refused(_) | EmbedError::Answer(_)), "{error}");
}

#[test]
fn a_server_that_says_nothing_or_nonsense_is_an_error_in_time() {
    let server = TestServer::start(|_, body| {
        std::thread::sleep(Duration::from_secs(3));
        good(body)
    });
    let start = std::time::Instant::now();
    let error = server.embedder(None).embed(TextKind::Query, &["ab"], Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, EmbedError::TimedOut(_)) && start.elapsed() < Duration::from_secs(2), "{error}");
    for nonsense in ["", "[]", r#"{"data":[]}"#, r#"{"data":[{"embedding":[1]},{"index":0,"embedding":[1]}]}"#] {
        let server = TestServer::start(move |_, _| (200, nonsense.to_owned()));
        let error = server.embedder(None).embed(TextKind::Query, &["ab"], TIMEOUT).unwrap_err();
        assert!(matches!(error, EmbedError::Answer(_)), "{nonsense}: {error}");
    }
    let nobody = HttpEmbedder::new("http://127.0.0.1:1", "m", None);
    let error = nobody.embed(TextKind::Query, &["ab"], Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, EmbedError::Unreachable(_)), "{error}");
}
