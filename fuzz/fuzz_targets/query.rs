//! A query on the first line and records on the others: what is answered from memory is answered from a segment.
#![no_main]

use engramfs::search::Query;
use engramfs::vector::Metric;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (line, lines) = text.split_once('\n').unwrap_or((text, ""));
    let Ok(query) = Query::parse(line) else { return };
    for metric in Metric::ALL {
        let answers = engramfs_fuzz::branches(&engramfs_fuzz::records(lines.lines())).map(|state| {
            let result = engramfs_fuzz::answer(state, metric, &query).map_err(|error| error.to_string())?;
            Ok::<_, String>(
                result.hits.iter().map(|hit| (hit.id.clone(), hit.score.value().to_bits())).collect::<Vec<_>>(),
            )
        });
        assert_eq!(answers[0], answers[1]);
    }
});
