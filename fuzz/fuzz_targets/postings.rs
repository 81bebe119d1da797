//! The inverted index of a segment, asked for the words in front of it.
#![no_main]

use engramfs::text::{CollectionTotals, MaxScore, Postings, Scorer, TermGroup, for_each_term};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (words, index) = engramfs_fuzz::split(bytes);
    let Ok(postings) = Postings::open(index) else { return };
    let mut terms: Vec<Box<str>> = Vec::new();
    for_each_term(&String::from_utf8_lossy(words), &mut |term| terms.push(term.into()));
    for term in &terms {
        assert!(postings.terms_starting_with(term).all(|found| found.starts_with(&**term)));
    }
    let mut is_undamaged = true;
    let mut holding = Vec::new();
    for term in &terms {
        let Some(list) = postings.term(term) else {
            holding.push(0);
            continue;
        };
        let rows: Vec<(u32, u32)> = list.clone().collect();
        assert!(
            rows.is_sorted_by(|a, b| a.0 < b.0) && rows.iter().all(|(row, count)| *row < postings.rows() && *count > 0)
        );
        // Beyond 128 rows a list has a skip table, and a damaged one leads a seek past rows or to rows that are none.
        is_undamaged &= rows.len() == list.documents() as usize && rows.len() <= 128;
        for from in [1, postings.rows() / 2, postings.rows()] {
            let _ = list.clone().seek(from);
        }
        holding.push(list.documents().into());
    }
    let collection = CollectionTotals { documents: postings.rows().into(), length: postings.total_length() };
    let scorer = Scorer::new(collection, TermGroup::single_terms(terms.len()), &holding);
    let lists = || terms.iter().map(|term| postings.term(term)).collect();
    // As if words of a phrase did not count where it does not stand.
    let admits = |row: u32| move |term: usize| !(row as usize + term).is_multiple_of(3);
    let mut every = Vec::new();
    let (mut rows, mut from) = (MaxScore::new(lists(), &scorer), 0);
    while let Some(row) = rows.seek(from, f64::NEG_INFINITY) {
        let score = rows.score(row, postings.length(row), &scorer, f64::NEG_INFINITY, admits(row));
        assert!(row >= from && score.is_some_and(|score| !score.is_nan()));
        every.extend(score);
        from = row + 1;
    }
    let floor = every.iter().copied().fold(0.0, f64::max) / 2.0;
    let (mut rows, mut from, mut found) = (MaxScore::new(lists(), &scorer), 0, Vec::new());
    while let Some(row) = rows.seek(from, floor) {
        let score = rows.score(row, postings.length(row), &scorer, floor, admits(row));
        found.extend(score.filter(|score| *score >= floor));
        from = row + 1;
    }
    every.retain(|score| *score >= floor);
    assert!(!is_undamaged || found == every, "{found:?}, {every:?}");
});
