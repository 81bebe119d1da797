//! Lists of random steps that fail, made as short as they still fail.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How often a list is run again with one step less, once its shortest prefix is known.
const TRIES: usize = 100;

/// Runs the steps. Where that panics, runs their prefixes by length, and panics with the seed and the shortest one that
/// fails, without those of its steps that it also fails without.
///
/// `run` begins anew each time. A check of how much the steps came to belongs behind this call: no prefix would pass it.
pub fn run_steps<S: Clone + Debug, R>(seed: u64, steps: &[S], run: impl Fn(&[S]) -> R) -> R {
    let attempt = |steps: &[S]| catch_unwind(AssertUnwindSafe(|| run(steps)));
    let failure = match attempt(steps) {
        Ok(result) => return result,
        Err(failure) => failure,
    };
    // A longer prefix may pass where a shorter one fails, so this is no bisection.
    let shortest = (0..=steps.len()).find_map(|length| Some((length, attempt(&steps[..length]).err()?)));
    let Some((length, failure)) = shortest else {
        let text = text_of(&*failure);
        panic!("seed {seed} failed once and not again: {text}\n{}", list(steps));
    };
    let prefix = &steps[..length];
    let (fewest, last) = without_needless(prefix, |steps| attempt(steps).err());
    let mut report = format!("seed {seed} fails after {length} of {} steps: {}\n", steps.len(), text_of(&*failure));
    report += &list(prefix);
    if let Some(failure) = last {
        report += &format!("\nand with these {}: {}\n{}", fewest.len(), text_of(&*failure), list(&fewest));
    }
    panic!("{report}");
}

/// Drops single steps, the last one first, for as long as the list fails; returns also how it failed without them.
fn without_needless<S: Clone, F>(prefix: &[S], fails: impl Fn(&[S]) -> Option<F>) -> (Vec<S>, Option<F>) {
    let (mut fewest, mut last) = (prefix.to_vec(), None);
    for at in (0..prefix.len()).rev().take(TRIES) {
        let mut fewer = fewest.clone();
        fewer.remove(at);
        if let Some(failure) = fails(&fewer) {
            (fewest, last) = (fewer, Some(failure));
        }
    }
    (fewest, last)
}

/// The steps as they can be pasted into a test.
fn list<S: Debug>(steps: &[S]) -> String {
    let lines: String = steps.iter().map(|step| format!("    {step:?},\n")).collect();
    format!("[\n{lines}]")
}

fn text_of(failure: &(dyn Any + Send)) -> &str {
    let text = failure.downcast_ref::<String>().map(String::as_str);
    text.or(failure.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

/// Fails with these steps, and returns what was said.
fn report_of(steps: &[u32], run: impl Fn(&[u32])) -> String {
    let failure = catch_unwind(AssertUnwindSafe(|| run_steps(7, steps, run))).unwrap_err();
    text_of(&*failure).to_owned()
}

#[test]
fn the_shortest_prefix_that_fails_is_printed_and_then_the_fewest_steps() {
    // Fails once both 3 and 5 were there, passes again at a length of 7, and fails at last.
    let run = |steps: &[u32]| {
        let planted = steps.contains(&3) && steps.contains(&5) && steps.len() != 7;
        assert!(!planted, "planted");
    };
    let report = report_of(&[1, 3, 4, 4, 5, 6, 7, 8, 9], run);
    let prefix = "seed 7 fails after 5 of 9 steps: planted\n[\n    1,\n    3,\n    4,\n    4,\n    5,\n]";
    assert_eq!(report, format!("{prefix}\nand with these 2: planted\n[\n    3,\n    5,\n]"));
}

#[test]
fn a_run_that_passes_gives_what_it_found() {
    assert_eq!(run_steps(7, &[1, 2, 3], |steps| steps.iter().sum::<u32>()), 6);
}

#[test]
fn a_failure_without_any_step_is_told_with_an_empty_list() {
    assert_eq!(report_of(&[1, 2], |_| panic!("always")), "seed 7 fails after 0 of 2 steps: always\n[\n]");
}
