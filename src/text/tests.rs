//! The module against a plain reading of its own promises, on random documents.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;

/// The distinct terms of a query as they are, sorted.
fn exact_terms(query: &str) -> Vec<Box<str>> {
    QueryTerms::parse(query, None).exact.into_iter().map(|(term, _)| term).collect()
}

/// A small generator of repeatable numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A document of 0 to 30 words, few of them frequent, with a metadata string.
fn random_document(random: &mut Random) -> (String, Value) {
    let mut word = |width: u64| {
        let top = 1 + random.below(width);
        format!("w{}", random.below(top))
    };
    let label = format!("{}-{}", word(9), word(9));
    let mut text = String::new();
    for _ in 0..random.below(30) {
        let top = 1 + random.below(60);
        text.push_str(&format!("W{} ", random.below(top)));
    }
    (text, json!({"label": label, "n": 5}))
}

fn documents(count: usize, seed: u64) -> Vec<(String, Value)> {
    let mut random = Random(seed);
    (0..count).map(|_| random_document(&mut random)).collect()
}

fn index(documents: &[(String, Value)]) -> Vec<u8> {
    let mut writer = PostingsWriter::new();
    for (row, (text, metadata)) in documents.iter().enumerate() {
        writer.add(row as u32, Some(text), metadata);
    }
    writer.finish()
}

/// BM25 as in the paper, over plain lists of words; document number to score.
fn reference(documents: &[(usize, Vec<String>)], query: &str) -> BTreeMap<usize, f64> {
    let mut terms = BTreeSet::new();
    for_each_term(query, &mut |term| {
        terms.insert(term.to_owned());
    });
    let n = documents.len() as f64;
    let average = documents.iter().map(|(_, words)| words.len()).sum::<usize>() as f64 / n;
    let mut scores = BTreeMap::new();
    for term in &terms {
        let count = |words: &[String]| words.iter().filter(|word| *word == term).count() as f64;
        let df = documents.iter().filter(|(_, words)| count(words) > 0.0).count() as f64;
        let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
        for (id, words) in documents.iter().filter(|(_, words)| count(words) > 0.0) {
            let tf = count(words);
            let norm = 1.0 - 0.75 + 0.75 * words.len() as f64 / average;
            *scores.entry(*id).or_insert(0.0) += idf * tf * (1.2 + 1.0) / (tf + 1.2 * norm);
        }
    }
    scores
}

/// The rows whose scores are `floor` or more, when `step` rows are leapt over behind each.
fn rows_above(postings: &Postings<'_>, terms: &[Box<str>], scorer: &Scorer, floor: f64, step: u32) -> Vec<(u32, f64)> {
    let lists = terms.iter().map(|term| postings.term(term)).collect();
    let (mut rows, mut from, mut found) = (MaxScore::new(lists, scorer), 0, Vec::new());
    while let Some(row) = rows.seek(from, floor) {
        assert!(row >= from && row < postings.rows());
        from = row + step;
        let score = rows.score(row, postings.length(row), scorer, floor, |_| true);
        found.extend(score.filter(|score| *score >= floor).map(|score| (row, score)));
    }
    found
}

/// Answers over several indexes and some scanned records, as a search over a branch does.
fn answer(
    parts: &[Postings<'_>],
    scanned: &[(usize, TermFrequencies)],
    per: usize,
    visible: &dyn Fn(usize) -> bool,
    query: &str,
) -> BTreeMap<usize, f64> {
    let terms = exact_terms(query);
    let mut collection = CollectionTotals::default();
    let mut holding = vec![0u64; terms.len()];
    for (part, postings) in parts.iter().enumerate() {
        let shown = |row: u32| visible(part * per + row as usize);
        (0..postings.rows()).filter(|&row| shown(row)).for_each(|row| collection.add(postings.length(row)));
        for (count, term) in holding.iter_mut().zip(&terms) {
            let list = postings.term(term);
            *count += list.into_iter().flatten().filter(|(row, _)| shown(*row)).count() as u64;
        }
    }
    let counts_of = |counted: &TermFrequencies| terms.iter().map(|term| counted.count(term)).collect::<Vec<_>>();
    for (_, counted) in scanned {
        collection.add(counted.length());
        holding.iter_mut().zip(counts_of(counted)).for_each(|(held, count)| *held += u64::from(count > 0));
    }
    let scorer = Scorer::new(collection, TermGroup::single_terms(terms.len()), &holding);
    let mut scores = BTreeMap::new();
    for (part, postings) in parts.iter().enumerate() {
        for (row, score) in rows_above(postings, &terms, &scorer, f64::NEG_INFINITY, 1) {
            if visible(part * per + row as usize) {
                scores.insert(part * per + row as usize, score);
            }
        }
    }
    let hits = scanned.iter().map(|(id, counted)| (*id, scorer.score(counted.length(), &counts_of(counted))));
    scores.extend(hits.filter(|(_, score)| *score > 0.0));
    scores
}

#[test]
fn scores_are_those_of_a_fresh_index_whatever_the_parts_and_hidden_rows() {
    let all = documents(1_000, 7);
    let words: Vec<Vec<String>> = all
        .iter()
        .map(|(text, metadata)| {
            let mut words = Vec::new();
            for_each_document_term(Some(text), metadata, &mut |term| words.push(term.to_owned()));
            words
        })
        .collect();
    let whole = index(&all);
    for (per, hidden_in_10) in [(1_000, 0), (1_000, 5), (300, 3), (77, 9), (1, 2)] {
        let mut random = Random(per as u64);
        let hidden: Vec<bool> = all.iter().map(|_| random.below(10) < hidden_in_10).collect();
        // The last 100 are in no segment, as a branch's newest edits are.
        let in_segments = 900;
        let bytes: Vec<_> = all[..in_segments].chunks(per).map(index).collect();
        let parts: Vec<_> = bytes.iter().map(|bytes| Postings::open(bytes).unwrap()).collect();
        let scanned: Vec<_> = (in_segments..all.len())
            .filter(|id| !hidden[*id])
            .map(|id| (id, TermFrequencies::from_document(Some(&all[id].0), &all[id].1)))
            .collect();
        let seen: Vec<_> = words.iter().cloned().enumerate().filter(|(id, _)| !hidden[*id]).collect();
        for query in ["w0", "W3 w9 w3", "w1-w2 nowhere", "nowhere", "w59 w40 w17 w5 w0"] {
            let got = answer(&parts, &scanned, per, &|id| !hidden[id], query);
            // Bits, not nearly: the sums run in the same order with the same operands.
            assert_eq!(got, reference(&seen, query), "{query} in parts of {per}");
            if hidden_in_10 == 0 {
                let fresh = answer(&[Postings::open(&whole).unwrap()], &[], all.len(), &|_| true, query);
                assert_eq!(got, fresh);
            }
        }
    }
}

#[test]
fn postings_hold_what_was_added_and_nothing_else() {
    let all = documents(3_000, 1);
    let bytes = index(&all);
    let postings = Postings::open(&bytes).unwrap();
    let counted: Vec<_> =
        all.iter().map(|(text, metadata)| TermFrequencies::from_document(Some(text), metadata)).collect();
    let mut expected: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
    for (row, counted) in counted.iter().enumerate() {
        assert_eq!(postings.length(row as u32), counted.length());
        for (term, count) in counted.terms() {
            expected.entry(term).or_default().push((row as u32, *count));
        }
    }
    assert_eq!((postings.rows(), postings.terms()), (3_000, expected.len()));
    assert_eq!(postings.total_length(), counted.iter().map(|c| u64::from(c.length())).sum::<u64>());
    for (term, list) in &expected {
        assert_eq!(postings.term(term).unwrap().documents() as usize, list.len());
        assert_eq!(postings.term(term).unwrap().collect::<Vec<_>>(), *list, "{term}");
    }
    for absent in ["", "a", "w00", "zzz", "w"] {
        assert!(postings.term(absent).is_none(), "{absent}");
    }
    assert_eq!(postings.length(3_000), 0);
    assert_eq!(postings.length(u32::MAX), 0);
}

#[test]
fn merged_indexes_are_one_index_of_the_rows_that_are_kept() {
    let all = documents(900, 4);
    let bytes: Vec<_> = all.chunks(250).map(index).collect();
    let parts: Vec<_> = bytes.iter().map(|bytes| Postings::open(bytes).unwrap()).collect();
    // Rows of all parts in another order, every seventh left out.
    let order: Vec<usize> = (0..900).map(|at| at * 77 % 900).filter(|at| at % 7 > 0).collect();
    let row_of =
        |part: usize, row: u32| order.iter().position(|at| *at == part * 250 + row as usize).map(|at| at as u32);
    let merged = PostingsWriter::merged(&parts, row_of).finish();
    assert_eq!(merged, index(&order.iter().map(|at| all[*at].clone()).collect::<Vec<_>>()));
    assert_eq!(PostingsWriter::merged(&parts, |_, _| None).finish(), PostingsWriter::new().finish());
}

#[test]
fn seeking_is_iterating_with_the_lower_rows_left_out() {
    let mut writer = PostingsWriter::new();
    let mut random = Random(3);
    let rows: BTreeSet<u32> = (0..1_500).map(|_| random.below(1_000_000) as u32).collect();
    for &row in &rows {
        writer.add(row, Some("x"), &Value::Null);
    }
    let bytes = writer.finish();
    let postings = Postings::open(&bytes).unwrap();
    for reach in [3, 300, 30_000, 600_000] {
        let mut list = postings.term("x").unwrap();
        let mut from = 0;
        loop {
            let target = from + random.below(reach) as u32;
            let found = list.seek(target);
            assert_eq!(found.map(|(row, _)| row), rows.range(target..).next().copied());
            let Some((row, _)) = found else { break };
            from = row + 1;
        }
        assert_eq!((list.next(), list.seek(0)), (None, None));
    }
    // A block's very edge, and asking for what is behind gives what comes next.
    let ordered: Vec<u32> = rows.iter().copied().collect();
    for at in [0, 127, 128, 129, 255, 256, 1_279, 1_280] {
        let mut list = postings.term("x").unwrap();
        assert_eq!(list.seek(ordered[at]), Some((ordered[at], 1)));
        assert_eq!(list.seek(0), Some((ordered[at + 1], 1)));
    }
}

/// A scorer of a query over all rows of one index, whose words share groups.
fn new_scorer(postings: &Postings<'_>, terms: &[Box<str>]) -> Scorer {
    let holding: Vec<u64> =
        terms.iter().map(|term| postings.term(term).map_or(0, |list| list.documents().into())).collect();
    let mut groups = TermGroup::single_terms(terms.len());
    groups.push(TermGroup { weight: 0.5, members: (0..terms.len()).step_by(2).collect() });
    let collection = CollectionTotals { documents: postings.rows().into(), length: postings.total_length() };
    Scorer::new(collection, groups, &holding)
}

#[test]
fn rows_that_reach_a_score_are_found_whatever_is_passed_over() {
    let all = documents(2_000, 11);
    let bytes = index(&all);
    let postings = Postings::open(&bytes).unwrap();
    for query in ["w2 w7 nowhere w1-w1", "w0 w1 w2 w3 w40 w59", "w59", "nowhere"] {
        let terms = exact_terms(query);
        let scorer = new_scorer(&postings, &terms);
        let mut every = Vec::new();
        for row in 0..postings.rows() {
            let count = |term: &str| postings.term(term)?.seek(row).filter(|(at, _)| *at == row);
            let counts: Vec<u32> = terms.iter().map(|term| count(term).map_or(0, |(_, count)| count)).collect();
            if counts.iter().any(|count| *count > 0) {
                every.push((row, scorer.score(postings.length(row), &counts)));
            }
        }
        let mut scores: Vec<f64> = every.iter().map(|(_, score)| *score).collect();
        scores.sort_by(f64::total_cmp);
        let floors = [0, 1, scores.len() / 2, scores.len().saturating_sub(10)].map(|at| scores.get(at).copied());
        for floor in floors.into_iter().flatten().chain([f64::NEG_INFINITY, f64::INFINITY]) {
            let expected: Vec<(u32, f64)> = every.iter().copied().filter(|(_, score)| *score >= floor).collect();
            assert_eq!(rows_above(&postings, &terms, &scorer, floor, 1), expected, "{query} from {floor}");
        }
        for step in [10, 400] {
            let (mut from, mut expected) = (0, Vec::new());
            while let Some(found) = every.iter().find(|(row, _)| *row >= from) {
                expected.push(*found);
                from = found.0 + step;
            }
            assert_eq!(rows_above(&postings, &terms, &scorer, f64::NEG_INFINITY, step), expected, "{query}");
        }
    }
}

#[test]
fn the_empty_index_opens_and_rows_may_be_left_out() {
    let bytes = PostingsWriter::new().finish();
    let postings = Postings::open(&bytes).unwrap();
    assert_eq!((postings.rows(), postings.terms(), postings.total_length()), (0, 0, 0));
    assert!(postings.term("x").is_none());

    let mut writer = PostingsWriter::new();
    assert_eq!(writer.add(5, Some("x y x"), &Value::Null), 3);
    assert_eq!(writer.add(9, None, &Value::Null), 0);
    let bytes = writer.finish();
    let postings = Postings::open(&bytes).unwrap();
    assert_eq!((postings.rows(), postings.length(4), postings.length(5), postings.length(9)), (10, 0, 3, 0));
    assert_eq!(postings.term("x").unwrap().collect::<Vec<_>>(), [(5, 2)]);
}

#[test]
#[should_panic(expected = "ascending")]
fn rows_out_of_order_are_refused() {
    let mut writer = PostingsWriter::new();
    writer.add(1, Some("x"), &Value::Null);
    writer.add(1, Some("x"), &Value::Null);
}

#[test]
fn foreign_newer_and_short_bytes_are_errors() {
    let bytes = index(&documents(20, 2));
    assert_eq!(Postings::open(b"").unwrap_err(), TextError::Magic);
    assert_eq!(Postings::open(&[0; 100]).unwrap_err(), TextError::Magic);
    let mut newer = bytes.clone();
    newer[7] = 2;
    assert_eq!(Postings::open(&newer).unwrap_err(), TextError::Version { found: 2 });
    for len in 8..bytes.len() {
        assert_eq!(Postings::open(&bytes[..len]).unwrap_err(), TextError::Size { bytes: len });
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Postings::open(&longer).unwrap_err(), TextError::Size { bytes: longer.len() });
}

#[test]
fn damaged_bytes_never_panic_or_loop_and_never_name_a_row_that_is_not_there() {
    let whole = index(&documents(400, 5));
    let terms = exact_terms("w0 w1 w2 w5 w20 w59 w1-w1");
    let mut random = Random(9);
    for _ in 0..4_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 + random.below(255) as u8;
        }
        let Ok(postings) = Postings::open(&bytes) else {
            continue;
        };
        let scorer = new_scorer(&postings, &terms);
        for (floor, step) in [(f64::NEG_INFINITY, 1), (f64::NEG_INFINITY, 50), (2.0, 1)] {
            let rows = rows_above(&postings, &terms, &scorer, floor, step);
            assert!(rows.len() <= postings.rows() as usize && rows.is_sorted_by(|a, b| a.0 < b.0));
        }
    }
}

/// Found by a fuzz target: the merge of an index that has one term twice gave its rows twice.
#[test]
fn a_term_that_stands_twice_in_a_damaged_index_is_merged_once() {
    let mut writer = PostingsWriter::new();
    writer.add(0, Some("heron"), &Value::Null);
    writer.add(1, Some("heros"), &Value::Null);
    let mut bytes = writer.finish();
    let at = bytes.windows(5).position(|name| name == b"heros").unwrap();
    bytes[at..at + 5].copy_from_slice(b"heron");
    let damaged = Postings::open(&bytes).unwrap();
    let merged = PostingsWriter::merged(&[damaged], |_, row| Some(row)).finish();
    let rows: Vec<(u32, u32)> = Postings::open(&merged).unwrap().term("heron").unwrap().collect();
    assert!(rows == [(0, 1)] || rows == [(1, 1)], "{rows:?}");
}
