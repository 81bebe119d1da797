//! Filters, and queries in words.

use engramfs::memory::Query;
use engramfs::search::Filter;
use serde_json::json;

use super::RECALL;
use super::corpus::{BUCKETS, Corpus};
use super::curve::{by_default, measure};
use super::engine::{Engine, Ours, thread_micros};
use super::holder::Holder;
use crate::{p50, row};

/// Breadths of filtered search.
const EFS: [usize; 8] = [32, 64, 96, 128, 160, 192, 256, 384];
/// Parts in a thousand that match, and what is asked of time.
const FILTERS: [(usize, &str); 4] = [(500, "≤ 2 ×"), (100, "≤ 2 ×"), (10, "< 1 ×"), (1, "< 1 ×")];

/// Filters on the bucket of each row.
pub fn run(corpus: &Corpus, holder: &Holder) {
    let filter = |part: usize| Filter::parse(&json!({ "bucket": { "$lt": part * BUCKETS / 1000 } })).unwrap();
    let new = |filter: Option<&Filter>| Ours::new("", &holder.memory, holder.view(), corpus, filter);
    let (mut truths, mut defaults, mut engines) = (Vec::new(), Vec::new(), Vec::<Box<dyn Engine + '_>>::new());
    let filters = FILTERS.iter().map(|(part, _)| Some(filter(*part)));
    for filter in std::iter::once(None).chain(filters) {
        let mut engine = new(filter.as_ref());
        truths.push(engine.truth());
        defaults.push(by_default(&mut engine, &truths[truths.len() - 1]));
        engines.push(Box::new(engine));
    }
    let curves = measure(&mut engines, &truths.iter().collect::<Vec<_>>(), &EFS);
    let plain = curves[0].at(RECALL).us;
    for (number, (part, figure)) in FILTERS.iter().enumerate() {
        let (at, default) = (curves[number + 1].at(RECALL), &defaults[number + 1]);
        let how = format!(
            "{}; {:.0} µs against {plain:.0} µs, recall {:.4}; default settings: {:.0} µs against {:.0} µs, recall {:.4}",
            corpus.title(),
            at.us,
            at.recall,
            default.us,
            defaults[0].us,
            default.recall
        );
        let what = format!("a filter that matches {} % against none, recall ≥ {RECALL}", *part as f64 / 10.0);
        row(&what, figure, &format!("{:.2} ×", at.us / plain), &how);
    }
}

/// Three words, scored by BM25.
pub fn words(corpus: &Corpus, holder: &Holder) {
    if !corpus.is_real() {
        return;
    }
    let query = |text: &String| {
        let mut words: Vec<&str> = text.split(|letter: char| !letter.is_alphabetic()).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.truncate(3);
        Query::parse(&json!({ "text": words.join(" "), "mode": "text" }).to_string()).unwrap()
    };
    let queries: Vec<Query> = corpus.question_texts.iter().map(query).collect();
    let ask = |query: &Query| thread_micros(|| drop(holder.memory.query(&holder.view(), query).unwrap()));
    // The first round warms up.
    let mut times: Vec<f64> = queries.iter().chain(&queries).map(ask).skip(queries.len()).collect();
    times.sort_by(f64::total_cmp);
    let p95 = times[times.len() * 95 / 100];
    let how = format!("{}, {} questions; p95 {:.2} ms", corpus.title(), times.len(), p95 / 1e3);
    row("BM25, three words, p50", "< 2 ms", &format!("{:.2} ms", p50(times) / 1e3), &how);
}
