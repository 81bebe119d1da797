//! What an engine needs for which recall.

use std::sync::Arc;

use super::K;
use super::engine::{Engine, Found};
use crate::p50;

/// The breadths of search that are tried.
pub const EFS: [usize; 12] = [16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512];
/// Passes over all queries that count; one more, to warm up, comes before.
const PASSES: usize = 5;
/// An engine gets fewer passes, and no less than one, when they take longer than this in all.
const SECONDS_MAX: f64 = 10.0;
/// What may lie between two scores that are the same in exact arithmetic.
const TIE: f32 = 2e-6;

/// The exact answer to each query: ids and scores, best first.
pub struct Truth(pub Vec<Vec<(Arc<str>, f32)>>);

impl Truth {
    /// Returns the share of the exact answers that was found.
    pub fn recall(&self, answers: &[Found]) -> f64 {
        let (mut right, mut all) = (0, 0);
        for (exact, found) in self.0.iter().zip(answers) {
            let last = exact.last().map_or(f32::MIN, |hit| hit.1);
            let is_right = |at: usize| {
                let (id, score) = &found[at];
                let twice = found[..at].iter().any(|other| other.0 == *id);
                let listed = exact.iter().any(|hit| hit.0 == *id && (hit.1 - score).abs() <= TIE);
                !twice && (listed || (score - last).abs() <= TIE)
            };
            right += (0..found.len().min(K)).filter(|at| is_right(*at)).count().min(exact.len());
            all += exact.len();
        }
        right as f64 / all.max(1) as f64
    }
}

/// One breadth, measured.
#[derive(Clone, Debug)]
pub struct Point {
    pub ef: usize,
    /// CPU microseconds a query, the median of the passes.
    pub us: f64,
    pub recall: f64,
}

/// One engine, measured.
#[derive(Clone, Debug)]
pub struct Curve {
    pub name: String,
    pub points: Vec<Point>,
}

/// Microseconds at some recall.
#[derive(Clone, Copy)]
pub struct At {
    pub us: f64,
    /// The recall asked for, or less where the engine tops out.
    pub recall: f64,
    pub reached: bool,
}

impl Curve {
    /// Returns the time at a recall: between the two measured points around it, in proportion of its
    /// logarithm, or that of the best recall where it is not reached.
    pub fn at(&self, recall: f64) -> At {
        let Some(above) = self.points.iter().position(|point| point.recall >= recall) else {
            let best = self.points.iter().max_by(|one, two| one.recall.total_cmp(&two.recall)).unwrap();
            return At { us: best.us, recall: best.recall, reached: false };
        };
        let (high, reached) = (&self.points[above], true);
        let Some(low) = above.checked_sub(1).map(|below| &self.points[below]) else {
            return At { us: high.us, recall: high.recall, reached };
        };
        let share = (recall - low.recall) / (high.recall - low.recall);
        At { us: (low.us.ln() + (high.us / low.us).ln() * share).exp(), recall, reached }
    }
}

/// Lets engines take turns at every breadth; `truths` holds the exact answers for each of them.
pub fn measure(engines: &mut [Box<dyn Engine + '_>], truths: &[&Truth], efs: &[usize]) -> Vec<Curve> {
    let mut times = vec![vec![Vec::new(); efs.len()]; engines.len()];
    let mut recalls = vec![vec![0.0; efs.len()]; engines.len()];
    let mut spent = vec![vec![0.0; efs.len()]; engines.len()];
    for pass in 0..=PASSES {
        for (column, ef) in efs.iter().enumerate() {
            for (line, engine) in engines.iter_mut().enumerate() {
                if pass > 1 && spent[line][column] > SECONDS_MAX {
                    continue;
                }
                let (us, answers) = engine.pass(Some(*ef));
                spent[line][column] += us * answers.len() as f64 / 1e6;
                if pass == 0 {
                    recalls[line][column] = truths[line].recall(&answers);
                } else {
                    times[line][column].push(us);
                }
            }
        }
    }
    let point = |line: usize, column: usize| Point {
        ef: efs[column],
        us: p50(times[line][column].clone()),
        recall: recalls[line][column],
    };
    let curve = |(line, engine): (usize, &(dyn Engine + '_))| Curve {
        name: engine.name().to_owned(),
        points: (0..efs.len()).map(|column| point(line, column)).collect(),
    };
    engines.iter().map(AsRef::as_ref).enumerate().map(curve).collect()
}

/// Measures an engine with the breadth that it chooses itself.
pub fn by_default(engine: &mut dyn Engine, truth: &Truth) -> Point {
    let recall = truth.recall(&engine.pass(None).1);
    let us = p50((0..PASSES).map(|_| engine.pass(None).0).collect());
    Point { ef: 0, us, recall }
}
