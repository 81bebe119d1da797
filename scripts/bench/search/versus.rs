//! Our search beside that of other libraries.

use std::fmt::Write;
use std::path::Path;

use super::corpus::Corpus;
use super::curve::{Curve, EFS, Truth, by_default, measure};
use super::engine::{Engine, HnswRs, Ours, scored};
use super::holder::Holder;
use super::peer::Peer;
use super::{RECALL, plot, save_plot};
use crate::row;

/// What the table of engines says beside a curve.
struct Built {
    version: String,
    cpu_s: f64,
}

/// Measures all engines in turn; returns their table.
pub fn run(corpus: &Corpus, holder: &Holder, bench: &Path, names: &[String]) -> String {
    let mut ours = Ours::new("engramfs", &holder.memory, holder.view(), corpus, None);
    let truth = ours.truth();
    check_truth(corpus, &truth);
    let default = by_default(&mut ours, &truth);
    let exact = ours.exact();
    let mut engines: Vec<Box<dyn Engine + '_>> = vec![Box::new(ours)];
    let mut built = vec![Built { version: env!("CARGO_PKG_VERSION").to_owned(), cpu_s: holder.graph_cpu_s }];
    for name in names {
        match start(name, corpus, bench) {
            Ok((engine, how)) => {
                engines.push(engine);
                built.push(how);
            }
            Err(reason) => row("not compared", "–", name, &reason),
        }
    }
    let truths = vec![&truth; engines.len()];
    let curves = measure(&mut engines, &truths, &EFS);
    drop(engines);
    let measured = format!("{:.0} µs, recall {:.4}", default.us, default.recall);
    let how = format!("{}, {} questions, {exact} proven exact", corpus.title(), corpus.queries.len());
    row("a query with default settings", "–", &measured, &how);
    rows(corpus, &curves);
    table(corpus, bench, &curves, &built)
}

type Started<'a> = (Box<dyn Engine + 'a>, Built);

/// Starts an engine; its index is built now, unless an earlier run left it.
fn start<'a>(name: &str, corpus: &'a Corpus, bench: &Path) -> Result<Started<'a>, String> {
    let kept = bench.join(format!("indexes-{}", corpus.rows()));
    std::fs::create_dir_all(&kept).unwrap();
    if name == "hnsw_rs" {
        let engine = HnswRs::new(corpus, &kept);
        let built = Built { version: "0.3.5".to_owned(), cpu_s: engine.build_cpu_s };
        return Ok((Box::new(engine), built));
    }
    let peer = Peer::new(name, corpus, bench, &kept)?;
    let built = Built { version: peer.version.clone(), cpu_s: peer.build_cpu_s };
    Ok((Box::new(peer), built))
}

/// Holds our exact answers against those computed elsewhere.
fn check_truth(corpus: &Corpus, truth: &Truth) {
    let Some(given) = &corpus.truth else { return };
    let number = |id: &String| corpus.names.iter().position(|name| **name == **id).unwrap();
    let rows: Vec<Vec<usize>> = given.iter().map(|ids| ids.iter().map(number).collect()).collect();
    let recall = truth.recall(&scored(corpus, &rows));
    let measured = format!("{:.0} of {}", recall * (given.len() * 10) as f64, given.len() * 10);
    row("exact answers found among ours, of those computed elsewhere", "all", &measured, &corpus.title());
}

/// The rows of the table of figures.
fn rows(corpus: &Corpus, curves: &[Curve]) {
    let (ours, others) = (curves[0].at(RECALL), &curves[1..]);
    let what = format!("recall@10 {RECALL}, one thread");
    let how = if ours.reached { String::new() } else { format!("; ours tops out at {:.4}", ours.recall) };
    let measured = format!("{:.0} µs", ours.us);
    row(&what, if corpus.is_real() { "–" } else { "< 200 µs (1,000,000 rows)" }, &measured, &(corpus.title() + &how));
    if let Some(curve) = others.iter().find(|curve| curve.name == "hnsw_rs") {
        versus(corpus, "hnsw_rs as it comes", "≥ 12 ×", ours.us, curve);
    }
    let reaching =
        others.iter().filter(|curve| !["hnsw_rs", "agenticow"].contains(&&*curve.name) && curve.at(RECALL).reached);
    if let Some(best) = reaching.min_by(|one, two| one.at(RECALL).us.total_cmp(&two.at(RECALL).us)) {
        versus(corpus, &format!("the best library, {}", best.name), "≥ 4.5 ×", ours.us, best);
    }
    if let Some(curve) = others.iter().find(|curve| curve.name == "agenticow") {
        versus(corpus, "the nearest peer, agenticow", "–", ours.us, curve);
    }
}

fn versus(corpus: &Corpus, name: &str, figure: &str, us: f64, curve: &Curve) {
    let other = curve.at(RECALL);
    let how = format!("{}; {:.0} µs at recall {:.4} against {us:.0} µs", corpus.title(), other.us, other.recall);
    row(&format!("the same against {name}"), figure, &format!("{:.1} × faster", other.us / us), &how);
}

/// The table of engines, with its plot.
fn table(corpus: &Corpus, bench: &Path, curves: &[Curve], built: &[Built]) -> String {
    let title = format!("{}, {} questions, k = 10, one thread", corpus.title(), corpus.queries.len());
    let file = save_plot(corpus, bench, "", &plot::svg(&title, curves));
    let mut out = format!("\n### {title}\n\n![Questions a second against recall]({file})\n\n");
    let heads: Vec<String> = [0.95, 0.975, RECALL].iter().map(|recall| format!("recall {recall}")).collect();
    let _ = writeln!(out, "| engine | {} | at {RECALL} beside ours | building, CPU s |", heads.join(" | "));
    out.push_str("|---|---|---|---|---|---|\n");
    let best = curves[0].at(RECALL).us;
    for (curve, built) in curves.iter().zip(built) {
        let cell = |recall: f64| {
            let at = curve.at(recall);
            if at.reached {
                format!("{:.0} µs", at.us)
            } else {
                format!("tops out: {:.4}, {:.0} µs", at.recall, at.us)
            }
        };
        let beside = curve.at(RECALL).us / best;
        let cells = format!("{} | {} | {}", cell(0.95), cell(0.975), cell(RECALL));
        let _ = writeln!(out, "| {} {} | {cells} | {beside:.1} × | {:.0} |", curve.name, built.version, built.cpu_s);
    }
    out.push_str("\nAll points, as ef: recall, µs:\n\n");
    for curve in curves {
        let points = curve.points.iter().map(|point| format!("{}: {:.4}, {:.0}", point.ef, point.recall, point.us));
        let _ = writeln!(out, "- {}: {}", curve.name, points.collect::<Vec<_>>().join("; "));
    }
    out
}
