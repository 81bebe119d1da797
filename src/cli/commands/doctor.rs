//! `engramfs doctor`: says what FUSE lacks here and what to do.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::embedders::models;
use crate::cli::exit::Exit;
use crate::cli::failure::CommandError;
use crate::cli::output::{Output, Paint, paint};
use crate::cli::target::find_mounted_store;
use crate::fuse::{Finding, examine};

/// Looks at what a mount needs here, and says what to do about the rest.
#[derive(clap::Args)]
#[command(before_help = "Examples:
  engramfs doctor
  engramfs doctor /mnt/memory      (also at this mount, or where one shall be)")]
pub struct Args {
    /// A mount, or a directory for one.
    mnt: Option<PathBuf>,
}

/// Prints what was examined, one line a finding, with advice. [`Exit::Failed`] if something keeps a mount from working.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, CommandError> {
    let mut findings = examine(args.mnt.as_deref());
    if args.mnt.is_none() {
        findings.push(models_finding(&models()));
    }
    // One that was found to hang would keep the findings from being told.
    let answers = findings.iter().all(|finding| finding.ok || finding.name != "mountpoint");
    findings.extend(args.mnt.as_deref().filter(|_| answers).into_iter().flat_map(mount_findings));
    for finding in &findings {
        if out.is_json() {
            let Finding { name, ok, detail, advice } = finding;
            out.line(json!({ "name": name, "ok": ok, "detail": detail, "advice": advice }))?;
        } else {
            let text = render(finding, out.is_coloured());
            out.text(&text)?;
        }
    }
    Ok(if findings.iter().all(|finding| finding.ok) { Exit::Done } else { Exit::Failed })
}

/// Returns what the status at `mnt` says of the whole store; nothing if it shows no branch that can be read.
fn mount_findings(mnt: &Path) -> Vec<Finding> {
    let status = || -> Option<Value> {
        find_mounted_store(mnt).ok().flatten()?;
        let status = ["status", "main/status"].iter().find_map(|name| std::fs::read(mnt.join(name)).ok())?;
        serde_json::from_slice(&status).ok()
    };
    let status = status().unwrap_or_default();
    let embedder = status.get("embedder").map(embedder_finding);
    let clock = status["clock"].as_str().map(clock_finding);
    clock.into_iter().chain(reserve_finding(&status["reserve"])).chain(embedder).collect()
}

/// What it takes to match meaning, before anything is mounted.
fn models_finding(models: &[PathBuf]) -> Finding {
    let (detail, advice) = match models.first() {
        Some(model) => {
            (format!("a model is there: queries match meaning with mount --embed {}", model.display()), None)
        }
        None => (
            "no model is there: queries in words match words".to_owned(),
            Some("to match meaning run scripts/models.sh, and mount with --embed all-MiniLM-L6-v2".to_owned()),
        ),
    };
    Finding { name: "embedder", ok: true, detail, advice }
}

/// The state of a mount's embedder. That none is set keeps nothing from working.
fn embedder_finding(embedder: &Value) -> Finding {
    let text = |key: &str| embedder[key].as_str().unwrap_or_default();
    if embedder.is_null() {
        let advice = "to match meaning mount with --embed: a model's folder, URL#MODEL or cmd:COMMAND".to_owned();
        let detail = "none is set: queries in words match words".to_owned();
        return Finding { name: "embedder", ok: true, detail, advice: Some(advice) };
    }
    let ok = text("state") == "ready";
    let detail = format!("{} ({})", text("name"), text("state"));
    Finding { name: "embedder", ok, detail, advice: (!ok).then(|| text("detail").to_owned()) }
}

fn reserve_finding(reserve: &Value) -> Option<Finding> {
    let (bytes, total) = (reserve["bytes"].as_u64()?, reserve["total"].as_u64()?);
    let advice = "free space on the store's disk: delete what is not needed, then run engramfs gc MNT".to_owned();
    Some(Finding {
        name: "reserve",
        ok: bytes >= total,
        detail: format!("{} of {} KiB are kept for deletes and gc on a full disk", bytes >> 10, total >> 10),
        advice: (bytes < total).then_some(advice),
    })
}

fn clock_finding(clock: &str) -> Finding {
    let (detail, advice) = match clock {
        "ok" => ("the last entry is not in the future", None),
        _ => (
            "the last entry is more than a day in the future: times do not follow the clock",
            Some("if the machine's clock is right, unmount and run engramfs clock STORE --reset".to_owned()),
        ),
    };
    Finding { name: "clock", ok: advice.is_none(), detail: detail.to_owned(), advice }
}

fn render(finding: &Finding, coloured: bool) -> String {
    let mark = if finding.ok { paint(coloured, Paint::Green, "ok  ") } else { paint(coloured, Paint::Red, "FAIL") };
    let advice = finding.advice.as_ref().map(|advice| format!("      -> {advice}\n")).unwrap_or_default();
    format!("{mark}  {:14} {}\n{advice}", finding.name, finding.detail)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_ahead_is_said_with_what_to_do() {
        assert!(clock_finding("ok").ok);
        let ahead = clock_finding("ahead");
        assert!(!ahead.ok && ahead.advice.is_some_and(|advice| advice.contains("clock STORE --reset")));
    }

    #[test]
    fn how_it_stands_with_the_embedder_is_said_with_what_to_do() {
        let none = embedder_finding(&Value::Null);
        assert!(none.ok && none.advice.is_some_and(|advice| advice.contains("--embed")));
        let lost = json!({ "name": "mini", "state": "missing", "detail": "it ended" });
        let lost = embedder_finding(&lost);
        assert!(!lost.ok && lost.detail == "mini (missing)" && lost.advice.as_deref() == Some("it ended"));
        assert!(models_finding(&[]).advice.is_some() && models_finding(&["/m".into()]).advice.is_none());
    }

    #[test]
    fn a_reserve_that_is_short_is_said_with_what_to_do() {
        let finding = |bytes: u64| reserve_finding(&json!({ "bytes": bytes, "total": 4096 })).unwrap();
        assert!(finding(4096).ok && finding(4096).advice.is_none());
        assert!(!finding(1024).ok && finding(1024).detail.starts_with("1 of 4 KiB") && finding(1024).advice.is_some());
        assert!(reserve_finding(&Value::Null).is_none(), "an older server tells nothing");
    }

    #[test]
    fn a_finding_is_a_line_and_its_advice_another() {
        let finding =
            Finding { name: "device", ok: false, detail: "missing".into(), advice: Some("modprobe fuse".into()) };
        assert_eq!(render(&finding, false), "FAIL  device         missing\n      -> modprobe fuse\n");
    }
}
