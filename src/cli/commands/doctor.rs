//! `engramfs doctor`: says what FUSE lacks here and what to do.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::exit::Exit;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Paint, paint};
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

/// Runs the verb; the exit code is 1 where something keeps a mount from working.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, Failure> {
    let findings = examine(args.mnt.as_deref());
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

fn render(finding: &Finding, coloured: bool) -> String {
    let mark = if finding.ok { paint(coloured, Paint::Green, "ok  ") } else { paint(coloured, Paint::Red, "FAIL") };
    let advice = finding.advice.as_ref().map(|advice| format!("      -> {advice}\n")).unwrap_or_default();
    format!("{mark}  {:14} {}\n{advice}", finding.name, finding.detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_its_advice_another() {
        let finding =
            Finding { name: "device", ok: false, detail: "missing".into(), advice: Some("modprobe fuse".into()) };
        assert_eq!(render(&finding, false), "FAIL  device         missing\n      -> modprobe fuse\n");
    }
}
